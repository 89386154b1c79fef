"""The seam to a language model."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from resolver.events import Usage
from runtime.frozen import Frozen
from runtime.observations import Picture


class ToolSpec(Frozen):
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments, an object."""

    def as_openai(self) -> dict[str, Any]:
        """In the form of OpenAI's function tools.

        Source: platform.openai.com/docs/guides/function-calling
        """
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


class ToolCall(Frozen):
    """A call as the model wrote it, not yet checked."""

    id: str
    name: str
    arguments: str
    """JSON text, or what the model sent instead of it."""


class System(Frozen):
    role: Literal["system"] = "system"
    text: str


class FromUser(Frozen):
    role: Literal["user"] = "user"
    text: str
    pictures: tuple[Picture, ...] = ()
    """Shown after the text, to models that see."""


class FromModel(Frozen):
    role: Literal["assistant"] = "assistant"
    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: tuple[dict[str, Any], ...] = ()
    model: str = ""
    """Name of the model that said it; empty: whoever reads it."""

    def reasoning_for(self, reader: str) -> tuple[dict[str, Any], ...]:
        """The reasoning that this model gets back: its own. Signed or encrypted, no other could read it."""
        return self.reasoning if self.model in ("", reader) else ()


class FromTool(Frozen):
    role: Literal["tool"] = "tool"
    call: str
    """Id of the call that this answers."""
    text: str


Message = Annotated[System | FromUser | FromModel | FromTool, Field(discriminator="role")]


class Reply(Frozen):
    """One reply of a model."""

    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    reasoning: tuple[dict[str, Any], ...] = ()
    truncated: bool = False
    """The model ran into its output limit; the last call may be cut off."""


class Model(Protocol):
    """Answers a conversation.

    Raises ModelError (`retryable` says whether the same request may work later), ModelRefused for a key, name
    or account that the provider does not accept, ContextOverflow for a prompt that is too long.
    """

    @property
    def name(self) -> str: ...

    @property
    def sees(self) -> bool:
        """Whether it is shown pictures; for one that does not see, a line of text stands in their place."""

    @property
    def window(self) -> int | None:
        """Tokens of a prompt that it takes; None: unknown."""

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply: ...


def unseen(pictures: int) -> str:
    """What a model that does not see is told in the place of pictures."""
    return f"[pictures left out: {pictures}; this model does not see]"


class Around:
    """What every wrapper of one model is: under its name, with another `reply`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def sees(self) -> bool:
        return self._model.sees

    @property
    def window(self) -> int | None:
        return self._model.window
