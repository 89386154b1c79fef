"""What an operator says about models. Part of `Settings`."""

from decimal import Decimal
from typing import Literal

import pydantic_core
from pydantic import Field, SecretStr, field_validator

from runtime.frozen import Frozen


class Price(Frozen):
    """What a model costs by its operator's own account: dollars per million tokens."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(default=None, ge=0)
    """Of input that the provider had kept. None: like other input."""


class ModelSettings(Frozen):
    """Models are named as litellm does. What is said of `model` alone holds for all with the same provider."""

    model: str | None = None
    """litellm name of the model, such as `anthropic/claude-sonnet-4-5`. None: there is no agent to run."""
    model_base_url: str | None = None
    """Base URL of an OpenAI-compatible endpoint; None: the provider's own. For all models of `model`'s provider."""
    model_api_key: SecretStr | None = None
    """Key for the models of `model`'s provider. None: litellm reads each provider's own variable."""
    model_fallbacks: tuple[str, ...] = ()
    """Models that go on, in this order, when `model` fails for a reason that another may not have."""
    model_choices: tuple[str, ...] = ()
    """Models that people may ask for by `model=NAME`, beside those that are named here for anything else."""
    model_pictures: str | None = None
    """Takes the place of `model` in conversations with pictures. None: `model` is shown them if it sees."""
    model_condense: str | None = None
    """Sums up conversations that have grown too long. None, here and below: `model`."""
    model_browse: str | None = None
    """Works in the browser."""
    model_judge: str | None = None
    """Gives a second opinion."""
    model_senses: str | None = None
    """Looks at pictures for the skills that ask for it."""
    model_hears: tuple[str, ...] = ("whisper-1",)
    """Models that write recordings down for the skill that asks for it, which may name any of them."""
    model_api: Literal["auto", "chat", "responses"] = "auto"
    """How `model`'s provider is spoken to. auto: OpenAI's Responses API where a model is offered there alone, or
    reasons and is OpenAI's own; else chat completions."""
    model_tools: Literal["native", "text"] = "native"
    """text: `model` and its fallbacks get the tools as text, for models without function calling."""
    model_sees: bool | None = None
    """Whether `model` is shown pictures. None: as litellm's table says."""
    model_effort: Literal["minimal", "low", "medium", "high"] | None = None
    """How much `model` and its fallbacks think before they answer. None: as their providers do by default."""
    model_timeout: float = Field(default=240, gt=0, le=3600)
    """Seconds for one reply, first byte to last."""
    model_patience: float = Field(default=300, gt=0, le=7200)
    """Seconds for failed requests and waiting, for one reply of one model."""
    model_prices: dict[str, Price] = Field(default_factory=dict)
    """Prices by the name of the model, for those whose price nobody else knows. In the environment: as JSON."""

    @field_validator("model_fallbacks", "model_choices", "model_hears", mode="before")
    @classmethod
    def _fallbacks_by_commas(cls, names: object) -> object:
        return tuple(names.replace(",", " ").split()) if isinstance(names, str) else names

    @field_validator("model_prices", mode="before")
    @classmethod
    def _prices_from_json(cls, prices: object) -> object:
        return pydantic_core.from_json(prices) if isinstance(prices, str) else prices
