"""The append-only log of a run: the seam, and the file that is written before anything else happens."""

import fcntl
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from resolver.domain import RunId
from resolver.errors import LogError, LogTaken
from resolver.events import ENTRY, Entry, Event, Trajectory

logger = logging.getLogger(__name__)

Listener = Callable[[Entry], None]


class Log(Protocol):
    """One run, held by one writer."""

    @property
    def trajectory(self) -> Trajectory:
        """Everything so far."""

    async def append(self, event: Event) -> Entry:
        """The event as an entry of the log, safe on disk (or wherever the log lives) before this returns.

        Raises LogError when it could not be written; then nothing of it stays.
        """

    async def confirm(self) -> None:
        """Raises LogTaken when another writer has gone on with the run, thinking this one dead."""


class Logs(Protocol):
    """Where runs are kept."""

    def open(self, run: RunId, listeners: Sequence[Listener] = ()) -> AbstractAsyncContextManager[Log]:
        """The log of a run, new or to be continued, held until the context ends.

        Each listener hears each entry that is appended here, in order, once, after it was made safe; what was
        there before is in the trajectory. An error of a listener is raised to the appender, after the others
        heard the entry too. Raises LogError when another process writes to this run, or the log is damaged.
        """

    def read(self, run: RunId) -> Trajectory:
        """A run as it is on disk, whoever writes to it; blocks.

        Raises LogError when there is none or it is damaged.
        """


def is_name(run: str) -> bool:
    """Whether it is one plain name of a directory, wherever that is."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", run) is not None


class FileLogs:
    """Runs as directories with an `events.jsonl` each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, run: RunId) -> Path:
        """The run's directory. Raises LogError for a name that is not one plain directory name."""
        if not is_name(run):
            raise LogError(f"`{run[:80]}` is not a run's name: letters, digits and `._-` only.")
        return self._directory / run

    @asynccontextmanager
    async def open(self, run: RunId, listeners: Sequence[Listener] = ()) -> AsyncIterator["FileLog"]:
        directory = self.path(run)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)  # it holds private code and whatever the issue says
        log = FileLog(directory / "events.jsonl", listeners)
        try:
            yield log
        finally:
            log.close()

    def read(self, run: RunId) -> Trajectory:
        """A run as it is on disk, whoever writes to it.

        Raises LogError when there is none or it is damaged.
        """
        path = self.path(run) / "events.jsonl"
        try:
            content = path.read_bytes()
        except OSError as exc:
            raise LogError(f"There is no run `{run}` below {self._directory} ({exc.strerror}).") from exc
        return trajectory_of(content, path)


class FileLog:
    """JSON lines in one file, locked while it is open."""

    def __init__(self, path: Path, listeners: Sequence[Listener] = ()) -> None:
        self._path = path
        self._listeners = tuple(listeners)
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self._lock()
            self._trajectory = self._reopen()
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def trajectory(self) -> Trajectory:
        return self._trajectory

    async def append(self, event: Event) -> Entry:
        # Written here and not in a thread: 0.1 ms against 0.15, and a cancellation cannot come between the
        # file and the trajectory.
        entry = Entry(seq=len(self._trajectory), at=datetime.now(UTC), event=event)
        self._write(entry.model_dump_json().encode() + b"\n")
        self._trajectory = self._trajectory.followed_by(entry)
        with ExitStack() as hearing:  # each hears it, even when the one before raised
            for listener in reversed(self._listeners):
                hearing.callback(listener, entry)
        return entry

    async def confirm(self) -> None:
        return  # its lock is this process's until it ends

    def hold(self, entries: Sequence[Entry]) -> None:
        """Make these the run, whatever the file held: another machine has gone on with it. No listener hears them.

        Raises LogError when they could not be written.
        """
        self._truncate(0)
        self._write(b"".join(entry.model_dump_json().encode() + b"\n" for entry in entries))
        self._trajectory = Trajectory(tuple(entries))

    def close(self) -> None:
        """Let go of the file and its lock. Closing twice is once."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise LogTaken(
                f"Another process is working on the run in {self._path.parent}: wait for its end, or stop it."
            ) from exc

    def _reopen(self) -> Trajectory:
        content = self._path.read_bytes()
        entries, whole = _parse(content, self._path)
        if whole < len(content):
            logger.warning(
                "torn last line cut off", extra={"path": str(self._path), "bytes": len(content) - whole}
            )
            os.ftruncate(self._descriptor, whole)
        self._size = whole
        if not content:
            _sync_directory(self._path.parent)
        return Trajectory(entries)

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise LogError(f"The log {self._path} is closed.")
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fdatasync(self._descriptor)
        except OSError as exc:
            self._truncate(self._size)
            raise LogError(f"The log {self._path} cannot be written: {exc.strerror}.") from exc
        self._size += len(line)


def trajectory_of(content: bytes, path: Path | str) -> Trajectory:
    """What these lines of a log say, without a torn last one; `path` is where they were read.

    Raises LogError when they are damaged.
    """
    return Trajectory(_parse(content, path)[0])


def _parse(content: bytes, path: Path | str) -> tuple[tuple[Entry, ...], int]:
    """The entries, and how many bytes they take: less than all when the last line is torn."""
    entries: list[Entry] = []
    size = 0
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            entry = ENTRY.validate_json(line)
        except ValidationError as exc:
            if number == len(lines) and not rest and exc.errors()[0]["type"] == "json_invalid":
                break
            raise LogError(f"{path}, line {number} is not an event of this version: {_first(exc)}.") from exc
        if entry.seq != len(entries):
            raise LogError(f"{path}, line {number} has number {entry.seq} where {len(entries)} should be.")
        entries.append(entry)
        size += len(line) + 1
    return tuple(entries), size


def _first(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"


def _sync_directory(path: Path) -> None:
    """Make the new file's name as safe as its content will be."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
