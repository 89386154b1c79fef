"""Settings for language models. They are part of the operator's `Settings`."""

from decimal import Decimal
from typing import Literal

from pydantic import Field, SecretStr

from patchwright.runtime.frozen_model import FrozenModel


class Price(FrozenModel):
    """Prices that the operator sets for a model, in dollars per million tokens."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(default=None, ge=0)
    """Price of cached input tokens. By default, this is the price of other input tokens."""


class ModelSettings(FrozenModel):
    """The operator's settings for language models. Models have the same names as in litellm."""

    model: str | None = None
    """Name of the model that does the work, as litellm writes it: `provider/model`, such as
    `anthropic/claude-sonnet-5`. Use `openai/responses/NAME` for an endpoint that offers the model only in the
    Responses API.
    """
    model_base_url: str | None = None
    """URL of an OpenAI-compatible endpoint for `model` and all other models of the same provider. By default,
    Patchwright uses the provider's own endpoint.
    """
    model_api_key: SecretStr | None = None
    """API key for `model` and all other models of the same provider. By default, Patchwright uses the
    provider's own environment variable.
    """
    model_fallbacks: tuple[str, ...] = ()
    """Models to try, in this order, when `model` fails. Causes of such a failure are high load, a rate limit, a
    rejected API key, missing credit or a content filter. The run stays with the model that replied last.
    """
    allowed_models: tuple[str, ...] = ()
    """Models that people may request with `model=NAME`, in addition to the models in the other settings."""
    multimodal_model: str | None = None
    """The model for conversations with images, and for images that the agent's Python code asks about. If `model`
    supports images but is not in litellm's model table, repeat its name here. By default, Patchwright uses `model`,
    if it supports images.
    """
    condenser_model: str | None = None
    """The model that summarizes conversations when they exceed the context limit. If it fails, `model`
    replaces it. The same applies to `browsing_model` and `review_model`. By default, Patchwright uses
    `model`.
    """
    browsing_model: str | None = None
    """The model that controls the browser. By default, Patchwright uses `model`."""
    review_model: str | None = None
    """The model that reviews the patch as a second opinion. Its review never changes the test verdict. By default,
    there is no review.
    """
    transcription_models: tuple[str, ...] = ("whisper-1",)
    """Models that transcribe recordings when the agent's Python code asks for a transcript. If
    `model_base_url` is set, requests for models whose names contain no provider go to that URL.
    """
    tool_calling: Literal["native", "text"] = "native"
    """How the model calls tools. Use `text` for models without function calling; the prompt then describes
    the tools.
    """
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    """Reasoning effort of `model` and its fallbacks. By default, this is the provider's default."""
    model_timeout: float = Field(default=240, gt=0, le=3600)
    """Maximum number of seconds for one reply, from the request to the last byte."""
    model_retry_timeout: float = Field(default=300, gt=0, le=7200)
    """Maximum number of seconds to get one reply from one model, including failed requests and the waits between
    them. After that, the next fallback model is called. If there is none, the run ends. The limit also
    applies to an endpoint that never answers.
    """
    model_prices: dict[str, Price] = Field(default_factory=dict)
    """Prices of models in dollars per million tokens, by model name. Set them for models without a public
    price.
    """
