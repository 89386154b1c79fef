"""Run logs that any worker can resume. Each line is written to the local disk first, and then to a Redis
stream that all workers share.

A stream stays in Redis until its lines are archived (`bot/observe/archive.py`). The writer of a run holds a
lease with a unique token. Redis accepts lines only from the holder of the lease. So a worker that comes back
after it was considered dead cannot write to a run that another worker has resumed.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from redis.asyncio import Redis

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.connection import RELEASE_LOCK_SCRIPT, blocking_client, redis_errors, store_client
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError, LogLocked
from patchwright.resolver.events import ENTRY_ADAPTER, Entry, Event, Trajectory
from patchwright.resolver.run_log import FileLogStore, FileRunLog, Listener

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0  # a worker that does not renew its lease for this long loses the run
RENEW_SECONDS = 4.0
LEASE_WAIT_SECONDS = 20.0  # how long a worker waits for the lease of a dead worker to expire
RETENTION_SECONDS = 24 * 3600  # how long a stream is kept after its run is archived
ARCHIVE_WAIT_SECONDS = 20.0  # how long the start of a run waits for the archive
# Sorted set: runs that are not archived -> time of their last line.
UNARCHIVED_KEY = "patchwright:unarchived"

_APPEND_SCRIPT = Path(__file__).with_name("append_lines.lua").read_text()
NO_LEASE = -2
_StreamEntries = list[tuple[bytes, dict[bytes, bytes]]]
# KEYS: lease, stream, unarchived. ARGV: run, number of archived lines, retention in seconds.
_EXPIRE_STREAM_SCRIPT = """
if redis.call('exists', KEYS[1]) == 1 or redis.call('xlen', KEYS[2]) ~= tonumber(ARGV[2]) then return 0 end
redis.call('zrem', KEYS[3], ARGV[1])
return redis.call('expire', KEYS[2], ARGV[3])
"""


def raise_no_archive(run: RunId) -> Trajectory:
    """Raises LogError. Deployments without an archive pass this function as `read_archived`. Their runs are
    stored only in Redis and on the disks of the workers.
    """
    raise LogError(f"There is no run `{run[:80]}` in the archive.")


class SharedLogStore:
    """Stores run logs on the local disk and in Redis."""

    def __init__(
        self,
        files: FileLogStore,
        url: str,
        read_archived: Callable[[RunId], Trajectory] | None = raise_no_archive,
        *,
        lease_seconds: float = LEASE_SECONDS,
        lease_wait: float = LEASE_WAIT_SECONDS,
        archive_wait: float = ARCHIVE_WAIT_SECONDS,
    ) -> None:
        """All durations are in seconds. `read_archived` reads a run from the archive. This function blocks, and
        raises LogError if the archive does not contain the run. If it is None, the streams stay in Redis until they
        are deleted, and no worker archives them.

        Raises SettingsError if the Redis URL is invalid.
        """
        self._files = files
        self._read_archived = read_archived or raise_no_archive
        self._archive_wait = archive_wait
        self._is_archived = read_archived is not None
        self._redis = store_client(url)
        self._blocking_redis = blocking_client(url)
        self._lease_seconds = lease_seconds
        self._lease_wait = lease_wait

    @asynccontextmanager
    async def open(self, run: RunId, listeners: Sequence[Listener] = ()) -> AsyncIterator["SharedRunLog"]:
        self._files.run_directory(run)  # rejects an invalid run id before the id becomes part of a key
        async with self._files.open(run, listeners) as file:
            shared = SharedRunLog(file, run, self._redis, self._lease_seconds, is_archived=self._is_archived)
            await shared.acquire(self._lease_wait, self._read_archived, self._archive_wait)
            renewal = asyncio.create_task(shared.keep_renewing())
            try:
                yield shared
            finally:
                renewal.cancel()
                await asyncio.gather(renewal, return_exceptions=True)
                await shared.release()

    def read(self, run: RunId) -> Trajectory:
        """Returns the log of the run. If Redis and the disk both contain a copy, reads the longer copy; if both are
        equally long, the one in Redis, which another worker may have written. If both copies are missing, reads the
        log from the archive.

        Blocks. Raises LogError.
        """
        try:
            local: Trajectory | LogError = self._files.read(run)
        except LogError as exc:
            local = exc
        known = () if isinstance(local, LogError) else local.entries
        with contextlib.suppress(QueueDown), redis_errors():
            length = cast("int", self._blocking_redis.xlen(stream_key(run)))
            if length > len(known) or (length == len(known) > 0 and not self._is_last(run, known[-1])):
                entries = cast("_StreamEntries", self._blocking_redis.xrange(stream_key(run)))
                return Trajectory(_parse_entries(entries))
        if isinstance(local, Trajectory):
            return local
        try:
            return self._read_archived(run)
        except LogError:
            raise local from None

    def _is_last(self, run: RunId, entry: Entry) -> bool:
        last = cast("_StreamEntries", self._blocking_redis.xrevrange(stream_key(run), count=1))
        return _parse_entries(last) == (entry,)

    def delete(self, run: RunId) -> None:
        """Deletes the log on the local disk. Blocks."""
        self._files.delete(run)

    async def list_idle(self, seconds: float, limit: int) -> tuple[RunId, ...]:
        """Returns at most `limit` idle runs that are not archived, oldest first. A run is idle if it has no
        writer and its last line is older than `seconds`.

        Raises QueueDown.
        """
        now, _ = await self._redis.time()
        names = await self._redis.zrangebyscore(UNARCHIVED_KEY, "-inf", now - seconds, start=0, num=limit)
        runs = [RunId(name.decode()) for name in names]
        has_writer = [bool(await self._redis.exists(writer_key(run))) for run in runs]
        return tuple(run for run, is_written in zip(runs, has_writer, strict=True) if not is_written)

    async def postpone_archiving(self, run: RunId) -> None:
        """Moves a run to the end of the list of runs that wait to be archived. Raises QueueDown."""
        now, _ = await self._redis.time()
        await self._redis.zadd(UNARCHIVED_KEY, {run: now}, xx=True)

    async def read_lines(self, run: RunId) -> tuple[bytes, ...]:
        """Returns all lines of the run's stream. Raises QueueDown."""
        return tuple(fields[b"entry"] for _, fields in await self._redis.xrange(stream_key(run)))

    async def expire_stream(self, run: RunId, archived_count: int) -> bool:
        """Lets the stream of an archived run expire. Returns False if the run has a writer, or its stream is
        longer than the archived log.

        Raises QueueDown.
        """
        keys = (writer_key(run), stream_key(run), UNARCHIVED_KEY)
        expired = await cast(
            "Any",
            self._redis.eval(
                _EXPIRE_STREAM_SCRIPT, 3, *keys, run, str(archived_count), str(RETENTION_SECONDS)
            ),
        )
        return bool(expired)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)
        self._blocking_redis.close()


class SharedRunLog:
    """The log of one run. Only one process of the deployment can write to this log at a time."""

    def __init__(
        self, file: FileRunLog, run: RunId, redis: Redis, lease_seconds: float, *, is_archived: bool = True
    ) -> None:
        self._file = file
        self._run = run
        self._redis = redis
        self._lease_ms = round(lease_seconds * 1000)
        self._archived_name = run if is_archived else ""
        self._token = secrets.token_hex(16)
        self._keys = (writer_key(run), stream_key(run))
        self._stream_length = 0
        """The last known length of the stream."""
        self._sync_lock = asyncio.Lock()

    @property
    def trajectory(self) -> Trajectory:
        return self._file.trajectory

    async def append(self, event: Event) -> Entry:
        """Appends an event. Raises LogError if `RunLog.append` fails, or another worker has taken over the run."""
        entry = await self._file.append(event)
        await self._sync_stream()
        return entry

    async def check_ownership(self) -> None:
        await self._sync_stream()

    async def acquire(
        self, lease_wait: float, read_archived: Callable[[RunId], Trajectory], archive_wait: float
    ) -> None:
        """Acquires the lease, so that no other process can write to the log. Then copies missing lines, so that
        the local file and the stream are equal. Raises LogError.
        """
        deadline = asyncio.get_running_loop().time() + lease_wait
        try:
            while not await self._acquire_lease():
                if asyncio.get_running_loop().time() >= deadline:
                    raise LogLocked(
                        f"Another process is working on the run in {self._run}: wait until it ends, or stop it."
                    )
                await asyncio.sleep(0.25)
            stream_entries = await self._redis.xrange(self._keys[1])
        except QueueDown as exc:  # the local log is enough to continue
            log.warning("run continues without redis", extra={"run": self._run, "reason": str(exc)})
            return
        shared = _parse_entries(cast("_StreamEntries", stream_entries))
        if not shared and not self._file.trajectory.entries:
            try:
                async with asyncio.timeout(archive_wait):
                    self._file.replace_entries((await asyncio.to_thread(read_archived, self._run)).entries)
            except LogError:
                pass  # the run is not archived, because it is new
            except TimeoutError:
                log.warning("archive unavailable, run starts over", extra={"run": self._run})
        local = self._file.trajectory.entries
        if shared[: len(local)] != local[: len(shared)] or len(shared) > len(local):
            # the stream replaces the file, because other processes may have read the stream, but not the file
            self._file.replace_entries(shared)
        self._stream_length = len(shared)
        await self._sync_stream()

    async def keep_renewing(self) -> None:
        """Renews the lease, and adds missing lines to the stream. Repeats this until canceled."""
        while True:
            await asyncio.sleep(min(RENEW_SECONDS, self._lease_ms / 3000))
            with contextlib.suppress(LogError):  # the next append raises the error
                await self._sync_stream()

    async def release(self) -> None:
        with contextlib.suppress(QueueDown):
            await cast("Any", self._redis.eval(RELEASE_LOCK_SCRIPT, 1, self._keys[0], self._token))

    async def _acquire_lease(self) -> bool:
        return bool(await self._redis.set(self._keys[0], self._token, nx=True, px=self._lease_ms))

    async def _sync_stream(self) -> None:
        """Writes missing lines to the stream. If Redis is down, does nothing, because the file contains the
        lines. Raises LogError.
        """
        async with self._sync_lock:
            try:
                length = await self._append_missing()
                # No worker holds the lease if it has expired or Redis was wiped.
                if length == NO_LEASE and await self._acquire_lease():
                    length = await self._append_missing()
                if length >= 0 and length != len(self._file.trajectory):
                    self._stream_length = length
                    length = await self._append_missing()
            except QueueDown as exc:
                log.warning("run continues without redis", extra={"run": self._run, "reason": str(exc)})
                return
            if length != len(self._file.trajectory):
                raise LogLocked(f"Another worker has taken over the run {self._run}: this worker stops.")
            self._stream_length = length

    async def _append_missing(self) -> int:
        """Writes missing lines to the stream. Returns the result of `_APPEND_SCRIPT`."""
        entries = self._file.trajectory.entries[self._stream_length :]
        lines = [entry.model_dump_json().encode() for entry in entries]
        arguments: list[Any] = [self._token, self._lease_ms, self._stream_length, self._archived_name, *lines]
        return int(
            await cast("Any", self._redis.eval(_APPEND_SCRIPT, 3, *self._keys, UNARCHIVED_KEY, *arguments))
        )


def _parse_entries(stream_entries: _StreamEntries) -> tuple[Entry, ...]:
    try:
        return tuple(ENTRY_ADAPTER.validate_json(fields[b"entry"]) for _, fields in stream_entries)
    except (ValidationError, KeyError) as exc:
        raise LogError("The log in Redis contains a line that this version cannot read.") from exc


def writer_key(run: RunId) -> str:
    """Returns the key of the lease that the run's writer holds."""
    return f"patchwright:writer:{run}"


def stream_key(run: RunId) -> str:
    """Returns the key of the stream with the run's lines."""
    return f"patchwright:log:{run}"
