"""The agent's sandbox in the course of a run: adopted or opened, and opened again when it is lost."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from runtime.errors import DiskFull, SandboxLost
from runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)

REBUILDS = 3
"""Times that a lost sandbox is replaced in one go; then the queue decides about another try."""
MAX_REASON = 300  # characters

T = TypeVar("T")


@dataclass(frozen=True)
class Bench:
    """A sandbox to work in, and how it came about."""

    sandbox: Sandbox
    adopted: bool = False
    """It is the one that a killed process had, with all that is in it."""
    lost: str | None = None
    """Why the one before it is gone, if this process saw that."""


async def at_bench(
    sandboxes: Sandboxes, name: str, work: Callable[[Bench], Awaitable[T]], *, resumed: bool
) -> T:
    """What `work` makes in a sandbox of this name; done again, in a new one, when the sandbox is lost.

    `resumed`: a process that was killed may have left one. Raises what `work` raises, and SandboxError.
    """
    lost: str | None = None
    for left in reversed(range(REBUILDS + 1)):
        try:
            async with _bench(sandboxes, name, lost, adopt=resumed and lost is None) as bench:
                return await work(bench)
        except (SandboxLost, DiskFull) as error:
            if not left:
                raise
            lost = str(error)[:MAX_REASON]
            logger.warning("sandbox lost, built anew", extra={"sandbox": name, "error": lost})
    raise AssertionError("the last turn returns or raises")


@asynccontextmanager
async def _bench(sandboxes: Sandboxes, name: str, lost: str | None, *, adopt: bool) -> AsyncIterator[Bench]:
    if adopt:
        async with sandboxes.adopt(name) as left:
            if left is not None:
                yield Bench(left, adopted=True)
                return
    async with sandboxes.open(name, online=True, kept=True) as new:
        yield Bench(new, lost=lost)
