"""Opens, adopts and replaces the agent's sandbox during a run."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from patchwright.runtime.errors import SandboxDiskFull, SandboxLost
from patchwright.runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)

MAX_REBUILDS = 3
"""Number of times that a run replaces a lost sandbox. If the sandbox is lost again, the run fails, and the
job queue decides whether the job is retried.
"""
MAX_REASON_LENGTH = 300  # characters

T = TypeVar("T")


@dataclass(frozen=True)
class SandboxSession:
    """A sandbox, with information about the sandbox that the run used before."""

    sandbox: Sandbox
    is_adopted: bool = False
    """True if a killed process left this sandbox behind, with all its state."""
    loss_reason: str | None = None
    """Why the previous sandbox was lost; None if this process has not lost a sandbox."""


async def run_in_sandbox(
    sandboxes: Sandboxes, name: str, work: Callable[[SandboxSession], Awaitable[T]], *, resumed: bool
) -> T:
    """Calls `work` with a sandbox of this name and returns its result. If the sandbox is lost, calls `work`
    again with a new sandbox.

    `resumed` is True if a killed process may have left a sandbox that can be used again. Raises SandboxError,
    and every error that `work` raises.
    """
    loss_reason: str | None = None
    for rebuilds_left in reversed(range(MAX_REBUILDS + 1)):
        try:
            async with _open_session(
                sandboxes, name, loss_reason, adopt=resumed and loss_reason is None
            ) as session:
                return await work(session)
        except (SandboxLost, SandboxDiskFull) as error:
            if not rebuilds_left:
                raise
            loss_reason = str(error)[:MAX_REASON_LENGTH]
            logger.warning("sandbox lost, replaced", extra={"sandbox": name, "error": loss_reason})
    raise AssertionError("the last iteration returns or raises")


@asynccontextmanager
async def _open_session(
    sandboxes: Sandboxes, name: str, loss_reason: str | None, *, adopt: bool
) -> AsyncIterator[SandboxSession]:
    if adopt:
        async with sandboxes.adopt(name) as adopted:
            if adopted is not None:
                yield SandboxSession(adopted, is_adopted=True)
                return
    async with sandboxes.open(name, online=True, adoptable=True) as new:
        yield SandboxSession(new, loss_reason=loss_reason)
