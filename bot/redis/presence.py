"""Who works on this Redis: each worker says again and again that it lives."""

import asyncio
import contextlib
from typing import Any, cast

from bot.errors import QueueDown
from bot.redis.client import redis_client, redis_errors

WORKERS = "patchwright:workers"  # sorted set: name -> when it was last heard of, by the clock of Redis
SAY_SECONDS = 3.0
GONE_SECONDS = 10  # a worker that has not been heard of for so long is none

# KEYS: workers. ARGV: name.
_SAY = "return redis.call('zadd', KEYS[1], redis.call('time')[1], ARGV[1])"
# KEYS: workers. ARGV: seconds. Only names of dead workers are gone through.
_COUNT = """
redis.call('zremrangebyscore', KEYS[1], '-inf', '(' .. redis.call('time')[1] - ARGV[1])
return redis.call('zcard', KEYS[1])
"""


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
                    await cast("Any", self._redis.eval(_SAY, 1, WORKERS, name))
                await asyncio.sleep(SAY_SECONDS)
        finally:
            with contextlib.suppress(QueueDown), redis_errors():
                await self._redis.zrem(WORKERS, name)

    async def workers(self) -> int:
        """How many live. Raises QueueDown."""
        with redis_errors():
            return int(await cast("Any", self._redis.eval(_COUNT, 1, WORKERS, str(GONE_SECONDS))))

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)
