"""The archive of runs, on any file system that fsspec supports, such as a directory, s3:// or sftp://."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from patchwright.bot.errors import ArchiveDown, QueueDown
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError, SettingsError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.run_log import FileLogStore, is_valid_run_id, parse_trajectory
from patchwright.resolver.settings.settings import Settings

if TYPE_CHECKING:
    from patchwright.bot.redis.shared_run_log import SharedLogStore

log = logging.getLogger(__name__)

LOG_FILE_NAME = "events.jsonl"
OBJECT_STORES = frozenset({"abfs", "adl", "az", "gcs", "gs", "oci", "oss", "s3", "s3a"})
"""Storage systems that have no directories. Creating a directory on them would create a bucket."""

# How long a run must be idle before it is archived. A run that continues later is archived again.
IDLE_SECONDS = 30.0
# If no archive is configured: how long a run of another worker must be idle before this worker copies the run
# to its own disk.
REMOTE_IDLE_SECONDS = 3600.0
SWEEP_INTERVAL_SECONDS = 15.0
ARCHIVE_TIMEOUT_SECONDS = 300.0  # time limit for copying one run
SWEEP_BATCH_SIZE = 200  # maximum number of runs per query
MAX_FAILURES = 3  # number of consecutive failures after which a call of `sweep` stops


class Archive:
    """Stores runs under a URL, with one directory per run. Every method blocks."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError if fsspec is not installed or the URL is invalid."""
        try:
            from fsspec.core import url_to_fs
        except ImportError as exc:
            raise SettingsError(
                "PATCHWRIGHT_ARCHIVE needs another package: pip install patchwright[archive]."
            ) from exc
        try:
            self._filesystem, root = url_to_fs(url)
        # fsspec's drivers are separate packages
        except (ImportError, ValueError, TypeError, KeyError) as exc:
            raise SettingsError(
                f"PATCHWRIGHT_ARCHIVE cannot use {urlsplit(url).scheme or 'this URL'}: {exc}."
            ) from exc
        self._root = root.rstrip("/")
        protocol = self._filesystem.protocol
        self._protocols = {protocol} if isinstance(protocol, str) else set(protocol)

    def store(self, run: RunId, content: bytes) -> None:
        """Stores the log of a run. If the archive already contains a longer log of this run, renames the longer
        log instead of replacing it.

        Raises ArchiveDown.
        """
        path = self._path(run)
        try:
            self._filesystem.invalidate_cache()  # other workers also write to the archive
            if self._filesystem.exists(path) and (size := self._filesystem.size(path)) > len(content):
                self._filesystem.mv(path, path.removesuffix(LOG_FILE_NAME) + f"longer-{size}.jsonl")
            if "file" in self._protocols:
                # the log may contain private code
                Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif not OBJECT_STORES & self._protocols:
                self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._filesystem.pipe_file(path, content)
        except Exception as exc:
            raise ArchiveDown(f"{run} could not be archived: {type(exc).__name__}: {exc}") from exc

    def read(self, run: RunId) -> Trajectory:
        """Returns an archived run. Raises LogError if the archive does not contain the run, or the run cannot
        be read.
        """
        path = self._path(run)
        try:
            content = self._filesystem.cat_file(path)
        except FileNotFoundError as exc:
            raise LogError(f"There is no run `{run}` in the archive.") from exc
        except Exception as exc:
            raise LogError(
                f"`{run}` could not be read from the archive: {type(exc).__name__}: {exc}"
            ) from exc
        return parse_trajectory(content, path)

    def list_runs(self) -> Iterator[tuple[RunId, datetime]]:
        """Yields all archived runs, each with the time when it was archived. If that time is unknown, yields
        the current time. Raises ArchiveDown.
        """
        try:
            self._filesystem.invalidate_cache()
            files: dict[str, dict[str, Any]] = self._filesystem.find(self._root, maxdepth=2, detail=True)
        except Exception as exc:
            raise ArchiveDown(f"The archive cannot be listed: {type(exc).__name__}: {exc}") from exc
        for path, file_info in files.items():
            run, _, name = path.removeprefix(self._root).lstrip("/").partition("/")
            if name == LOG_FILE_NAME and is_valid_run_id(run):  # ignores files that Patchwright did not write
                yield RunId(run), _modified_at(file_info)

    def _path(self, run: RunId) -> str:
        if not is_valid_run_id(run):
            raise LogError(f"`{run[:80]}` is not a valid name of a run: use only letters, digits and `._-`.")
        return f"{self._root}/{run}/{LOG_FILE_NAME}"


class StoredRuns:
    """Reads runs from the local disk and the archive."""

    def __init__(self, local_logs: FileLogStore, archive: Archive | None) -> None:
        self._local_logs = local_logs
        self._archive = archive

    def read(self, run: RunId) -> Trajectory:
        """Returns a run. Blocks. Raises LogError."""
        if self._archive is None or (self._local_logs.run_directory(run) / LOG_FILE_NAME).exists():
            return self._local_logs.read(run)
        return self._archive.read(run)

    def list_archived_only(self) -> dict[RunId, datetime]:
        """Returns the runs that are in the archive but not on the local disk, each with the time when it was
        archived.

        Blocks. Raises ArchiveDown.
        """
        archived = self._archive.list_runs() if self._archive else ()
        return {
            run: archived_at
            for run, archived_at in archived
            if not (self._local_logs.run_directory(run) / LOG_FILE_NAME).exists()
        }


def open_archive(settings: Settings) -> Archive | None:
    """Returns the configured archive, or None if none is configured. Raises SettingsError."""
    return Archive(settings.archive) if settings.archive else None


def open_stored_runs(settings: Settings) -> StoredRuns:
    """Returns a reader of all runs that this machine can read. Raises SettingsError."""
    return StoredRuns(FileLogStore(settings.data / "runs"), open_archive(settings))


class Archiver:
    """Copies idle runs from Redis to the archive, or to this worker's disk if there is no archive. Redis can
    then delete the copied runs.
    """

    def __init__(
        self,
        shared_logs: "SharedLogStore",
        local_logs: FileLogStore,
        archive: Archive | None,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._shared_logs = shared_logs
        self._local_logs = local_logs
        self._archive = archive
        self._idle_seconds = idle_seconds

    async def run(self) -> None:
        """Archives runs until canceled. Retries after failures."""
        while True:
            try:
                while await self.sweep():
                    pass
            except QueueDown as exc:
                log.warning("archiving interrupted", extra={"reason": str(exc)})
            await asyncio.sleep(SWEEP_INTERVAL_SECONDS)

    async def sweep(self) -> int:
        """Archives the idle runs. Returns how many runs Redis may now expire. Raises QueueDown."""
        archived = failures = 0
        for run in await self._shared_logs.list_idle(self._idle_seconds, SWEEP_BATCH_SIZE):
            try:
                async with asyncio.timeout(ARCHIVE_TIMEOUT_SECONDS):
                    count = await self._store_run(run)
            except (ArchiveDown, LogError, TimeoutError) as exc:
                log.warning("run not archived", extra={"run": run, "reason": str(exc) or "timed out"})
                await self._shared_logs.postpone_archiving(run)
                failures += 1
                if failures == MAX_FAILURES:
                    break
                continue
            failures = 0
            if count is not None and await self._shared_logs.expire_stream(run, count):
                archived += 1
        return archived

    async def _store_run(self, run: RunId) -> int | None:
        """Stores a run outside Redis and returns its number of lines.

        If there is no archive, the worker that executed the run stores it. Other workers store the run only
        after it has been idle for REMOTE_IDLE_SECONDS. Before that time, they return None.
        """
        lines = await self._shared_logs.read_lines(run)
        if self._archive is not None:
            content = b"".join(line + b"\n" for line in lines)
            await asyncio.to_thread(self._archive.store, run, content)
            return len(lines)
        if await asyncio.to_thread(_count_local_lines, self._local_logs, run) >= len(lines):
            return len(lines)
        if run not in await self._shared_logs.list_idle(REMOTE_IDLE_SECONDS, SWEEP_BATCH_SIZE):
            return None
        async with self._shared_logs.open(run) as opened:  # reading the run copies it to the local disk
            return len(opened.trajectory)


def _count_local_lines(local_logs: FileLogStore, run: RunId) -> int:
    try:
        return len(local_logs.read(run))
    except LogError:
        return 0


def _modified_at(file_info: dict[str, Any]) -> datetime:
    for name in ("LastModified", "last_modified", "mtime", "modified", "created"):
        value = file_info.get(name)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
    return datetime.now(UTC)
