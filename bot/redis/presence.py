"""Who works on this Redis: each worker says again and again that it lives."""

import asyncio
import contextlib

from bot.errors import QueueDown
from bot.redis.client import redis_client, redis_errors

PREFIX = "patchwright:worker:"
SAY_SECONDS = 3.0
GONE_SECONDS = 10.0  # a worker that has not been heard of for so long is none


class Presence:
    """The workers of a Redis."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis = redis_client(url)

    async def keep(self, name: str) -> None:
        """Show that this worker lives, until cancelled; then it is gone at once."""
        try:
            while True:
                with contextlib.suppress(QueueDown), redis_errors():
                    await self._redis.set(PREFIX + name, b"1", px=round(GONE_SECONDS * 1000))
                await asyncio.sleep(SAY_SECONDS)
        finally:
            with contextlib.suppress(QueueDown), redis_errors():
                await self._redis.delete(PREFIX + name)

    async def workers(self) -> int:
        """How many live. Raises QueueDown."""
        with redis_errors():
            return len([name async for name in self._redis.scan_iter(PREFIX + "*", count=1000)])

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)
