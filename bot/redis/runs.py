"""The list of runs: each at a glance, the newest first, for the page."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, cast

from pydantic import ValidationError

from bot.glance import Glance
from bot.redis.client import redis_client, redis_errors
from bot.redis.ledger import PULLS, name_of_pull
from resolver.domain import RunId

log = logging.getLogger(__name__)

RUNS = "patchwright:runs"  # hash: id -> what a list says of it
ORDER = "patchwright:runs:order"  # sorted set: id -> when it began
WHOLE = "patchwright:runs:whole"  # set: directories of runs that are in the list
KEPT = 20_000  # runs; the archive has older ones
CLAIMED_SECONDS = 3600
AT_ONCE = 2_500  # about so many are read in one journey: 10 ms, for which nobody else waits long

# KEYS: runs, order. ARGV: id, value, began, kept. Only the oldest beyond those that are kept are gone through.
_PUT = """
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('zadd', KEYS[2], ARGV[3], ARGV[1])
local many = redis.call('zcard', KEYS[2]) - tonumber(ARGV[4])
if many > 0 then
  local old = redis.call('zrange', KEYS[2], 0, many - 1)
  redis.call('zrem', KEYS[2], unpack(old))
  redis.call('hdel', KEYS[1], unpack(old))
end
"""


class Runs:
    """Runs on a Redis. Every method may raise QueueDown."""

    def __init__(self, url: str, *, kept: int = KEPT) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis = redis_client(url)
        self._kept = kept
        self._reading = asyncio.Lock()

    async def put(self, glance: Glance) -> None:
        """What is to be said of this run from now on."""
        with redis_errors():
            value = glance.model_dump_json(exclude_defaults=True)
            arguments = (RUNS, ORDER, glance.run, value, str(glance.began), str(self._kept))
            await cast("Any", self._redis.eval(_PUT, 2, *arguments))

    async def get(self, run: RunId) -> Glance | None:
        """None: it is not in the list."""
        with redis_errors():
            return _read(run, await cast("Any", self._redis.hget(RUNS, run)))

    async def newest(self) -> list[Glance]:
        """All of them, with what has become of their pull requests; for one after the other who asks."""
        async with self._reading:
            return await self._newest()

    async def _newest(self) -> list[Glance]:
        found: dict[bytes, Glance] = {}
        cursor = None
        with redis_errors():
            fates = await cast("Any", self._redis.hgetall(PULLS))
        while cursor != 0:
            with redis_errors():
                cursor, some = await cast("Any", self._redis.hscan(RUNS, cursor or 0, count=AT_ONCE))
            for run, value in some.items():
                if (one := _read(run.decode(), value)) is not None:
                    fate = one.pull and fates.get(name_of_pull(one.repository, one.pull).encode())
                    found[run] = one.with_fate(fate.decode()) if fate else one
        return sorted(found.values(), key=lambda one: -one.began)

    async def lacks(self, directory: str) -> bool:
        """Whether this directory's runs were never put into the list, or Redis was wiped since."""
        with redis_errors():
            return not await cast("Any", self._redis.sismember(WHOLE, directory))

    async def claim(self, directory: str) -> bool:
        """Whether it is for the caller to read these runs, for the next hour."""
        with redis_errors():
            return bool(
                await self._redis.set(f"{WHOLE}:claimed:{directory}", b"1", nx=True, ex=CLAIMED_SECONDS)
            )

    async def has(self, directory: str, glances: Iterable[Glance]) -> None:
        """The directory's runs: those that the list has not are put, and then it lacks none."""
        for glance in glances:
            if await self.get(glance.run) is None:
                await self.put(glance)
        with redis_errors():
            await cast("Any", self._redis.sadd(WHOLE, directory))

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def _read(run: str, value: bytes | None) -> Glance | None:
    if value is None:
        return None
    try:
        return Glance.model_validate_json(value)
    except ValidationError as exc:  # of another version of ours
        log.warning("a run in the list is unreadable", extra={"run": run, "faults": exc.error_count()})
        return None
