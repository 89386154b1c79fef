"""Heartbeats of the workers that use the same Redis."""

import asyncio
import contextlib
from typing import Any, cast

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.connection import RedisStore

WORKERS_KEY = (
    # sorted set: worker name -> time of its last heartbeat, by the clock of the Redis server
    "patchwright:workers"
)
HEARTBEAT_SECONDS = 3.0
HEARTBEAT_TIMEOUT_SECONDS = 10  # a worker counts as dead after this time without a heartbeat

# KEYS: workers. ARGV: name.
_BEAT_SCRIPT = "return redis.call('zadd', KEYS[1], redis.call('time')[1], ARGV[1])"
# Removes dead workers and counts the others, but reads only the names of dead workers. KEYS: workers. ARGV:
# seconds.
_COUNT_SCRIPT = """
redis.call('zremrangebyscore', KEYS[1], '-inf', '(' .. redis.call('time')[1] - ARGV[1])
return redis.call('zcard', KEYS[1])
"""


class Heartbeats(RedisStore):
    """The heartbeats of all workers that use a Redis."""

    async def keep_beating(self, name: str) -> None:
        """Sends heartbeats until canceled. Then removes this worker from the list."""
        try:
            while True:
                with contextlib.suppress(QueueDown):
                    await cast("Any", self._redis.eval(_BEAT_SCRIPT, 1, WORKERS_KEY, name))
                await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            with contextlib.suppress(QueueDown):
                await self._redis.zrem(WORKERS_KEY, name)

    async def count_workers(self) -> int:
        """Returns the number of live workers. Raises QueueDown."""
        return int(
            await cast("Any", self._redis.eval(_COUNT_SCRIPT, 1, WORKERS_KEY, str(HEARTBEAT_TIMEOUT_SECONDS)))
        )
