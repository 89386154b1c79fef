"""Refuses a model that cannot do the work, before the first request of a run."""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from patchwright.resolver.errors import ModelError, ModelUnsuitable
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import AssistantMessage, ChatMessage, Model, Reply, ToolSpec, WrapperModel
from patchwright.resolver.llm.model_table import get_model_info
from patchwright.resolver.llm.pricing import sum_usage
from patchwright.resolver.llm.probe import ProbeResult, probe_model
from patchwright.resolver.llm.text_tool_model import TextToolModel

MIN_CONTEXT_WINDOW = 12_000
"""Tokens. A conversation may use 70% of the context window, and the first prompt of a run needs nearly 8,000 tokens."""
VALID_SECONDS = 7 * 24 * 3600  # for which a passed probe counts, because a server may change its model


class CheckedModel(WrapperModel):
    """A model of an agent. The first request with tools raises ModelUnsuitable if the model's context window is too
    small or if the model cannot call tools.

    litellm's model table answers both questions for most models. A model that the table does not know gets a probe
    first, whose usage is added to the first reply. `directory` records the passed probes.
    """

    def __init__(
        self,
        model: Model,
        tool_calling: Literal["native", "text"],
        directory: Path,
        *,
        base_url: str | None = None,
        is_small_window_allowed: bool = False,
    ) -> None:
        super().__init__(TextToolModel(model) if tool_calling == "text" else model)
        self._bare_model = model
        self._tool_calling = tool_calling
        self._is_small_window_allowed = is_small_window_allowed
        name = hashlib.sha256(f"{model.name} {base_url} {tool_calling}".encode()).hexdigest()
        self._passed = directory / name

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        usage = await self._check(messages) if tools else None
        if usage is None:
            return await self._model.reply(messages, tools)
        try:
            reply = await self._model.reply(messages, tools)
        except ModelError as exc:
            raise exc.with_message(str(exc), sum_usage([usage, exc.usage] if exc.usage else [usage])) from exc
        return reply.model_copy(update={"usage": sum_usage([usage, reply.usage])})

    async def _check(self, messages: Sequence[ChatMessage]) -> ReplyUsage | None:
        """Returns the usage of the probe; None if no probe was necessary. Raises ModelUnsuitable."""
        window = self.context_window
        if window is not None and window < MIN_CONTEXT_WINDOW and not self._is_small_window_allowed:
            raise ModelUnsuitable(
                f"The context window of {self.name} is too small: it has {window:,} tokens, and a run needs "
                f"{MIN_CONTEXT_WINDOW:,}. Choose another model (PATCHWRIGHT_MODEL). If the window is larger, set "
                "PATCHWRIGHT_MAX_CONTEXT_TOKENS."
            )
        if self._is_known_to_call_tools(messages):
            return None
        result = await probe_model(self._bare_model, self._tool_calling)
        if result.tool_calling == self._tool_calling:
            self._passed.parent.mkdir(parents=True, exist_ok=True)
            self._passed.touch()
        elif result.is_conclusive:
            raise ModelUnsuitable(_describe_problem(result), usage=result.usage)
        usage = result.usage  # A usage without tokens would only make the cost of the reply unknown.
        return usage if usage and (usage.prompt_tokens or usage.completion_tokens) else None

    def _is_known_to_call_tools(self, messages: Sequence[ChatMessage]) -> bool:
        if get_model_info(self.name).get("supports_function_calling"):
            return True
        replies = (message for message in messages if isinstance(message, AssistantMessage))
        if any(reply.tool_calls and reply.model == self.name for reply in replies):
            return True
        try:
            return time.time() - self._passed.stat().st_mtime < VALID_SECONDS
        except OSError:
            return False


def _describe_problem(result: ProbeResult) -> str:
    if result.tool_calling == "text":
        return f"The model {result.model} calls tools only as text. Set PATCHWRIGHT_TOOL_CALLING to text."
    return (
        f"The model {result.model} cannot do the work, so nothing was started: {result.reason.rstrip('.')}. "
        "Choose another model (PATCHWRIGHT_MODEL), or test this one with `patchwright probe`."
    )
