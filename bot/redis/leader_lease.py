"""Stores which worker polls GitHub, and up to which time each repository has been polled."""

import asyncio
import contextlib
from collections.abc import Awaitable
from datetime import datetime
from typing import cast

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.connection import RedisStore, parse_stored
from patchwright.runtime.frozen_model import FrozenModel

LEADER_KEY = "patchwright:poll_leader"
CURSORS_KEY = "patchwright:poll_cursors"
STATE_PREFIX = "patchwright:poll_state:"
LEASE_MS = 6_000  # another worker may take over the lease if it was not renewed for this long
RENEW_SECONDS = 2.0
FAILURE_NAME = "failure"


class PollFailure(FrozenModel):
    """The reason why polling GitHub fails."""

    reason: str
    since: datetime


class LeaderLease(RedisStore):
    """Stores the lease of the leader, and the state of its polling. The leader is the worker that polls
    GitHub for all workers. Every method may raise QueueDown.
    """

    async def try_acquire(self, name: str) -> bool:
        """Acquires or renews the lease. Returns True if this worker is the leader."""
        if await self._redis.set(LEADER_KEY, name, nx=True, px=LEASE_MS):
            return True
        if await self._redis.get(LEADER_KEY) != name.encode():
            return False
        return bool(await self._redis.pexpire(LEADER_KEY, LEASE_MS))

    async def keep(self, name: str) -> None:
        """Renews the lease if this worker is the leader, and otherwise tries to acquire the lease. Repeats this
        until canceled.
        """
        while True:
            with contextlib.suppress(QueueDown):
                await self.try_acquire(name)
            await asyncio.sleep(RENEW_SECONDS)

    async def release(self, name: str) -> None:
        """Releases the lease so that another worker can poll."""
        if await self._redis.get(LEADER_KEY) == name.encode():
            await self._redis.delete(LEADER_KEY)

    async def fetch_cursors(self) -> dict[str, datetime]:
        """Returns the time up to which each repository has been polled. The result is empty if Redis is new
        or was wiped.
        """
        stored = await cast("Awaitable[dict[bytes, bytes]]", self._redis.hgetall(CURSORS_KEY))
        return {name.decode(): datetime.fromisoformat(time.decode()) for name, time in stored.items()}

    async def advance_cursor(self, repository: str, until: datetime) -> None:
        """Records that all events of a repository up to this time are processed."""
        await cast("Awaitable[int]", self._redis.hset(CURSORS_KEY, repository, until.isoformat()))

    async def load(self, name: str) -> bytes | None:
        """Returns the value that was saved under a name. Returns None if no value is saved, for example because
        Redis was wiped.
        """
        value: bytes | None = await self._redis.get(STATE_PREFIX + name)
        return value

    async def save(self, name: str, value: str) -> None:
        """Saves a value for the next poll, which may run on another worker."""
        await self._redis.set(STATE_PREFIX + name, value)

    async def record_failure(self, failure: PollFailure | None) -> None:
        """Saves the failure of the last poll. None means that the poll succeeded."""
        await self.save(FAILURE_NAME, failure.model_dump_json() if failure else "")

    async def fetch_failure(self) -> PollFailure | None:
        """Returns the failure of the last poll, or None if that poll succeeded or no poll is known."""
        return parse_stored(PollFailure, await self.load(FAILURE_NAME))
