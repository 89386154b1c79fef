"""One queue for the GitHub writes of all processes that share a Redis. While Redis is down, each process uses
its own queue.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.connection import RedisStore
from patchwright.bot.write_limiter import LOCK_SECONDS, QUEUE_POLL_SECONDS, LocalWriteLimiter, Priority

log = logging.getLogger(__name__)

T = TypeVar("T")

TICKET_EXPIRY_SECONDS = 4.0  # a ticket belongs to a dead process if it was not renewed for this long
QUEUE_EXPIRY_SECONDS = 60  # an unused queue is deleted after this long

ACQUIRE_SCRIPT = Path(__file__).with_name("acquire_write.lua").read_text()
BLOCK_SCRIPT = """
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], 1, 'PX', ARGV[1]) end
return 0
"""
UNLOCK_SCRIPT = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
"""


class SharedWriteLimiter(RedisStore):
    """A `WriteLimiter` that all processes share through Redis. While Redis is down, each process limits its own
    writes.
    """

    def __init__(self, url: str) -> None:
        """Raises SettingsError if the Redis URL is invalid."""
        super().__init__(url)
        self._acquire_script = self._redis.register_script(ACQUIRE_SCRIPT)
        self._block_script = self._redis.register_script(BLOCK_SCRIPT)
        self._unlock_script = self._redis.register_script(UNLOCK_SCRIPT)
        self._local = LocalWriteLimiter()
        self._is_redis_down = False

    async def try_acquire(self, credential: str, ticket: str, priority: Priority, interval: float) -> float:
        async def shared() -> float:
            numbers = (
                priority,
                _to_ms(interval),
                _to_ms(TICKET_EXPIRY_SECONDS),
                Priority.PROGRESS,
                QUEUE_EXPIRY_SECONDS,
                _to_ms(QUEUE_POLL_SECONDS),
            )
            return (
                float(await self._acquire_script(keys=_keys(credential), args=[ticket, *map(int, numbers)]))
                / 1000
            )

        return await self._with_fallback(
            shared, lambda: self._local.try_acquire(credential, ticket, priority, interval)
        )

    async def withdraw(self, credential: str, ticket: str) -> None:
        async def shared() -> None:
            _, _, queue, alive = _keys(credential)
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.zrem(queue, ticket)
                pipe.zrem(alive, ticket)
                await pipe.execute()

        await self._local.withdraw(credential, ticket)
        await self._with_fallback(shared, lambda: self._local.withdraw(credential, ticket))

    async def block(self, credential: str, seconds: float) -> None:
        async def shared() -> None:
            await self._block_script(keys=_keys(credential)[1:2], args=[_to_ms(seconds)])

        await self._local.block(credential, seconds)
        await self._with_fallback(shared, lambda: self._local.block(credential, seconds))

    async def blocked_seconds(self, credential: str) -> float:
        async def shared() -> float:
            blocked_ms = await self._redis.pttl(_keys(credential)[1])
            return max(float(blocked_ms) / 1000, await self._local.blocked_seconds(credential))

        return await self._with_fallback(shared, lambda: self._local.blocked_seconds(credential))

    @contextlib.asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        key, token = f"patchwright:lock:{name}", token_hex(8)
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            # If Redis is down, the caller continues without a lock. It is rare that two callers need the same
            # lock then.
            with contextlib.suppress(QueueDown):
                while not await self._redis.set(key, token, nx=True, px=_to_ms(LOCK_SECONDS)):
                    if time.monotonic() > deadline:
                        break
                    await asyncio.sleep(QUEUE_POLL_SECONDS)
            yield
        finally:
            with contextlib.suppress(QueueDown):
                await self._unlock_script(keys=[key], args=[token])

    async def _with_fallback(
        self, shared: Callable[[], Awaitable[T]], local: Callable[[], Awaitable[T]]
    ) -> T:
        try:
            result = await shared()
        except QueueDown as exc:
            if not self._is_redis_down:  # logged once, because each write tries several times
                log.warning("write limits apply to this process only", extra={"reason": str(exc)})
            self._is_redis_down = True
            return await local()
        self._is_redis_down = False
        return result


def _keys(credential: str) -> list[str]:
    # The braces put all four keys on the same node of a Redis cluster.
    return [
        f"patchwright:writes:{{{credential}}}:{part}" for part in ("interval", "blocked", "queue", "alive")
    ]


def _to_ms(seconds: float) -> int:
    return max(round(seconds * 1000), 1)
