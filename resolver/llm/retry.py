"""Retries model requests after temporary failures."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from patchwright.resolver.errors import ModelConnectionFailed, ModelError, ModelUnreachable, NotAModel
from patchwright.resolver.llm.model import AssistantMessage, ChatMessage, Model, Reply, ToolSpec, WrapperModel
from patchwright.resolver.llm.pricing import add_failed_usage, sum_failed_usage
from patchwright.resolver.settings.settings import environment_variable

logger = logging.getLogger(__name__)

FIRST_WAIT = 1.0  # seconds; doubled with each attempt
MAX_WAIT = 60.0  # seconds, unless the provider asks for a longer wait
MIN_ATTEMPT_SECONDS = 30.0  # seconds; minimum for each retry, even if less time is left
MAX_CONNECT_SECONDS = 5.0  # seconds; for retries if the endpoint was not reached before the first reply


class RetryingModel(WrapperModel):
    """Wraps a model and retries requests that fail temporarily.

    `max_seconds` limits the time for one reply, including failed requests and waits. After the first temporary
    failure, there is always one retry, even if no time is left. A retry may take all of the remaining time, but
    at least MIN_ATTEMPT_SECONDS. If the provider asks for a longer wait than `max_seconds`, the failure is
    raised at once.

    If the first request does not reach the endpoint, ModelUnreachable is raised within MAX_CONNECT_SECONDS, because the
    URL is probably wrong. If another service answers, such as a web server, ModelUnreachable is raised at once.
    `setting` is the name of the setting that contains `max_seconds`, for the log. The usage of failed attempts is
    added to the reply. Tests can replace `sleep` and `jitter` (0 to 1).
    """

    def __init__(
        self,
        model: Model,
        *,
        max_seconds: float = 300.0,
        setting: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(model)
        self._max_seconds = max_seconds
        self._setting = setting
        self._sleep = sleep
        self._jitter = jitter
        self._has_replied = False

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        elapsed = 0.0
        failures: list[ModelError] = []
        is_first = not self._has_replied and not any(isinstance(each, AssistantMessage) for each in messages)
        while True:
            started_at = time.monotonic()
            try:
                timeout = (
                    round(max(MIN_ATTEMPT_SECONDS, self._max_seconds - elapsed), 1) if failures else None
                )
                reply = add_failed_usage(await self._attempt(messages, tools, timeout), failures)
                self._has_replied = True
                return reply
            except ModelError as exc:
                failures.append(exc)
                elapsed += time.monotonic() - started_at
                wait = self._get_wait(exc, len(failures))
                connect_limit = self._get_connect_limit(exc, is_first)
                if connect_limit is not None and elapsed + wait > connect_limit:
                    raise ModelUnreachable(str(exc), usage=sum_failed_usage(failures)) from exc
                is_over_limit = (
                    wait > self._max_seconds if len(failures) == 1 else elapsed + wait > self._max_seconds
                )
                if is_over_limit or not exc.retryable:
                    raise _build_final_error(exc, failures, elapsed) from exc
                logger.warning(
                    "model request retried",
                    extra={
                        "model": self.name,
                        "try": len(failures),
                        "wait": round(wait, 1),
                        "elapsed": round(elapsed, 1),
                        "limit": self._describe_limit(connect_limit),
                        "error": str(exc),
                    },
                )
            await self._sleep(wait)
            elapsed += wait

    async def _attempt(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout: float | None
    ) -> Reply:
        try:
            async with asyncio.timeout(timeout):
                return await self._model.reply(messages, tools)
        except TimeoutError as exc:
            raise ModelError(f"The model {self.name} did not reply within {timeout:g} s.") from exc

    def _get_connect_limit(self, exc: ModelError, is_first: bool) -> float | None:
        """Returns the seconds after which the URL counts as wrong; None for a failure that has another cause."""
        if isinstance(exc, NotAModel) and not self._has_replied:
            return 0.0  # Later, it may be a proxy that fails for a moment.
        return MAX_CONNECT_SECONDS if is_first and isinstance(exc, ModelConnectionFailed) else None

    def _describe_limit(self, connect_limit: float | None) -> str:
        """Returns how long requests are retried, and the setting that contains this limit."""
        if connect_limit is not None:
            return f"{connect_limit:g} s"
        name = f" ({environment_variable(self._setting)})" if self._setting else ""
        return f"{self._max_seconds:g} s{name}"

    def _get_wait(self, exc: ModelError, attempts: int) -> float:
        """Returns the seconds to wait. This is the provider's Retry-After or an exponential backoff. The
        result is partly random, so that clients do not retry simultaneously.
        """
        if exc.retry_after is not None:
            return exc.retry_after + self._jitter()
        return float(min(MAX_WAIT, FIRST_WAIT * 2 ** (attempts - 1)) * (0.5 + self._jitter() / 2))


def _build_final_error(exc: ModelError, failures: Sequence[ModelError], seconds: float) -> ModelError:
    """Returns the last failure `exc`, to which it adds the number of attempts, the wait that the provider
    requested, and the total usage.
    """
    sentences = [str(exc)]
    if exc.retryable and len(failures) > 1:
        sentences.append(f"Tried {len(failures)} times in {seconds:.0f} s.")
    if exc.retryable and exc.retry_after:
        sentences.append(f"The provider asks for a wait of {exc.retry_after:,.0f} s.")
    if len(sentences) == 1:
        return exc.with_message(sentences[0], sum_failed_usage(failures))
    return exc.with_message(
        " ".join([sentences[0].rstrip(".") + ".", *sentences[1:]]), sum_failed_usage(failures)
    )
