"""Reads run logs for the dashboard from Redis, the local disk or the archive. Clips long texts and masks
secrets.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from patchwright.bot.redis.log_streams import FIRST_ID, LogStreams
from patchwright.bot.usage_report import join_resumed_work
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import ENTRY_ADAPTER, Entry, RunStarted, Trajectory
from patchwright.resolver.masking import mask_model
from patchwright.resolver.run_events import SubagentSpawned
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ImageData
from patchwright.runtime.output_text import clip

MAX_LOG_BYTES = 48 << 20  # bytes of one log; later entries are hidden
MAX_ENTRY_BYTES = 8 << 20  # bytes of one entry; a longer entry is hidden, and so are all later entries
MAX_SUBAGENTS = 50  # maximum number of subagent logs that are shown with a run
START_SEARCH_ENTRIES = 10  # the start event is among these first entries
MAX_TEXT = 8_000  # characters; longer texts are clipped
MAX_DIFF_BYTES = 120_000  # maximum bytes of a diff
MAX_PICTURE_BYTES = 400_000  # maximum bytes of a picture

Value = TypeVar("Value", bound=FrozenModel)

ReadArchive = Callable[[RunId], Trajectory]
"""Reads the trajectory of a run; may raise LogError. Blocks."""


@dataclass(frozen=True)
class LoadedLog:
    """The part of a log that the dashboard shows."""

    trajectory: Trajectory
    stream_position: bytes
    """The id of the last entry that was read from the Redis stream."""
    subagents: dict[RunId, Trajectory]
    """The logs of the run's subagents, including the subagents of subagents."""
    remaining_bytes: int
    """Number of bytes of the log that may still be shown; -1 if the rest of the log is hidden."""


class LogReader:
    """Reads logs from Redis, from this machine's disk, or from the archive."""

    def __init__(
        self,
        streams: LogStreams,
        files: FileLogStore,
        secrets: Secrets,
        read_archive: ReadArchive | None = None,
    ) -> None:
        """`read_archive` is called for a log that is missing in Redis and on this machine's disk. It is None if
        there is no archive.
        """
        self.streams = streams
        self._archive = read_archive
        self._files = files
        self._secrets = secrets

    async def size(self, run: RunId) -> int:
        """Returns a number that changes when the log grows; 0 if there is no log. Raises QueueDown."""
        path = self._path(run)
        if path is None:
            return 0
        bytes_on_disk = path.stat().st_size if path.is_file() else 0
        return await self.streams.count_lines(run) + bytes_on_disk or int(self._archive is not None)

    async def read(self, run: RunId) -> LoadedLog:
        """Reads a run's log and the logs of its subagents. The result is empty if the run has no log. Raises
        QueueDown.
        """
        trajectory, position, remaining = await self._read_log(run)
        subagents: dict[RunId, Trajectory] = {}
        await self.load_subagents(trajectory, subagents)
        return LoadedLog(trajectory, position, subagents, remaining)

    async def read_start(self, run: RunId) -> RunStarted | None:
        """Returns the start event of a run, or None if the log has no start event. Raises QueueDown."""
        found = Trajectory()
        async for _, line in self._iter_lines(run):
            found = self._parse_lines(found, [line])
            if found.run_started is not None or not 0 < len(found) < START_SEARCH_ENTRIES:
                break
        if not found.entries:
            found, _, _ = await self._read_log(run)
        return found.run_started

    async def join_earlier_log(self, run: RunId, trajectory: Trajectory) -> Trajectory:
        """Returns the work of a job that resumed an earlier run, with the start of that run. Returns the trajectory
        itself if the job resumed no run. Raises QueueDown.
        """
        if (resumed := trajectory.run_resumed) is None:
            return trajectory
        earlier, _, _ = await self._read_log(resumed.run)
        return join_resumed_work(run, trajectory, earlier)

    async def load_subagents(self, trajectory: Trajectory, subagents: dict[RunId, Trajectory]) -> None:
        """Reads the logs of all subagents of this trajectory, including the subagents of subagents.

        Adds the logs to `subagents`. Raises QueueDown.
        """
        for event in trajectory:
            if (
                isinstance(event, SubagentSpawned)
                and event.run not in subagents
                and len(subagents) < MAX_SUBAGENTS
            ):
                found, _, _ = await self._read_log(event.run)
                if found.entries:
                    subagents[event.run] = found
                    await self.load_subagents(found, subagents)

    async def append_lines(self, trajectory: Trajectory, lines: list[bytes]) -> Trajectory:
        """Returns the trajectory with the entries of these lines appended. Skips entries that the trajectory
        already contains.
        """
        return await asyncio.to_thread(self._parse_lines, trajectory, lines)

    async def _read_log(self, run: RunId) -> tuple[Trajectory, bytes, int]:
        trajectory, last, remaining = Trajectory(), FIRST_ID, MAX_LOG_BYTES
        batch: list[bytes] = []
        async for position, line in self._iter_lines(run):
            last, remaining = position, remaining_after(remaining, line)
            if remaining < 0:
                break
            batch.append(line)
            if len(batch) >= 50:
                trajectory, batch = await self.append_lines(trajectory, batch), []
        trajectory = await self.append_lines(trajectory, batch)
        if not trajectory.entries and self._archive is not None and self._path(run) is not None:
            trajectory = await asyncio.to_thread(self._read_archived, run, self._archive)
        return trajectory, last, remaining

    def _read_archived(self, run: RunId, read_archive: ReadArchive) -> Trajectory:
        try:
            return Trajectory(tuple(self._sanitize(entry) for entry in read_archive(run).entries))
        except LogError:
            return Trajectory()

    async def _iter_lines(self, run: RunId) -> AsyncIterator[tuple[bytes, bytes]]:
        position, last_line, count, size = FIRST_ID, b"", 0, 0
        async for position, line in self.streams.read_lines(run):
            last_line, count, size = line, count + 1, size + len(line) + 1
            yield position, line
        path = self._path(run)
        # The file has more lines if `patchwright resolve --continue` ran while the server was down.
        if path is not None and path.is_file() and path.stat().st_size > size:
            lines = await asyncio.to_thread(lambda: list(_read_bounded_lines(path)))
            if count == 0 or lines[count - 1 : count] == [last_line + b"\n"]:
                for line in lines[count:]:
                    yield position, line

    def _path(self, run: RunId) -> Path | None:
        try:
            return self._files.run_directory(run) / "events.jsonl"
        except LogError:
            return None

    def _parse_lines(self, trajectory: Trajectory, lines: list[bytes]) -> Trajectory:
        for line in lines:
            try:
                entry = ENTRY_ADAPTER.validate_json(line)
            except ValidationError:  # written by another version, or the incomplete last line of a file
                break
            if entry.seq == len(trajectory):
                trajectory = trajectory.with_entry(self._sanitize(entry))
        return trajectory

    def _sanitize(self, entry: Entry) -> Entry:
        return shorten(mask_model(entry, self._secrets))


def remaining_after(remaining: int, line: bytes) -> int:
    """Returns how many more bytes of the log may be shown after this line; -1 if this line and all later ones
    are hidden.
    """
    return -1 if len(line) > MAX_ENTRY_BYTES else max(-1, remaining - len(line))


def _read_bounded_lines(path: Path) -> Iterator[bytes]:
    """Yields the complete lines of a file. Stops after the line that makes the total exceed MAX_LOG_BYTES.

    A line longer than MAX_ENTRY_BYTES is cut to one byte more than this limit, so that the caller can see that
    the line was too long. An incomplete last line is left out, because the worker may still be writing it.
    """
    remaining = MAX_LOG_BYTES
    with path.open("rb") as file:
        while remaining >= 0 and (
            (line := file.readline(MAX_ENTRY_BYTES + 1)).endswith(b"\n") or len(line) > MAX_ENTRY_BYTES
        ):
            remaining -= len(line)
            yield line


def shorten(value: Value) -> Value:
    """Returns the value with its long texts and diffs clipped, and with the data of its large pictures
    removed.
    """
    return _map_fields(value, _shorten_value)


def _shorten_value(value: Any) -> Any:
    match value:
        case str() if len(value) > MAX_TEXT:
            return clip(value, MAX_TEXT)
        case bytes() if len(value) > MAX_DIFF_BYTES:
            return value[:MAX_DIFF_BYTES]
        case ImageData():
            return value if len(value.data) <= MAX_PICTURE_BYTES else value.model_copy(update={"data": b""})
        case _:
            return None


def _map_fields(value: Value, transform: Callable[[Any], Any]) -> Value:
    """Applies `transform` to all fields of the value, including nested fields.

    Returns a changed copy, or the value itself if `transform` changes no field. Most log entries are small and
    are not changed.
    """
    changed = {
        name: new
        for name in type(value).model_fields
        if (new := _map_value(old := getattr(value, name), transform)) is not old
    }
    return value.model_copy(update=changed) if changed else value


def _map_value(value: Any, transform: Callable[[Any], Any]) -> Any:
    if (new := transform(value)) is not None:
        return new
    match value:
        case FrozenModel():
            return _map_fields(value, transform)
        case tuple() | list():
            return _keep_if_same(value, type(value)(_map_value(each, transform) for each in value))
        case dict():
            new = {key: _map_value(each, transform) for key, each in value.items()}
            return new if any(new[key] is not each for key, each in value.items()) else value
        case _:
            return value


def _keep_if_same(old: Sequence[Any], new: Sequence[Any]) -> Sequence[Any]:
    return new if any(one is not other for one, other in zip(old, new, strict=True)) else old
