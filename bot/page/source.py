"""Logs as the page reads them: from Redis while they are there, else from this disk; bounded, and free of secrets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from bot.redis.streams import BEGINNING, Streams
from resolver.domain import RunId
from resolver.errors import LogError
from resolver.events import ENTRY, Delegated, Entry, Started, Trajectory
from resolver.log import FileLogs
from resolver.secrets import Secrets
from resolver.security.redact import redacted
from runtime.frozen import Frozen
from runtime.observations import Picture
from runtime.text import clip

MOST_BYTES = 48 << 20  # of one log; what comes after is not shown
MOST_LINE = 8 << 20  # bytes of one entry; a longer one ends what is shown
MOST_OTHERS = 50  # logs of other agents that a run's page shows
FIRST = 10  # entries among which is how a run began
LIMIT = 8_000  # characters that are kept of any text
LIMIT_BYTES = 120_000  # of a diff
MOST_PICTURE = 400_000  # bytes of a picture

Value = TypeVar("Value", bound=Frozen)

Archived = Callable[[RunId], Trajectory]
"""Reads a run; may raise LogError. Blocks."""


@dataclass(frozen=True)
class Found:
    """A log as far as it is shown."""

    trajectory: Trajectory
    place: bytes
    """Where in Redis it was read to."""
    others: dict[RunId, Trajectory]
    """The logs of other agents that it asked."""
    room: int
    """Bytes of it that may still be shown; -1: there is more of it than is shown."""


class Source:
    """Where logs are."""

    def __init__(
        self, streams: Streams, files: FileLogs, secrets: Secrets, archive: Archived | None = None
    ) -> None:
        """`archive`: reads what is neither in Redis nor here; None: nothing does."""
        self.streams = streams
        self._archive = archive
        self._files = files
        self._secrets = secrets

    async def size(self, run: RunId) -> int:
        """A number that is another one when there is more of it; 0: there is nothing. Raises QueueDown."""
        if length := await self.streams.length(run):
            return length
        path = self._path(run)
        if path is None:
            return 0
        return path.stat().st_size if path.is_file() else int(self._archive is not None)

    async def read(self, run: RunId) -> Found:
        """All of it; nothing where there is no such log. Raises QueueDown."""
        trajectory, place, room = await self._one(run)
        others: dict[RunId, Trajectory] = {}
        await self.add_others(trajectory, others)
        return Found(trajectory, place, others, room)

    async def started(self, run: RunId) -> Started | None:
        """How the run began: one of its first entries says so. Raises QueueDown."""
        found = Trajectory()
        async for _, line in self._lines(run):
            found = self._with(found, [line])
            if found.started is not None or not 0 < len(found) < FIRST:
                break
        if not found.entries:
            found, _, _ = await self._one(run)
        return found.started

    async def add_others(self, trajectory: Trajectory, others: dict[RunId, Trajectory]) -> None:
        """Read the logs of the agents that this one asked, and of those that they asked. Raises QueueDown."""
        for event in trajectory:
            if isinstance(event, Delegated) and event.run not in others and len(others) < MOST_OTHERS:
                found, _, _ = await self._one(event.run)
                if found.entries:
                    others[event.run] = found
                    await self.add_others(found, others)

    async def more(self, trajectory: Trajectory, lines: list[bytes]) -> Trajectory:
        """The run with these lines of it, those that it has already left out."""
        return await asyncio.to_thread(self._with, trajectory, lines)

    async def _one(self, run: RunId) -> tuple[Trajectory, bytes, int]:
        trajectory, last, room = Trajectory(), BEGINNING, MOST_BYTES
        some: list[bytes] = []
        async for place, line in self._lines(run):
            last, room = place, left(room, line)
            if room < 0:
                break
            some.append(line)
            if len(some) >= 50:
                trajectory, some = await self.more(trajectory, some), []
        trajectory = await self.more(trajectory, some)
        if not trajectory.entries and self._archive is not None and self._path(run) is not None:
            trajectory = await asyncio.to_thread(self._archived, run, self._archive)
        return trajectory, last, room

    def _archived(self, run: RunId, read: Archived) -> Trajectory:
        try:
            return Trajectory(tuple(self._shown(entry) for entry in read(run).entries))
        except LogError:
            return Trajectory()

    async def _lines(self, run: RunId) -> AsyncIterator[tuple[bytes, bytes]]:
        in_redis = False
        async for place, line in self.streams.lines(run):
            in_redis = True
            yield place, line
        path = self._path(run)
        if not in_redis and path is not None and path.is_file():
            for line in await asyncio.to_thread(lambda: list(_bounded(path))):
                yield BEGINNING, line

    def _path(self, run: RunId) -> Path | None:
        try:
            return self._files.path(run) / "events.jsonl"
        except LogError:
            return None

    def _with(self, trajectory: Trajectory, lines: list[bytes]) -> Trajectory:
        for line in lines:
            try:
                entry = ENTRY.validate_json(line)
            except ValidationError:  # of another version, or the torn last line of a file
                break
            if entry.seq == len(trajectory):
                trajectory = trajectory.followed_by(self._shown(entry))
        return trajectory

    def _shown(self, entry: Entry) -> Entry:
        return shortened(redacted(entry, self._secrets))


def left(room: int, line: bytes) -> int:
    """Bytes that may be shown after this line; -1: it may not be shown, and nothing after it."""
    return -1 if len(line) > MOST_LINE else max(-1, room - len(line))


def _bounded(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last one only if it is whole, or too long to be shown."""
    room = MOST_BYTES
    with path.open("rb") as file:
        while room >= 0 and ((line := file.readline(MOST_LINE + 1)).endswith(b"\n") or len(line) > MOST_LINE):
            room -= len(line)
            yield line


def shortened(value: Value) -> Value:
    """The value with every long text in it clipped, and every large picture left out."""
    return _each(value, _short)


def _short(value: Any) -> Any:
    match value:
        case str() if len(value) > LIMIT:
            return clip(value, LIMIT)
        case bytes() if len(value) > LIMIT_BYTES:
            return value[:LIMIT_BYTES]
        case Picture():
            return value if len(value.data) <= MOST_PICTURE else value.model_copy(update={"data": b""})
        case _:
            return None


def _each(value: Value, change: Callable[[Any], Any]) -> Value:
    """A copy only where something in it changes: most entries are small."""
    changed = {
        name: new
        for name in type(value).model_fields
        if (new := _changed(old := getattr(value, name), change)) is not old
    }
    return value.model_copy(update=changed) if changed else value


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if (new := change(value)) is not None:
        return new
    match value:
        case Frozen():
            return _each(value, change)
        case tuple() | list():
            return _unless_same(value, type(value)(_changed(each, change) for each in value))
        case dict():
            new = {key: _changed(each, change) for key, each in value.items()}
            return new if any(new[key] is not each for key, each in value.items()) else value
        case _:
            return value


def _unless_same(old: Sequence[Any], new: Sequence[Any]) -> Sequence[Any]:
    return new if any(one is not other for one, other in zip(old, new, strict=True)) else old
