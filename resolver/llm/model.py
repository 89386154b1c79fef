"""Defines the interface of language models, and the messages that are sent to them and received from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, SecretStr

from patchwright.resolver.events import ReplyUsage
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ImageData


class ToolSpec(FrozenModel):
    """The definition of a tool, and its form in each API that offers tools."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments, an object."""

    def without_field(self, name: str) -> "ToolSpec":
        """Returns the definition without one of the arguments."""
        properties = {key: field for key, field in self.parameters["properties"].items() if key != name}
        return self.model_copy(update={"parameters": self.parameters | {"properties": properties}})

    def to_openai_tool(self) -> dict[str, Any]:
        """Returns the definition as a request to OpenAI's Chat Completions API contains it.

        Source: platform.openai.com/docs/api-reference/chat/create#chat-create-tools
        """
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }

    def to_responses_tool(self) -> dict[str, Any]:
        """Returns the definition as a request to OpenAI's Responses API contains it.

        Source: platform.openai.com/docs/api-reference/responses/create#responses-create-tools
        """
        return {"type": "function", **self.to_openai_tool()["function"], "strict": False}

    def to_mcp_tool(self) -> dict[str, Any]:
        """Returns the definition as an MCP server lists it.

        Source: modelcontextprotocol.io/specification/2025-06-18/server/tools#tool
        """
        return {"name": self.name, "description": self.description, "inputSchema": self.parameters}


class RawToolCall(FrozenModel):
    """A tool call as the model wrote it, not yet validated."""

    id: str
    name: str
    arguments: str
    """The arguments as the model sent them. They should be JSON text, but may be invalid."""


class SystemMessage(FrozenModel):
    role: Literal["system"] = "system"
    text: str


class UserMessage(FrozenModel):
    role: Literal["user"] = "user"
    text: str
    images: tuple[ImageData, ...] = ()
    """Images placed after the text, for models with vision."""


class AssistantMessage(FrozenModel):
    role: Literal["assistant"] = "assistant"
    text: str
    tool_calls: tuple[RawToolCall, ...] = ()
    reasoning: tuple[dict[str, Any], ...] = ()
    model: str = ""
    """Name of the model that wrote the message. An empty string allows any model to read the reasoning."""

    def get_reasoning_for(self, model_name: str) -> tuple[dict[str, Any], ...]:
        """Returns the reasoning blocks if the model `model_name` wrote them, and no blocks otherwise. The
        blocks are signed or encrypted, so only the model that wrote them can use them.
        """
        return self.reasoning if self.model in ("", model_name) else ()


class ToolMessage(FrozenModel):
    role: Literal["tool"] = "tool"
    tool_call_id: str
    """Id of the call that this message answers."""
    text: str


ChatMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class Reply(FrozenModel):
    text: str
    tool_calls: tuple[RawToolCall, ...]
    usage: ReplyUsage
    reasoning: tuple[dict[str, Any], ...] = ()
    truncated: bool = False
    """True if the model reached its output limit. In that case, the last tool call may be incomplete."""


@dataclass(frozen=True)
class ProviderConnection:
    """How to reach the provider of a model."""

    base_url: str | None = None
    """URL of the endpoint; None for the provider's default."""
    api_key: SecretStr | None = None
    """The provider's key. If it is None, litellm reads the provider's environment variable."""
    timeout: float = 240.0
    """Time limit in seconds, from the request to the last byte of the reply."""
    ca_bundle: Path | None = None
    """File with CA certificates (PEM) that replace the system's certificates."""


class Model(Protocol):
    """A language model, which replies to a conversation.

    Raises ModelError, whose `retryable` says whether the same request may succeed later. Raises
    ModelAccessDenied if the provider rejects the key, model name or account. Raises ContextOverflow if the
    prompt is too long.
    """

    @property
    def name(self) -> str: ...

    @property
    def supports_vision(self) -> bool:
        """True if the model accepts images. If it is False, a line of text replaces each image."""

    @property
    def context_window(self) -> int | None:
        """Maximum prompt length in tokens; None if it is unknown."""

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply: ...


def render_omitted_images(count: int) -> str:
    """Returns the text that replaces images for a model without vision."""
    return f"[images omitted: {count}; this model has no vision]"


class WrapperModel:
    """Base class of models that wrap another model; subclasses implement `reply`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def supports_vision(self) -> bool:
        return self._model.supports_vision

    @property
    def context_window(self) -> int | None:
        return self._model.context_window
