"""Language models as frozen values: which model, and how to reach it."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, SecretStr, SerializationInfo, SerializeAsAny, field_serializer, field_validator

from patchwright.sdk.plugins import Extensible

if TYPE_CHECKING:
    from patchwright.resolver.llm.model import ChatMessage, Model

EXPOSE_SECRETS = {"expose_secrets": True}
"""Pass this as `context` to `model_dump_json` to include the API keys."""


class LLM(Extensible):
    """A language model.

    Two LLMs are equal if they name the same model and endpoint; the key does not count. JSON does not contain the key,
    unless you pass `context={"expose_secrets": True}` to `model_dump_json`.
    """

    entry_point_group: ClassVar[str] = "patchwright.routers"

    model: str = Field(min_length=1)
    """Name of the model, as litellm writes it: `provider/model`, such as `anthropic/claude-sonnet-4-5`."""
    api_key: SecretStr | None = None
    """The provider's key. By default, the provider's own environment variable is used, such as
    `ANTHROPIC_API_KEY`.
    """
    base_url: str | None = None
    """URL of an OpenAI-compatible endpoint. By default, the provider's own endpoint is used."""
    timeout: float = Field(default=240.0, gt=0)
    """Time limit of a request in seconds."""
    retry_seconds: float = Field(default=120.0, ge=0)
    """Seconds for which failed requests are repeated, if a later request may succeed."""
    reasoning_effort: str | None = None
    """Such as `low`, `medium` or `high`. By default, the provider decides."""
    tool_calling: Literal["native", "text"] = "native"
    """`text` is for models without tool calls: the model writes its calls as text."""
    supports_vision: bool | None = None
    """Whether the model accepts images. By default, litellm's model table decides."""
    input_price: float | None = Field(default=None, ge=0)
    """Dollars per million tokens, if litellm does not know the price of this model. Set both prices."""
    output_price: float | None = Field(default=None, ge=0)
    """Dollars per million tokens."""

    @field_validator("model")
    @classmethod
    def _require_provider(cls, model: str) -> str:
        if model.startswith("/") or "/" not in model:
            raise ValueError(
                f"{model!r} has no provider: write provider/model, such as anthropic/claude-sonnet-4-5"
            )
        return model

    @field_serializer("api_key")
    def _hide_key(self, key: SecretStr | None, info: SerializationInfo) -> str | None:
        exposes = isinstance(info.context, Mapping) and info.context.get("expose_secrets")
        return key.get_secret_value() if key is not None and exposes else None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), repr(self._compared())))

    def _compared(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "api_key"}

    def api_keys(self) -> tuple[str, ...]:
        """Returns the API keys, so that they can be masked."""
        return (self.api_key.get_secret_value(),) if self.api_key else ()

    def build(self) -> "Model":
        """Returns the model that sends the requests."""
        from patchwright.resolver.llm.checked_model import CheckedModel
        from patchwright.resolver.llm.litellm import LitellmModel
        from patchwright.resolver.llm.model import ProviderConnection
        from patchwright.resolver.llm.retry import RetryingModel
        from patchwright.resolver.settings.model_settings import Price
        from patchwright.sdk.environment import ca_bundle, data_directory
        from patchwright.sdk.llm_errors import build_error_naming_model

        price = None
        if self.input_price is not None and self.output_price is not None:
            price = Price.model_validate({"input": str(self.input_price), "output": str(self.output_price)})
        model = RetryingModel(
            LitellmModel(
                self.model,
                ProviderConnection(self.base_url, self.api_key, self.timeout, ca_bundle()),
                supports_vision=self.supports_vision,
                effort=self.reasoning_effort,
                price=price,
            ),
            max_seconds=self.retry_seconds,
        )
        directory = data_directory() / "cache" / "models"
        checked = CheckedModel(model, self.tool_calling, directory, base_url=self.base_url)
        return build_error_naming_model(checked)


class RouterLLM(LLM):
    """Chooses one of several models for each request. Subclasses implement `select_llm`.

    The cost of each reply is counted for the model that wrote it.
    """

    model: str = "router/router"
    llms_for_routing: dict[str, SerializeAsAny[LLM]] = Field(min_length=1)

    @abstractmethod
    def select_llm(self, messages: "Sequence[ChatMessage]") -> str:
        """Returns the key in `llms_for_routing` of the model that gets this conversation."""

    def api_keys(self) -> tuple[str, ...]:
        return tuple(key for llm in self.llms_for_routing.values() for key in llm.api_keys())

    def build(self) -> "Model":
        from patchwright.resolver.llm.router import ModelRouter

        models = {name: llm.build() for name, llm in self.llms_for_routing.items()}
        return ModelRouter(models, self.select_llm)
