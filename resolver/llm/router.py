"""Chooses the model for a conversation, by the conversation's content or purpose."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.llm.model import ChatMessage, Model, Reply, ToolSpec, UserMessage

ModelPurpose = Literal["act", "condense", "browse", "review", "vision"]


class ModelRouter:
    """Selects one of several models for each conversation. `choose` returns the key of the selected model.

    The usage of each reply contains the name of the selected model. The router has the same name as its first
    model.
    """

    def __init__(self, models: Mapping[str, Model], choose: Callable[[Sequence[ChatMessage]], str]) -> None:
        self._models = dict(models)
        self._choose = choose

    @property
    def name(self) -> str:
        return next(iter(self._models.values())).name

    @property
    def supports_vision(self) -> bool:
        return any(model.supports_vision for model in self._models.values())

    @property
    def context_window(self) -> int | None:
        """The smallest known context window of the models, in tokens."""
        return min(filter(None, (model.context_window for model in self._models.values())), default=None)

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        return await self._models[self._choose(messages)].reply(messages, tools)


def route_by_images(model: Model, vision_model: Model) -> ModelRouter:
    """Routes conversations with images to `vision_model`, and all others to `model`."""

    def choose(messages: Sequence[ChatMessage]) -> str:
        has_images = any(isinstance(message, UserMessage) and message.images for message in messages)
        return "vision" if has_images else "default"

    return ModelRouter({"default": model, "vision": vision_model}, choose)


@dataclass(frozen=True)
class RunModels:
    """The models of a run, by purpose."""

    act: Model
    """Works on the issue."""
    condense: Model
    """Summarizes the older part of a long conversation."""
    browse: Model
    """Works in the browser."""
    review: Model
    """Reviews the patch."""
    vision: Model
    """Describes images and video frames."""

    @classmethod
    def with_default(cls, default: Model, others: Mapping[ModelPurpose, Model]) -> "RunModels":
        """Returns the models of a run. If no model is given for a purpose, `default` is used."""
        return cls(
            act=default,
            condense=others.get("condense", default),
            browse=others.get("browse", default),
            review=others.get("review", default),
            vision=others.get("vision", default),
        )

    def wrap(self, wrapper: Callable[[Model], Model]) -> "RunModels":
        """Applies `wrapper` to each model and returns the wrapped models."""
        return RunModels(**{purpose: wrapper(model) for purpose, model in vars(self).items()})
