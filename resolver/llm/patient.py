"""Asks a model again when it may answer later."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from resolver.errors import ModelError
from resolver.llm.bill import wasted, with_wasted
from resolver.llm.model import Around, Message, Model, Reply, ToolSpec

logger = logging.getLogger(__name__)

FIRST_WAIT = 1.0  # seconds; doubled with each further try
LONGEST_WAIT = 60.0  # seconds, unless the provider asks for more
SHORTEST_TRY = 30.0  # seconds that another try gets, however little of the budget is left


class Patient(Around):
    """A model that waits and tries again after failures that pass.

    `budget`: seconds for one reply, failed requests and waiting together; after a first failure there is one
    more try at least, and none after the first outlasts the budget by more than SHORTEST_TRY. A provider that asks
    for a longer wait is believed: the failure is raised at once. What failed tries cost is counted with the reply.
    `sleep` and `jitter` (0 to 1) are there to be replaced.
    """

    def __init__(
        self,
        model: Model,
        *,
        budget: float = 300.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(model)
        self._budget = budget
        self._sleep = sleep
        self._jitter = jitter

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        spent = 0.0
        failures: list[ModelError] = []
        while True:
            began = time.monotonic()
            try:
                left = round(max(SHORTEST_TRY, self._budget - spent), 1) if failures else None
                return with_wasted(await self._try(messages, tools, left), failures)
            except ModelError as exc:
                failures.append(exc)
                spent += time.monotonic() - began
                wait = self._wait(exc, len(failures))
                over = wait > self._budget if len(failures) == 1 else spent + wait > self._budget
                if over or not exc.retryable:
                    raise _told(exc, failures, spent) from exc
                logger.warning(
                    "model asked again",
                    extra={
                        "model": self.name,
                        "try": len(failures),
                        "wait": round(wait, 1),
                        "error": str(exc),
                    },
                )
            await self._sleep(wait)
            spent += wait

    async def _try(self, messages: Sequence[Message], tools: Sequence[ToolSpec], left: float | None) -> Reply:
        try:
            async with asyncio.timeout(left):
                return await self._model.reply(messages, tools)
        except TimeoutError as exc:
            raise ModelError(f"The model {self.name} gave no reply within {left:g} s.") from exc

    def _wait(self, exc: ModelError, tries: int) -> float:
        """Seconds: what the provider asks for, or twice as long each time; a little off, so that many part."""
        if exc.retry_after is not None:
            return exc.retry_after + self._jitter()
        return float(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)) * (0.5 + self._jitter() / 2))


def _told(exc: ModelError, failures: Sequence[ModelError], seconds: float) -> ModelError:
    """The last failure, with how often it was tried, how long to wait from now on, and what all tries cost."""
    words = [str(exc)]
    if exc.retryable and len(failures) > 1:
        words.append(f"It was asked {len(failures)} times in {seconds:.0f} s.")
    if exc.retryable and exc.retry_after:
        words.append(f"It wants to be asked again in {exc.retry_after:,.0f} s.")
    if len(words) == 1:
        return exc.again(words[0], wasted(failures))
    return exc.again(" ".join([words[0].rstrip(".") + ".", *words[1:]]), wasted(failures))
