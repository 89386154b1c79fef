"""The lines of runs as they stand in Redis: those that are there, and those that come."""

from collections.abc import AsyncIterator
from typing import Any, cast

from bot.redis.client import redis_client, redis_errors
from bot.redis.log import stream_of, writer_of
from resolver.domain import RunId

AT_ONCE = 200  # lines of one journey
BEGINNING = b"0"


class Streams:
    """Logs on a Redis. Every method may raise QueueDown."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis = redis_client(url)

    async def length(self, run: RunId) -> int:
        """How many lines are there."""
        with redis_errors():
            return int(await cast("Any", self._redis.xlen(stream_of(run))))

    async def lines(self, run: RunId) -> AsyncIterator[tuple[bytes, bytes]]:
        """All that are there, each with its place."""
        last = BEGINNING
        while True:
            with redis_errors():
                found = await self._redis.xrange(stream_of(run), min=b"(" + last, count=AT_ONCE)
            for place, line in _read(found):
                last = place
                yield place, line
            if len(found) < AT_ONCE:
                return

    async def next(self, run: RunId, after: bytes, wait_ms: int) -> list[tuple[bytes, bytes]]:
        """Those that come after this place, waited for so long; [] when none came. `wait_ms` is less than 5,000."""
        with redis_errors():
            found = await cast("Any", self._redis.xread({stream_of(run): after}, AT_ONCE, wait_ms))
        return _read(found[0][1]) if found else []

    async def is_written(self, run: RunId) -> bool:
        """Whether some worker writes to it now."""
        with redis_errors():
            return bool(await cast("Any", self._redis.exists(writer_of(run))))

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def _read(found: Any) -> list[tuple[bytes, bytes]]:
    return [(place, fields[b"entry"]) for place, fields in found]
