"""Run logs in Redis streams: reads the existing lines and waits for new ones."""

from collections.abc import AsyncIterator
from typing import Any, cast

from patchwright.bot.redis.connection import RedisStore
from patchwright.bot.redis.shared_run_log import stream_key, writer_key
from patchwright.resolver.domain import RunId

BATCH_SIZE = 200  # maximum number of lines per round trip
FIRST_ID = b"0"


class LogStreams(RedisStore):
    """Reads run logs from Redis streams. Every method may raise QueueDown."""

    async def count_lines(self, run: RunId) -> int:
        """Returns the number of lines in the run's stream."""
        return int(await cast("Any", self._redis.xlen(stream_key(run))))

    async def read_lines(self, run: RunId) -> AsyncIterator[tuple[bytes, bytes]]:
        """Yields all lines that exist now, each with its stream id."""
        last_id = FIRST_ID
        while True:
            entries = await self._redis.xrange(stream_key(run), min=b"(" + last_id, count=BATCH_SIZE)
            for entry_id, line in _parse_lines(entries):
                last_id = entry_id
                yield entry_id, line
            if len(entries) < BATCH_SIZE:
                return

    async def wait_for_lines(self, run: RunId, after_id: bytes, wait_ms: int) -> list[tuple[bytes, bytes]]:
        """Returns the lines after a stream id. Returns [] if no line arrives within `wait_ms`, which must be
        less than 5,000.
        """
        streams = await cast("Any", self._redis.xread({stream_key(run): after_id}, BATCH_SIZE, wait_ms))
        return _parse_lines(streams[0][1]) if streams else []

    async def has_writer(self, run: RunId) -> bool:
        """Returns True if a worker is writing to the run now."""
        return bool(await cast("Any", self._redis.exists(writer_key(run))))


def _parse_lines(stream_entries: Any) -> list[tuple[bytes, bytes]]:
    return [(entry_id, fields[b"entry"]) for entry_id, fields in stream_entries]
