"""The append-only log of a run: its protocol, and its implementation as a file."""

import fcntl
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError, LogLocked
from patchwright.resolver.events import ENTRY_ADAPTER, Entry, Event, Trajectory

logger = logging.getLogger(__name__)

Listener = Callable[[Entry], None]


class RunLog(Protocol):
    """The log of one run, which has a single writer."""

    @property
    def trajectory(self) -> Trajectory:
        """All entries so far."""

    async def append(self, event: Event) -> Entry:
        """Appends an event. Returns once the event is stored durably.

        Raises LogError if the event could not be written. In that case, no part of the event is stored.
        """

    async def check_ownership(self) -> None:
        """Raises LogLocked if another writer has taken over the run because this writer seemed to be dead."""


class LogStore(Protocol):
    """Stores the logs of runs."""

    def open(self, run: RunId, listeners: Sequence[Listener] = ()) -> AbstractAsyncContextManager[RunLog]:
        """Opens the log of a new or existing run, and locks it until the context exits.

        After an entry is stored, each listener is called with this entry. Listeners do not get entries that
        were stored before the log was opened. These entries are in the trajectory. If a listener raises an
        exception, the other listeners are still called, and `append` raises the exception. Raises LogError if
        another process writes to this run, or if the log is damaged.
        """

    def read(self, run: RunId) -> Trajectory:
        """Reads a run, even if its log is locked. This call blocks the thread.

        Raises LogError if the run does not exist or its log is damaged.
        """


def is_valid_run_id(run: str) -> bool:
    """Returns True if the id is a plain directory name on every system."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", run) is not None


class FileLogStore:
    """Stores the log of each run in its own directory, in the file `events.jsonl`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run_directory(self, run: RunId) -> Path:
        """Returns the run's directory. Raises LogError if the id is not a plain directory name."""
        if not is_valid_run_id(run):
            raise LogError(f"`{run[:80]}` is not a valid name of a run: use only letters, digits and `._-`.")
        return self._directory / run

    @asynccontextmanager
    async def open(self, run: RunId, listeners: Sequence[Listener] = ()) -> AsyncIterator["FileRunLog"]:
        directory = self.run_directory(run)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)  # The log contains private code and the text of the issue.
        log = FileRunLog(directory / "events.jsonl", listeners)
        try:
            yield log
        finally:
            log.close()

    def delete(self, run: RunId) -> None:
        """Deletes the run's directory if it exists."""
        shutil.rmtree(self.run_directory(run), ignore_errors=True)

    def read(self, run: RunId) -> Trajectory:
        """Reads a run, even if its log is locked. Raises LogError if the run does not exist or its log is
        damaged.
        """
        path = self.run_directory(run) / "events.jsonl"
        try:
            content = path.read_bytes()
        except OSError as exc:
            raise LogError(f"There is no run `{run}` in {self._directory} ({exc.strerror}).") from exc
        return parse_trajectory(content, path)


class FileRunLog:
    """A log in one file with JSON lines. The file is locked while it is open."""

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
        # The entry is not written in a separate thread. With a thread, a write would take 0.15 ms instead of
        # 0.1 ms, and a cancellation could make the file differ from the trajectory.
        entry = Entry(seq=len(self._trajectory), timestamp=datetime.now(UTC), event=event)
        self._write(entry.model_dump_json().encode() + b"\n")
        self._trajectory = self._trajectory.with_entry(entry)
        with ExitStack() as callbacks:  # Calls every listener, even if one of them raises.
            for listener in reversed(self._listeners):
                callbacks.callback(listener, entry)
        return entry

    async def check_ownership(self) -> None:
        return  # This process holds the file lock, so no other writer can take over.

    def replace_entries(self, entries: Sequence[Entry]) -> None:
        """Replaces the whole log after another machine has continued the run. Listeners are not called.

        Raises LogError if the log could not be written.
        """
        self._truncate(0)
        self._write(b"".join(entry.model_dump_json().encode() + b"\n" for entry in entries))
        self._trajectory = Trajectory(tuple(entries))

    def close(self) -> None:
        """Closes the file and releases its lock. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise LogLocked(
                f"Another process is working on the run in {self._path.parent}: wait until it ends, or stop it."
            ) from exc

    def _reopen(self) -> Trajectory:
        content = self._path.read_bytes()
        entries, complete_size = _parse(content, self._path)
        if complete_size < len(content):
            logger.warning(
                "incomplete log line removed",
                extra={"path": str(self._path), "bytes": len(content) - complete_size},
            )
            os.ftruncate(self._descriptor, complete_size)
        self._size = complete_size
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


def parse_trajectory(content: bytes, path: Path | str) -> Trajectory:
    """Parses the lines of a log and ignores an incomplete last line. `path` is used in error messages.

    Raises LogError if the other lines are damaged.
    """
    return Trajectory(_parse(content, path)[0])


def _parse(content: bytes, path: Path | str) -> tuple[tuple[Entry, ...], int]:
    """Returns the entries and their size in bytes. If the last line is incomplete, the size does not include
    this line.
    """
    entries: list[Entry] = []
    size = 0
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            entry = ENTRY_ADAPTER.validate_json(line)
        except ValidationError as exc:
            if number == len(lines) and not rest and exc.errors()[0]["type"] == "json_invalid":
                break
            raise LogError(
                f"{path}, line {number} is not an event of this version: {_first_problem(exc)}."
            ) from exc
        if entry.seq != len(entries):
            raise LogError(f"{path}, line {number} has entry number {entry.seq}, expected {len(entries)}.")
        entries.append(entry)
        size += len(line) + 1
    return tuple(entries), size


def _first_problem(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"


def _sync_directory(path: Path) -> None:
    """Writes the directory entry to disk, so that a new file survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
