"""Where runs are kept for good, whatever fsspec reaches: a directory, s3://, sftp://; and how they get there."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bot.errors import ArchiveDown, QueueDown
from resolver.domain import RunId
from resolver.errors import LogError, SettingsError
from resolver.events import Trajectory
from resolver.log import FileLogs, is_name, trajectory_of
from resolver.settings.settings import Settings

if TYPE_CHECKING:
    from bot.redis.log import SharedLogs

log = logging.getLogger(__name__)

FILE = "events.jsonl"
OBJECTS = frozenset({"abfs", "adl", "az", "gcs", "gs", "oci", "oss", "s3", "s3a"})
"""Stores that know no directories: there, to make one would be to make a bucket."""

QUIET_SECONDS = (
    30.0  # that nobody has written to a run before it is archived; what goes on later is archived again
)
OTHERS_SECONDS = 3600.0  # the same for one that is on another worker's disk, and has no archive but disks
EVERY_SECONDS = 15.0
KEEP_SECONDS = 300.0  # for one run
AT_ONCE = 200  # runs that are looked at together
MOST_FAILURES = 3  # in a row, after which the archive is left alone until the next look


class Archive:
    """Runs below a URL, each as a directory with its log. Every method blocks."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError when this is not installed, or no such URL."""
        try:
            from fsspec.core import url_to_fs
        except ImportError as exc:
            raise SettingsError(
                "PATCHWRIGHT_ARCHIVE needs one more package: pip install patchwright[archive]."
            ) from exc
        try:
            self._files, root = url_to_fs(url)
        except (ImportError, ValueError, TypeError, KeyError) as exc:  # its drivers are packages of their own
            raise SettingsError(
                f"PATCHWRIGHT_ARCHIVE: {urlsplit(url).scheme or 'this'} cannot be used: {exc}."
            ) from exc
        self._root = root.rstrip("/")
        kinds = self._files.protocol
        self._kinds = {kinds} if isinstance(kinds, str) else set(kinds)

    def keep(self, run: RunId, content: bytes) -> None:
        """Its log is this. A longer one that is there stays beside it: its run began anew. Raises ArchiveDown."""
        path = self._path(run)
        try:
            self._files.invalidate_cache()  # others write there too
            if self._files.exists(path) and (size := self._files.size(path)) > len(content):
                self._files.mv(path, path.removesuffix(FILE) + f"longer-{size}.jsonl")
            if "file" in self._kinds:
                Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds private code
            elif not OBJECTS & self._kinds:
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, content)
        except Exception as exc:
            raise ArchiveDown(f"The archive does not take {run}: {type(exc).__name__}: {exc}") from exc

    def read(self, run: RunId) -> Trajectory:
        """A run as it was archived last. Raises LogError when there is none, or it cannot be read."""
        path = self._path(run)
        try:
            content = self._files.cat_file(path)
        except FileNotFoundError as exc:
            raise LogError(f"There is no run `{run}` in the archive.") from exc
        except Exception as exc:
            raise LogError(f"The archive does not give `{run}`: {type(exc).__name__}: {exc}") from exc
        return trajectory_of(content, path)

    def listed(self) -> Iterator[tuple[RunId, datetime]]:
        """All runs that are there, with when they were archived (now, where that is not known). Raises ArchiveDown."""
        try:
            self._files.invalidate_cache()
            found: dict[str, dict[str, Any]] = self._files.find(self._root, maxdepth=2, detail=True)
        except Exception as exc:
            raise ArchiveDown(f"The archive cannot be listed: {type(exc).__name__}: {exc}") from exc
        for path, facts in found.items():
            run, _, name = path.removeprefix(self._root).lstrip("/").partition("/")
            if name == FILE and is_name(run):  # whatever else somebody has put there is none of ours
                yield RunId(run), _changed(facts)

    def _path(self, run: RunId) -> str:
        if not is_name(run):
            raise LogError(f"`{run[:80]}` is not a run's name: letters, digits and `._-` only.")
        return f"{self._root}/{run}/{FILE}"


class Kept:
    """Runs on this disk, and those of the archive behind them."""

    def __init__(self, here: FileLogs, archive: Archive | None) -> None:
        self._here = here
        self._archive = archive

    def read(self, run: RunId) -> Trajectory:
        """Blocks. Raises LogError."""
        if self._archive is None or (self._here.path(run) / FILE).exists():
            return self._here.read(run)
        return self._archive.read(run)

    def elsewhere(self) -> dict[RunId, datetime]:
        """Runs that only the archive has, with when they were archived. Blocks. Raises ArchiveDown."""
        found = self._archive.listed() if self._archive else ()
        return {run: at for run, at in found if not (self._here.path(run) / FILE).exists()}


def archive_of(settings: Settings) -> Archive | None:
    """The one of the settings. Raises SettingsError."""
    return Archive(settings.archive) if settings.archive else None


def kept_runs(settings: Settings) -> Kept:
    """All runs that this machine can read. Raises SettingsError."""
    return Kept(FileLogs(settings.data / "runs"), archive_of(settings))


class Archivist:
    """Brings the runs of a Redis to the archive, or to the disk of whoever did them; then Redis may forget them."""

    def __init__(
        self, logs: "SharedLogs", here: FileLogs, archive: Archive | None, *, quiet: float = QUIET_SECONDS
    ) -> None:
        self._logs = logs
        self._here = here
        self._archive = archive
        self._quiet = quiet

    async def run(self) -> None:
        """Until cancelled: what is not kept yet is tried again and again."""
        while True:
            try:
                while await self.sweep():
                    pass
            except QueueDown as exc:
                log.warning("nothing is archived", extra={"reason": str(exc)})
            await asyncio.sleep(EVERY_SECONDS)

    async def sweep(self) -> int:
        """Keep what nobody works on; how many runs Redis may forget now. Raises QueueDown."""
        kept = failures = 0
        for run in await self._logs.quiet(self._quiet, AT_ONCE):
            try:
                async with asyncio.timeout(KEEP_SECONDS):
                    count = await self._keep(run)
            except (ArchiveDown, LogError, TimeoutError) as exc:
                log.warning("run not archived", extra={"run": run, "reason": str(exc) or "it took too long"})
                await self._logs.put_off(run)
                failures += 1
                if failures == MOST_FAILURES:
                    break
                continue
            failures = 0
            if count is not None and await self._logs.let_go(run, count):
                kept += 1
        return kept

    async def _keep(self, run: RunId) -> int | None:
        """How many lines of it are kept elsewhere than in Redis; None: its worker is still to keep it."""
        lines = await self._logs.lines(run)
        if self._archive is not None:
            content = b"".join(line + b"\n" for line in lines)
            await asyncio.to_thread(self._archive.keep, run, content)
            return len(lines)
        if await asyncio.to_thread(_length, self._here, run) >= len(lines):
            return len(lines)
        if run not in await self._logs.quiet(OTHERS_SECONDS, AT_ONCE):
            return None
        async with self._logs.open(run) as opened:  # brings it to this disk
            return len(opened.trajectory)


def _length(here: FileLogs, run: RunId) -> int:
    try:
        return len(here.read(run))
    except LogError:
        return 0


def _changed(facts: dict[str, Any]) -> datetime:
    for name in ("LastModified", "last_modified", "mtime", "modified", "created"):
        value = facts.get(name)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
    return datetime.now(UTC)
