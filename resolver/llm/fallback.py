"""Goes on with another model when one fails."""

import logging
from collections.abc import Sequence

from resolver.errors import ContextOverflow, ModelError, ModelRefused
from resolver.llm.bill import wasted, with_wasted
from resolver.llm.model import FromModel, Message, Model, Reply, ToolSpec

logger = logging.getLogger(__name__)


class Fallback:
    """The first of several models, and the next one when it fails for a reason that another may not have.

    A conversation stays with the model that spoke last in it: so its cache and its reasoning are of use, and a run
    that is resumed elsewhere goes on as it was. A prompt that is too long is not handed on: it has to become
    shorter. When all fail, the failure is a ModelRefused only if every provider refused.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        assert models, "a chain has one model at least"
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def sees(self) -> bool:
        return self._models[0].sees

    @property
    def window(self) -> int | None:
        """What all of them take, as far as it is known."""
        return min(filter(None, (model.window for model in self._models)), default=None)

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        failures: list[ModelError] = []
        chain = self._from_the_last_speaker(messages)
        for model, following in zip(chain, (*chain[1:], None), strict=True):
            try:
                return with_wasted(await model.reply(messages, tools), failures)
            except ContextOverflow as exc:
                raise exc.again(str(exc), wasted([*failures, exc])) from exc
            except ModelError as exc:
                failures.append(exc)
                if following is not None:
                    logger.warning(
                        "model fell back",
                        extra={"from_model": model.name, "to_model": following.name, "error": str(exc)},
                    )
        raise _all_failed(failures) from failures[-1]

    def _from_the_last_speaker(self, messages: Sequence[Message]) -> tuple[Model, ...]:
        said = (message.model for message in reversed(messages) if isinstance(message, FromModel))
        last = next(said, self.name)
        names = [model.name for model in self._models]
        start = names.index(last) if last in names else 0
        return self._models[start:] + self._models[:start]


def _all_failed(failures: Sequence[ModelError]) -> ModelError:
    if len(failures) == 1:
        return failures[0]
    passing = [failure for failure in failures if not isinstance(failure, ModelRefused)]
    said = " ".join(str(failure) for failure in failures)
    return (passing or failures)[-1].again(
        f"None of {len(failures)} models answers. {said}", wasted(failures)
    )
