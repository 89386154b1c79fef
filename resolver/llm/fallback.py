"""Calls another model when a model fails."""

import logging
from collections.abc import Sequence

from patchwright.resolver.errors import ContextOverflow, ModelAccessDenied, ModelError
from patchwright.resolver.llm.model import AssistantMessage, ChatMessage, Model, Reply, ToolSpec
from patchwright.resolver.llm.pricing import add_failed_usage, sum_failed_usage

logger = logging.getLogger(__name__)


class FallbackModel:
    """Tries several models in order until one replies.

    A conversation stays with the model that replied last, even in a resumed run. This model can then use its
    prompt cache and its earlier reasoning. ContextOverflow is raised at once, because the caller must shorten
    the prompt. If every provider denies access, ModelAccessDenied is raised. If all models fail for other
    reasons, another ModelError is raised.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        assert models, "at least one model is required"
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def supports_vision(self) -> bool:
        return self._models[0].supports_vision

    @property
    def context_window(self) -> int | None:
        """The smallest known context window of the models, in tokens."""
        return min(filter(None, (model.context_window for model in self._models)), default=None)

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        failures: list[ModelError] = []
        chain = self._order_models(messages)
        for model, next_model in zip(chain, (*chain[1:], None), strict=True):
            try:
                return add_failed_usage(await model.reply(messages, tools), failures)
            except ContextOverflow as exc:
                raise exc.with_message(str(exc), sum_failed_usage([*failures, exc])) from exc
            except ModelError as exc:
                failures.append(exc)
                if next_model is not None:
                    logger.warning(
                        "model fell back",
                        extra={"from_model": model.name, "to_model": next_model.name, "error": str(exc)},
                    )
        raise _combine_failures(failures) from failures[-1]

    def _order_models(self, messages: Sequence[ChatMessage]) -> tuple[Model, ...]:
        previous_models = (
            message.model for message in reversed(messages) if isinstance(message, AssistantMessage)
        )
        last_model = next(previous_models, self.name)
        names = [model.name for model in self._models]
        start = names.index(last_model) if last_model in names else 0
        return self._models[start:] + self._models[:start]


def _combine_failures(failures: Sequence[ModelError]) -> ModelError:
    if len(failures) == 1:
        return failures[0]
    other_failures = [failure for failure in failures if not isinstance(failure, ModelAccessDenied)]
    details = " ".join(str(failure) for failure in failures)
    return (other_failures or failures)[-1].with_message(
        f"None of {len(failures)} models replied. {details}", sum_failed_usage(failures)
    )
