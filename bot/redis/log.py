"""Logs that any worker can go on with: on this disk first, and in a Redis stream that all workers share.

Who writes to a run holds a lease with a token of its own, and every line is taken only from its holder: a worker that
was thought dead and comes back cannot write into what another one has gone on with.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from redis.asyncio import Redis

from bot.errors import QueueDown
from bot.redis.client import redis_client, redis_errors
from resolver.domain import RunId
from resolver.errors import LogError
from resolver.events import ENTRY, Entry, Event, Trajectory
from resolver.log import FileLog, FileLogs, Listener

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0  # a worker that has not been heard of for so long has lost its run
RENEW_SECONDS = 4.0
PATIENCE_SECONDS = 20.0  # that a newcomer waits for a dead worker's lease to run out
KEPT_SECONDS = 7 * 24 * 3600  # that a stream outlives the last line

# KEYS: lease, stream. ARGV: token, lease in ms, number of the first line, seconds kept, lines.
# Answers how many lines the stream holds; -1: the lease is somebody else's; -2: it is nobody's.
_WRITE = """
local holder = redis.call('get', KEYS[1])
if not holder then return -2 end
if holder ~= ARGV[1] then return -1 end
redis.call('pexpire', KEYS[1], ARGV[2])
local there = redis.call('xlen', KEYS[2])
if there == tonumber(ARGV[3]) then
  for number = 5, #ARGV do redis.call('xadd', KEYS[2], '*', 'entry', ARGV[number]) end
  redis.call('expire', KEYS[2], ARGV[4])
end
return redis.call('xlen', KEYS[2])
"""
NOBODYS = -2
# KEYS: lease. ARGV: token.
_LEAVE = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"


class SharedLogs:
    """Runs on this disk and in Redis."""

    def __init__(
        self, files: FileLogs, url: str, *, lease: float = LEASE_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Seconds. Raises SettingsError for what is no URL of a Redis."""
        self._files = files
        self._redis: Redis = redis_client(url)
        self._lease = lease
        self._patience = patience

    @asynccontextmanager
    async def open(self, run: RunId, listeners: Sequence[Listener] = ()) -> AsyncIterator["SharedLog"]:
        self._files.path(run)  # a name that is none is refused before it is a key
        async with self._files.open(run, listeners) as file:
            shared = SharedLog(file, run, self._redis, self._lease)
            await shared.take(self._patience)
            renewing = asyncio.create_task(shared.renew())
            try:
                yield shared
            finally:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
                await shared.leave()

    def read(self, run: RunId) -> Trajectory:
        return self._files.read(run)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


class SharedLog:
    """One run, held by one writer among all machines."""

    def __init__(self, file: FileLog, run: RunId, redis: Redis, lease: float) -> None:
        self._file = file
        self._run = run
        self._redis = redis
        self._lease_ms = round(lease * 1000)
        self._token = secrets.token_hex(16)
        self._keys = (f"patchwright:writer:{run}", stream_of(run))
        self._shared = 0
        """Lines that the stream holds, as far as we know."""
        self._sharing = asyncio.Lock()

    @property
    def trajectory(self) -> Trajectory:
        return self._file.trajectory

    async def append(self, event: Event) -> Entry:
        """As `Log.append`; raises LogError too when another worker has gone on with the run."""
        entry = await self._file.append(event)
        await self._share()
        return entry

    async def take(self, patience: float) -> None:
        """Become the writer, and bring file and stream to the same lines. Raises LogError."""
        end = asyncio.get_running_loop().time() + patience
        try:
            while not await self._acquired():
                if asyncio.get_running_loop().time() >= end:
                    raise LogError(
                        f"Another process is working on the run in {self._run}: wait for its end, or stop it."
                    )
                await asyncio.sleep(0.25)
            with redis_errors():
                lines = [
                    cast("dict[bytes, bytes]", fields)[b"entry"]
                    for _, fields in await self._redis.xrange(self._keys[1])
                ]
        except QueueDown as exc:  # what is on this disk is enough to go on here
            log.warning("a run goes on without redis", extra={"run": self._run, "reason": str(exc)})
            return
        there = [ENTRY.validate_json(line) for line in lines]
        mine = self._file.trajectory.entries
        if there[: len(mine)] != list(mine[: len(there)]) or len(there) > len(mine):
            self._file.hold(there)  # what all others saw is what happened
        self._shared = len(there)
        await self._share()

    async def renew(self) -> None:
        """Keep the lease until cancelled; a stream that lagged behind catches up."""
        while True:
            await asyncio.sleep(min(RENEW_SECONDS, self._lease_ms / 3000))
            with contextlib.suppress(LogError):  # told to whoever appends next
                await self._share()

    async def leave(self) -> None:
        with contextlib.suppress(QueueDown), redis_errors():
            await cast("Any", self._redis.eval(_LEAVE, 1, self._keys[0], self._token))

    async def _acquired(self) -> bool:
        with redis_errors():
            return bool(await self._redis.set(self._keys[0], self._token, nx=True, px=self._lease_ms))

    async def _share(self) -> None:
        """Bring the stream up to the file. Without Redis the file is ahead for a while. Raises LogError."""
        async with self._sharing:
            try:
                there = await self._written()
                if (
                    there == NOBODYS and await self._acquired()
                ):  # it ran out, or Redis was wiped: nobody took it
                    there = await self._written()
                if there >= 0 and there != len(self._file.trajectory):
                    self._shared = there
                    there = await self._written()
            except QueueDown as exc:
                log.warning("a run goes on without redis", extra={"run": self._run, "reason": str(exc)})
                return
            if there != len(self._file.trajectory):
                raise LogError(f"Another worker has gone on with the run {self._run}: this one stops.")
            self._shared = there

    async def _written(self) -> int:
        """What _WRITE answers when the lines that the stream lacks are written to it."""
        entries = self._file.trajectory.entries[self._shared :]
        lines = [entry.model_dump_json().encode() for entry in entries]
        arguments: list[Any] = [self._token, self._lease_ms, self._shared, KEPT_SECONDS, *lines]
        with redis_errors():
            return int(await cast("Any", self._redis.eval(_WRITE, 2, *self._keys, *arguments)))


def stream_of(run: RunId) -> str:
    """The key of the stream with a run's lines."""
    return f"patchwright:log:{run}"
