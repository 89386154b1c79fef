"""Asks a model again when it may answer later."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from resolver.errors import ModelError
from resolver.llm.model import Message, Model, Reply, ToolSpec

logger = logging.getLogger(__name__)

FIRST_WAIT = 1.0  # seconds; doubled with each further try
LONGEST_WAIT = 60.0  # seconds, unless the provider asks for more


class Patient:
    """A model that waits and tries again after failures that pass.

    `budget`: seconds for one reply, failed requests and waiting together; after a first failure there is one
    more try at least. A provider that asks for a longer wait is believed: the failure is raised at once.
    `sleep` and `jitter` (0 to 1) are there to be replaced.
    """

    def __init__(
        self,
        model: Model,
        *,
        budget: float = 600.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._model = model
        self._budget = budget
        self._sleep = sleep
        self._jitter = jitter

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def sees(self) -> bool:
        return self._model.sees

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        spent = 0.0
        tries = 0
        while True:
            tries += 1
            began = time.monotonic()
            try:
                return await self._model.reply(messages, tools)
            except ModelError as exc:
                spent += time.monotonic() - began
                wait = self._wait(exc, tries)
                over = wait > self._budget if tries == 1 else spent + wait > self._budget
                if over or not exc.retryable:
                    raise _with_tries(exc, tries, spent) from exc
                logger.warning(
                    "model asked again",
                    extra={"model": self.name, "try": tries, "wait": round(wait, 1), "error": str(exc)},
                )
            await self._sleep(wait)
            spent += wait

    def _wait(self, exc: ModelError, tries: int) -> float:
        """Seconds: what the provider asks for, or twice as long each time; a little off, so that many part."""
        if exc.retry_after is not None:
            return exc.retry_after + self._jitter()
        return float(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)) * (0.5 + self._jitter() / 2))


def _with_tries(exc: ModelError, tries: int, seconds: float) -> ModelError:
    """The same failure, saying how often it was tried."""
    if tries == 1 or not exc.retryable:
        return exc
    return ModelError(
        f"{exc} It was asked {tries} times in {seconds:.0f} s.",
        retryable=exc.retryable,
        retry_after=exc.retry_after,
    )
