"""Who looks at GitHub for all workers, and up to when each repository was looked at."""

import asyncio
import contextlib
from collections.abc import Awaitable
from datetime import datetime
from typing import cast

from pydantic import ValidationError

from bot.errors import QueueDown
from bot.redis.client import redis_client, redis_errors
from runtime.frozen import Frozen

HOLDER = "patchwright:looking"
SEEN = "patchwright:seen"
MEMORY = "patchwright:lookout:"
LEASE_MS = 6_000  # a worker that has not been heard of for so long has left it to another
RENEW_SECONDS = 2.0
TROUBLE = "trouble"  # the name under which it is kept


class Trouble(Frozen):
    """Why nobody can look at GitHub."""

    reason: str
    since: datetime


class Lookout:
    """Shared by the workers of a Redis. Every method may raise QueueDown."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis = redis_client(url)

    async def is_mine(self, name: str) -> bool:
        """Whether this worker is the one that looks; being asked keeps it so."""
        with redis_errors():
            if await self._redis.set(HOLDER, name, nx=True, px=LEASE_MS):
                return True
            if await self._redis.get(HOLDER) != name.encode():
                return False
            return bool(await self._redis.pexpire(HOLDER, LEASE_MS))

    async def hold(self, name: str) -> None:
        """Keep the turn, or wait for it, until cancelled."""
        while True:
            with contextlib.suppress(QueueDown):
                await self.is_mine(name)
            await asyncio.sleep(RENEW_SECONDS)

    async def leave(self, name: str) -> None:
        """Let another worker look."""
        with redis_errors():
            if await self._redis.get(HOLDER) == name.encode():
                await self._redis.delete(HOLDER)

    async def seen(self) -> dict[str, datetime]:
        """Up to when each repository was looked at; empty when Redis is new, or was wiped."""
        with redis_errors():
            found = await cast("Awaitable[dict[bytes, bytes]]", self._redis.hgetall(SEEN))
        return {name.decode(): datetime.fromisoformat(at.decode()) for name, at in found.items()}

    async def see(self, repository: str, until: datetime) -> None:
        """All that happened there until then was dealt with."""
        with redis_errors():
            await cast("Awaitable[int]", self._redis.hset(SEEN, repository, until.isoformat()))

    async def recall(self, name: str) -> bytes | None:
        """What was kept under this name; None: nothing, or Redis was wiped."""
        with redis_errors():
            found: bytes | None = await self._redis.get(MEMORY + name)
        return found

    async def remember(self, name: str, what: str) -> None:
        """Keep this for whoever looks next."""
        with redis_errors():
            await self._redis.set(MEMORY + name, what)

    async def note(self, trouble: Trouble | None) -> None:
        """How the last look went; None: well."""
        await self.remember(TROUBLE, trouble.model_dump_json() if trouble else "")

    async def trouble(self) -> Trouble | None:
        """Why the last look showed nothing; None: it went well, or nobody has looked."""
        try:
            return Trouble.model_validate_json(await self.recall(TROUBLE) or b"")
        except ValidationError:  # there is none, or it is of another version
            return None

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)
