"""What an operator says about models. Part of `Settings`."""

from decimal import Decimal
from typing import Literal

from pydantic import Field, SecretStr

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
    """litellm name, provider first, such as `anthropic/claude-sonnet-4-5`."""
    model_base_url: str | None = None
    """An OpenAI-compatible endpoint, for all models of `model`'s provider. None: the provider's."""
    model_api_key: SecretStr | None = None
    """Key for the models of `model`'s provider. None: the provider's own variable."""
    model_fallbacks: tuple[str, ...] = ()
    """Models that go on, in this order, when `model` fails for a reason that another may not have: load, limits, key,
    credit, a content filter. A run stays with the model that spoke last in it."""
    model_choices: tuple[str, ...] = ()
    """Models that people may ask for by `model=NAME`, beside those that these settings name."""
    model_pictures: str | None = None
    """Takes the place of `model` in conversations with pictures. None: `model`, if it sees."""
    model_condense: str | None = None
    """Sums up conversations that have grown too long. Where it or one of the next three fails, `model` does it.
    None: `model`."""
    model_browse: str | None = None
    """Works in the browser. None: `model`."""
    model_judge: str | None = None
    """Gives a second opinion. None: `model`."""
    model_senses: str | None = None
    """Looks at pictures for the skills that ask for it. None: `model`."""
    model_hears: tuple[str, ...] = ("whisper-1",)
    """Models that write recordings down for the skill that asks for it; a name without provider is one of
    `model_base_url`'s, if that is set."""
    model_api: Literal["auto", "chat", "responses"] = "auto"
    """How `model`'s provider is spoken to. `auto`: OpenAI's Responses API where a model is offered there alone (also
    by name: `openai/responses/NAME`), or reasons and is OpenAI's own; else chat completions."""
    model_tools: Literal["native", "text"] = "native"
    """`text` for models without function calling: they get the tools in their prompt."""
    model_sees: bool | None = None
    """Whether `model` is shown pictures. None: as litellm's table says."""
    model_effort: Literal["minimal", "low", "medium", "high"] | None = None
    """How much `model` and its fallbacks think before they answer. None: the provider's."""
    model_timeout: float = Field(default=240, gt=0, le=3600)
    """Seconds for one reply, first byte to last."""
    model_patience: float = Field(default=300, gt=0, le=7200)
    """Seconds for failed requests and waiting, for one reply of one model: after that the next one goes on, or the run
    ends. An endpoint that never answers is given up after this time."""
    model_prices: dict[str, Price] = Field(default_factory=dict)
    """Dollars per million tokens by the name of the model, for those whose price nobody else knows."""
