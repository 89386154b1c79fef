"""Logs that any worker can go on with: on this disk first, and in a Redis stream that all workers share.

A stream stays until its lines are kept elsewhere (`bot/observe/archive.py`). Who writes to a run holds a lease with a
token of its own, and every line is taken only from its holder: a worker that was thought dead and comes back cannot
write into what another one has gone on with.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from pydantic import ValidationError
from redis.asyncio import Redis

from bot.errors import QueueDown
from bot.redis.client import LET_GO, reading_client, redis_client, redis_errors
from resolver.domain import RunId
from resolver.errors import LogError, LogTaken
from resolver.events import ENTRY, Entry, Event, Trajectory
from resolver.log import FileLog, FileLogs, Listener

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0  # a worker that has not been heard of for so long has lost its run
RENEW_SECONDS = 4.0
PATIENCE_SECONDS = 20.0  # that a newcomer waits for a dead worker's lease to run out
KEPT_SECONDS = 24 * 3600  # that a stream outlives its being archived
ARCHIVE_SECONDS = 20.0  # that a run which may be in the archive waits for it
UNARCHIVED = (
    "patchwright:unarchived"  # sorted set: runs whose lines are kept nowhere else -> when the last one came
)

# KEYS: lease, stream, unarchived. ARGV: token, lease in ms, number of the first line, run, lines.
# Answers how many lines the stream holds; -1: the lease is somebody else's; -2: it is nobody's.
_WRITE = """
local holder = redis.call('get', KEYS[1])
if not holder then return -2 end
if holder ~= ARGV[1] then return -1 end
redis.call('pexpire', KEYS[1], ARGV[2])
local there = redis.call('xlen', KEYS[2])
if there == tonumber(ARGV[3]) then
  for number = 5, #ARGV do redis.call('xadd', KEYS[2], '*', 'entry', ARGV[number]) end
  if #ARGV > 4 then
    redis.call('persist', KEYS[2])
    redis.call('zadd', KEYS[3], redis.call('time')[1], ARGV[4])
  end
end
return redis.call('xlen', KEYS[2])
"""
NOBODYS = -2
# KEYS: lease, stream, unarchived. ARGV: run, lines that were archived, seconds kept.
_ARCHIVED = """
if redis.call('exists', KEYS[1]) == 1 or redis.call('xlen', KEYS[2]) ~= tonumber(ARGV[2]) then return 0 end
redis.call('zrem', KEYS[3], ARGV[1])
return redis.call('expire', KEYS[2], ARGV[3])
"""


def no_archive(run: RunId) -> Trajectory:
    """Nothing is kept but on the disks of the workers."""
    raise LogError(f"There is no run `{run[:80]}` in an archive.")


class SharedLogs:
    """Runs on this disk and in Redis."""

    def __init__(
        self,
        files: FileLogs,
        url: str,
        archived: Callable[[RunId], Trajectory] = no_archive,
        *,
        lease: float = LEASE_SECONDS,
        patience: float = PATIENCE_SECONDS,
        archive_wait: float = ARCHIVE_SECONDS,
    ) -> None:
        """Seconds. `archived` reads a run that is neither here nor there any more; it blocks, and raises LogError.

        Raises SettingsError for what is no URL of a Redis.
        """
        self._files = files
        self._archived = archived
        self._archive_wait = archive_wait
        self._redis: Redis = redis_client(url)
        self._reading = reading_client(url)
        self._lease = lease
        self._patience = patience

    @asynccontextmanager
    async def open(self, run: RunId, listeners: Sequence[Listener] = ()) -> AsyncIterator["SharedLog"]:
        self._files.path(run)  # a name that is none is refused before it is a key
        async with self._files.open(run, listeners) as file:
            shared = SharedLog(file, run, self._redis, self._lease)
            await shared.take(self._patience, self._archived, self._archive_wait)
            renewing = asyncio.create_task(shared.renew())
            try:
                yield shared
            finally:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
                await shared.leave()

    def read(self, run: RunId) -> Trajectory:
        """A run as it is on this disk, in Redis or in the archive: where most of it is. Blocks; raises LogError."""
        try:
            here: Trajectory | LogError = self._files.read(run)
        except LogError as exc:
            here = exc
        count = 0 if isinstance(here, LogError) else len(here)
        with contextlib.suppress(QueueDown), redis_errors():
            if cast("int", self._reading.xlen(stream_of(run))) > count:
                found = cast("list[tuple[bytes, dict[bytes, bytes]]]", self._reading.xrange(stream_of(run)))
                return Trajectory(_entries(found))
        if isinstance(here, Trajectory):
            return here
        try:
            return self._archived(run)
        except LogError:
            raise here from None

    async def quiet(self, seconds: float, most: int) -> tuple[RunId, ...]:
        """Runs that are kept nowhere else, that nobody writes to, and whose last line is older; the oldest first.

        Raises QueueDown.
        """
        with redis_errors():
            now, _ = await self._redis.time()
            found = await self._redis.zrangebyscore(UNARCHIVED, "-inf", now - seconds, start=0, num=most)
            runs = [RunId(name.decode()) for name in found]
            held = [bool(await self._redis.exists(writer_of(run))) for run in runs]
        return tuple(run for run, is_held in zip(runs, held, strict=True) if not is_held)

    async def put_off(self, run: RunId) -> None:
        """Others are archived before this one. Raises QueueDown."""
        with redis_errors():
            now, _ = await self._redis.time()
            await self._redis.zadd(UNARCHIVED, {run: now}, xx=True)

    async def lines(self, run: RunId) -> tuple[bytes, ...]:
        """What its stream holds. Raises QueueDown."""
        with redis_errors():
            return tuple(fields[b"entry"] for _, fields in await self._redis.xrange(stream_of(run)))

    async def let_go(self, run: RunId, count: int) -> bool:
        """So many lines are kept elsewhere: the stream may expire; False where it has gone on. Raises QueueDown."""
        keys = (writer_of(run), stream_of(run), UNARCHIVED)
        with redis_errors():
            done = await cast(
                "Any", self._redis.eval(_ARCHIVED, 3, *keys, run, str(count), str(KEPT_SECONDS))
            )
        return bool(done)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)
        self._reading.close()


class SharedLog:
    """One run, held by one writer among all machines."""

    def __init__(self, file: FileLog, run: RunId, redis: Redis, lease: float) -> None:
        self._file = file
        self._run = run
        self._redis = redis
        self._lease_ms = round(lease * 1000)
        self._token = secrets.token_hex(16)
        self._keys = (writer_of(run), stream_of(run))
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

    async def confirm(self) -> None:
        await self._share()

    async def take(
        self, patience: float, archived: Callable[[RunId], Trajectory], archive_wait: float
    ) -> None:
        """Become the writer, and bring file and stream to the same lines. Raises LogError."""
        end = asyncio.get_running_loop().time() + patience
        try:
            while not await self._acquired():
                if asyncio.get_running_loop().time() >= end:
                    raise LogTaken(
                        f"Another process is working on the run in {self._run}: wait for its end, or stop it."
                    )
                await asyncio.sleep(0.25)
            with redis_errors():
                found = await self._redis.xrange(self._keys[1])
        except QueueDown as exc:  # what is on this disk is enough to go on here
            log.warning("a run goes on without redis", extra={"run": self._run, "reason": str(exc)})
            return
        there = _entries(cast("list[tuple[bytes, dict[bytes, bytes]]]", found))
        if not there and not self._file.trajectory.entries:
            try:
                async with asyncio.timeout(archive_wait):
                    self._file.hold((await asyncio.to_thread(archived, self._run)).entries)
            except LogError:
                pass  # there is none: it begins now
            except TimeoutError:
                log.warning("the archive does not answer, so a run begins anew", extra={"run": self._run})
        mine = self._file.trajectory.entries
        if there[: len(mine)] != mine[: len(there)] or len(there) > len(mine):
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
            await cast("Any", self._redis.eval(LET_GO, 1, self._keys[0], self._token))

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
                raise LogTaken(f"Another worker has gone on with the run {self._run}: this one stops.")
            self._shared = there

    async def _written(self) -> int:
        """What _WRITE answers when the lines that the stream lacks are written to it."""
        entries = self._file.trajectory.entries[self._shared :]
        lines = [entry.model_dump_json().encode() for entry in entries]
        arguments: list[Any] = [self._token, self._lease_ms, self._shared, self._run, *lines]
        with redis_errors():
            return int(await cast("Any", self._redis.eval(_WRITE, 3, *self._keys, UNARCHIVED, *arguments)))


def _entries(found: list[tuple[bytes, dict[bytes, bytes]]]) -> tuple[Entry, ...]:
    try:
        return tuple(ENTRY.validate_json(fields[b"entry"]) for _, fields in found)
    except (ValidationError, KeyError) as exc:
        raise LogError("Redis has a line that is not an event of this version.") from exc


def writer_of(run: RunId) -> str:
    """The key of the lease of whoever writes to a run."""
    return f"patchwright:writer:{run}"


def stream_of(run: RunId) -> str:
    """The key of the stream with a run's lines."""
    return f"patchwright:log:{run}"
