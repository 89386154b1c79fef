"""One line for the writes of all processes that work on a Redis; without it, each process has its own."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from secrets import token_hex
from typing import TypeVar

from bot.errors import QueueDown
from bot.pacing import ALONE_SECONDS, SOON, OwnLine, Urgency
from bot.redis.client import redis_client, redis_errors

log = logging.getLogger(__name__)

T = TypeVar("T")

GONE_SECONDS = 4.0  # a ticket that was not seen for so long was its process's last
KEPT_SECONDS = 60  # that a line is kept in which nobody waits

# The answer is in milliseconds. Redis runs a script as one step, and its clock is the same for all.
CLAIM = """
local free, held, line, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ticket, urgency, gap, gone, progress = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, lost in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now - gone)) do
  redis.call('ZREM', line, lost)
  redis.call('ZREM', seen, lost)
end
if ARGV[2] ~= progress then
  redis.call('ZADD', line, 'NX', urgency * 1e13 + now, ticket)
  redis.call('ZADD', seen, now, ticket)
  redis.call('EXPIRE', line, ARGV[6])
  redis.call('EXPIRE', seen, ARGV[6])
end
local wait = math.max(redis.call('PTTL', free), redis.call('PTTL', held))
if wait > 0 then return wait end
local first = redis.call('ZRANGE', line, 0, 0)[1]
if first and first ~= ticket then return tonumber(ARGV[7]) end
redis.call('ZREM', line, ticket)
redis.call('ZREM', seen, ticket)
redis.call('SET', free, ticket, 'PX', gap)
return 0
"""
HOLD = """
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], 1, 'PX', ARGV[1]) end
return 0
"""
LEAVE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
"""


class SharedLine:
    """A `Line` on a Redis. While that is away, this process's own takes its place."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis = redis_client(url)
        self._claim = self._redis.register_script(CLAIM)
        self._hold = self._redis.register_script(HOLD)
        self._leave = self._redis.register_script(LEAVE)
        self._own = OwnLine()
        self._away = False

    async def claim(self, whose: str, ticket: str, urgency: Urgency, gap: float) -> float:
        async def shared() -> float:
            numbers = (urgency, _ms(gap), _ms(GONE_SECONDS), Urgency.PROGRESS, KEPT_SECONDS, _ms(SOON))
            return float(await self._claim(keys=_keys(whose), args=[ticket, *map(int, numbers)])) / 1000

        return await self._or_own(shared, lambda: self._own.claim(whose, ticket, urgency, gap))

    async def leave(self, whose: str, ticket: str) -> None:
        async def shared() -> None:
            _, _, line, seen = _keys(whose)
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.zrem(line, ticket)
                pipe.zrem(seen, ticket)
                await pipe.execute()

        await self._own.leave(whose, ticket)
        await self._or_own(shared, lambda: self._own.leave(whose, ticket))

    async def hold(self, whose: str, seconds: float) -> None:
        async def shared() -> None:
            await self._hold(keys=_keys(whose)[1:2], args=[_ms(seconds)])

        await self._own.hold(whose, seconds)
        await self._or_own(shared, lambda: self._own.hold(whose, seconds))

    async def held(self, whose: str) -> float:
        async def shared() -> float:
            left = await self._redis.pttl(_keys(whose)[1])
            return max(float(left) / 1000, await self._own.held(whose))

        return await self._or_own(shared, lambda: self._own.held(whose))

    @contextlib.asynccontextmanager
    async def alone(self, what: str) -> AsyncIterator[None]:
        key, ticket = f"patchwright:alone:{what}", token_hex(8)
        deadline = time.monotonic() + ALONE_SECONDS
        try:
            with (
                contextlib.suppress(QueueDown),
                redis_errors(),
            ):  # without Redis nobody is kept out: two at once are rare
                while not await self._redis.set(key, ticket, nx=True, px=_ms(ALONE_SECONDS)):
                    if time.monotonic() > deadline:
                        break
                    await asyncio.sleep(SOON)
            yield
        finally:
            with contextlib.suppress(QueueDown), redis_errors():
                await self._leave(keys=[key], args=[ticket])

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)

    async def _or_own(self, shared: Callable[[], Awaitable[T]], own: Callable[[], Awaitable[T]]) -> T:
        try:
            with redis_errors():
                found = await shared()
        except QueueDown as exc:
            if not self._away:  # each write asks several times
                log.warning("writes are spaced by this process alone", extra={"reason": str(exc)})
            self._away = True
            return await own()
        self._away = False
        return found


def _keys(whose: str) -> list[str]:
    # In braces: of a cluster, one machine has all four.
    return [f"patchwright:writes:{{{whose}}}:{what}" for what in ("free", "held", "line", "seen")]


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 1)
