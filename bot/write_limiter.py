"""Limits the rate of writes to GitHub, and orders them by priority.

GitHub's limits apply to each installation or token, across all processes. SharedWriteLimiter
(bot/redis/shared_write_limiter.py) limits all processes together. LocalWriteLimiter limits a single process.
"""

import asyncio
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from secrets import token_hex
from typing import Protocol

from patchwright.bot.errors import Preempted
from patchwright.bot.thread_forge import ThreadForge
from patchwright.resolver.authorization import Permission
from patchwright.resolver.domain import Repo, User
from patchwright.resolver.errors import RateLimited

# Time between two calls of `try_acquire` for a ticket that is not first in the queue.
QUEUE_POLL_SECONDS = 0.05
# Time after which a lock expires. It must not be longer than the time after which another worker takes over
# the jobs of a dead worker.
LOCK_SECONDS = 30.0
# Maximum time between two calls of `try_acquire` for a ticket. Each call shows that the caller is alive.
MAX_WAIT_SECONDS = 1.0


class Priority(IntEnum):
    """Priority of a write. The write with the smallest value goes first."""

    ACKNOWLEDGMENT = 0
    """The priority of a write that tells a person that their request arrived."""
    WORK = 1
    PROGRESS = 2
    """The priority of an update that soon becomes outdated. Such an update is not queued. It is sent only if no
    other write is waiting.
    """


_priority: ContextVar[Priority] = ContextVar("urgency", default=Priority.WORK)


@contextlib.contextmanager
def write_priority(priority: Priority) -> Iterator[None]:
    """Sets the priority of all writes that happen in the block."""
    token = _priority.set(priority)
    try:
        yield
    finally:
        _priority.reset(token)


def current_priority() -> Priority:
    """Returns the priority of writes in the current context."""
    return _priority.get()


class WriteLimiter(Protocol):
    """Queues writes separately for each installation or token (`credential`). No method raises."""

    async def try_acquire(self, credential: str, ticket: str, priority: Priority, interval: float) -> float:
        """Returns 0 if the caller with this ticket may write now. Otherwise returns how many seconds the caller
        must wait before the next call.

        A result of 0 blocks other tickets for `interval` seconds. A ticket gets its place in the queue with its
        first call. Tickets with the priority PROGRESS are not queued.
        """

    async def withdraw(self, credential: str, ticket: str) -> None:
        """Removes the ticket from the queue."""

    async def block(self, credential: str, seconds: float) -> None:
        """Blocks all writes for this many seconds, because GitHub requires it."""

    async def blocked_seconds(self, credential: str) -> float:
        """Returns for how many more seconds writes are blocked; 0 if writes are not blocked."""

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Returns a lock with this name. All processes that share the limiter use the same lock. Hold it while
        you check whether something exists on GitHub and, if not, create it.

        If the holder of a lock dies, the lock expires after LOCK_SECONDS.
        """


async def raise_if_blocked(limiter: WriteLimiter, credential: str) -> None:
    """Raises RateLimited while writes to GitHub are blocked."""
    if (blocked_seconds := await limiter.blocked_seconds(credential)) > 0:
        raise RateLimited(
            "GitHub asked to wait before the next write",
            datetime.now(UTC) + timedelta(seconds=blocked_seconds),
        )


async def acquire(limiter: WriteLimiter, credential: str, interval: float) -> None:
    """Waits until a write is allowed.

    Raises RateLimited if writes are blocked, and Preempted if a write of priority PROGRESS would have to
    wait.
    """
    priority, ticket = current_priority(), token_hex(8)
    try:
        while (wait := await limiter.try_acquire(credential, ticket, priority, interval)) > 0:
            if priority is Priority.PROGRESS:
                raise Preempted(wait)
            await raise_if_blocked(limiter, credential)
            await asyncio.sleep(min(wait, MAX_WAIT_SECONDS))
    finally:
        await limiter.withdraw(credential, ticket)


class LocalWriteLimiter:
    """Limits the writes of this process."""

    def __init__(self) -> None:
        self._next_write: dict[str, float] = {}
        self._blocked_until: dict[str, float] = {}
        self._waiting: defaultdict[str, dict[str, tuple[Priority, int]]] = defaultdict(dict)
        self._sequence = itertools.count()

    async def try_acquire(self, credential: str, ticket: str, priority: Priority, interval: float) -> float:
        now, waiting = time.monotonic(), self._waiting[credential]
        wait = max(self._next_write.get(credential, 0.0), self._blocked_until.get(credential, 0.0)) - now
        if priority is Priority.PROGRESS:
            is_first = not waiting
        else:
            waiting.setdefault(ticket, (priority, next(self._sequence)))
            is_first = min(waiting, key=waiting.__getitem__) == ticket
        if wait > 0:
            return wait
        if not is_first:
            return QUEUE_POLL_SECONDS
        waiting.pop(ticket, None)
        self._next_write[credential] = now + interval
        return 0.0

    async def withdraw(self, credential: str, ticket: str) -> None:
        self._waiting[credential].pop(ticket, None)

    async def block(self, credential: str, seconds: float) -> None:
        self._blocked_until[credential] = max(
            self._blocked_until.get(credential, 0.0), time.monotonic() + seconds
        )

    async def blocked_seconds(self, credential: str) -> float:
        return max(self._blocked_until.get(credential, 0.0) - time.monotonic(), 0.0)

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()


class PriorityForge:
    """Wraps a client of GitHub (`forge`) so that its writes have the priority ACKNOWLEDGMENT. This is for
    replies that a person waits for.
    """

    def __init__(self, forge: ThreadForge) -> None:
        self._forge = forge

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        return await self._forge.get_permission(repo, user)

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        with write_priority(Priority.ACKNOWLEDGMENT):
            return await self._forge.upsert_comment(repo, number, tag, body, in_progress=in_progress)

    async def react(self, repo: Repo, resource_path: tuple[str, ...]) -> None:
        with write_priority(Priority.ACKNOWLEDGMENT):
            await self._forge.react(repo, resource_path)
