"""Settings for models. Part of `Settings`."""

from decimal import Decimal
from typing import Literal

from pydantic import Field, SecretStr

from patchwright.runtime.frozen_model import FrozenModel


class Price(FrozenModel):
    """Prices that the operator sets for a model, in dollars per million tokens."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(default=None, ge=0)
    """Price of cached input tokens. None: the price of other input."""


class ModelSettings(FrozenModel):
    """Settings for models, which are named as in litellm. Options of `model` apply to all models of its
    provider.
    """

    model: str | None = None
    """The litellm name of the model, with the provider first, such as `anthropic/claude-sonnet-4-5`."""
    model_base_url: str | None = None
    """An OpenAI-compatible endpoint for all models of `model`'s provider. None: the provider's own endpoint.
    """
    model_api_key: SecretStr | None = None
    """API key for all models of `model`'s provider. None: the provider's own environment variable."""
    model_fallbacks: tuple[str, ...] = ()
    """Models to try, in this order, when `model` fails because of load, rate limits, its key, missing credit
    or a content filter. The run stays with the model that replied last.
    """
    allowed_models: tuple[str, ...] = ()
    """Models that people may request with `model=NAME`, in addition to the models in these settings."""
    multimodal_model: str | None = None
    """Replaces `model` in conversations with images. None: `model`, if it supports images."""
    condenser_model: str | None = None
    """Summarizes conversations that exceed the context limit. If this model or one from the next three
    settings fails, `model` takes over. None: `model`.
    """
    browsing_model: str | None = None
    """Controls the browser. None: `model`."""
    review_model: str | None = None
    """Reviews the patch as a second opinion. None: `model`."""
    vision_model: str | None = None
    """Describes images for skills. None: `model`."""
    transcription_models: tuple[str, ...] = ("whisper-1",)
    """Models that transcribe recordings for skills. If `model_base_url` is set, models without a provider in
    their names are requested there.
    """
    model_api: Literal["auto", "chat", "responses"] = "auto"
    """The API for models of `model`'s provider. `auto` selects OpenAI's Responses API for OpenAI's own
    reasoning models, for models that are available only there, and for names such as `openai/responses/NAME`.
    It selects chat completions for all others.
    """
    tool_calling: Literal["native", "text"] = "native"
    """`text` is for models without function calling: the tools are described in the prompt."""
    model_supports_vision: bool | None = None
    """Whether `model` accepts images. None: according to litellm's model table."""
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    """Reasoning effort of `model` and its fallbacks. None: the provider's default."""
    model_timeout: float = Field(default=240, gt=0, le=3600)
    """Seconds for one reply, from the request to the last byte."""
    model_retry_timeout: float = Field(default=300, gt=0, le=7200)
    """Maximum seconds of failed requests and waiting, for each reply and model. After that, the next model
    takes over, or the run ends if there is none. The limit also applies to an endpoint that never answers.
    """
    model_prices: dict[str, Price] = Field(default_factory=dict)
    """Dollars per million tokens by model name, for models without a public price."""
