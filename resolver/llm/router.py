"""Which of several models a conversation goes to: by what is in it, and by what it is for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from resolver.llm.model import FromUser, Message, Model, Reply, ToolSpec

Purpose = Literal["act", "condense", "browse", "judge", "senses"]


class Router:
    """Several models behind one name: `choose` says by its key which of them a conversation goes to.

    Each reply's usage names the model that gave it. Its own name is the first one's.
    """

    def __init__(self, models: Mapping[str, Model], choose: Callable[[Sequence[Message]], str]) -> None:
        self._models = dict(models)
        self._choose = choose

    @property
    def name(self) -> str:
        return next(iter(self._models.values())).name

    @property
    def sees(self) -> bool:
        return any(model.sees for model in self._models.values())

    @property
    def window(self) -> int | None:
        """What all of them take, as far as it is known."""
        return min(filter(None, (model.window for model in self._models.values())), default=None)

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        return await self._models[self._choose(messages)].reply(messages, tools)


def by_pictures(model: Model, seeing: Model) -> Router:
    """`seeing` for conversations in which there is a picture, `model` for the others."""

    def choose(messages: Sequence[Message]) -> str:
        shown = any(isinstance(message, FromUser) and message.pictures for message in messages)
        return "seeing" if shown else "model"

    return Router({"model": model, "seeing": seeing}, choose)


@dataclass(frozen=True)
class Models:
    """The models of a run, by what they are for."""

    act: Model
    """Works on the issue."""
    condense: Model
    """Sums up what a conversation no longer has room for."""
    browse: Model
    """Works in the browser."""
    judge: Model
    """Gives a second opinion."""
    senses: Model
    """Looks at pictures, and listens."""

    @classmethod
    def of(cls, act: Model, others: Mapping[Purpose, Model]) -> "Models":
        """What has no model of its own is done by the one that acts."""
        return cls(
            act=act,
            condense=others.get("condense", act),
            browse=others.get("browse", act),
            judge=others.get("judge", act),
            senses=others.get("senses", act),
        )
