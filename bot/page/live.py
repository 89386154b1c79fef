"""Runs while they are watched: read once from Redis, told to everybody who watches, from any entry on."""

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from bot.errors import QueueDown
from bot.page.source import Source, left
from resolver.actions import Reported
from resolver.domain import RunId
from resolver.events import Delegated, Observed, Started, Trajectory
from resolver.viewer.exhibits import Album
from resolver.viewer.timeline import touched
from resolver.viewer.viewer import Parts, entries, parts, progress

log = logging.getLogger(__name__)

LIMIT = 4_000  # characters of a text in an entry that is told while it comes
PICTURES = 200_000  # characters of the pictures of one entry that is told while it comes
WAIT_MS = 1_000  # for what comes next
HEAD_SECONDS = 1.0  # between two tellings of what a run has come to
IDLE_SECONDS = 30.0  # that a run is followed which nobody watches
ALIVE_SECONDS = 15.0  # between two signs of life to a browser
MOST_RUNS = 32  # followed at a time
MOST_TOLD = 4 << 20  # bytes of entries that are kept as they were told
MOST_PAGES = 8 << 20  # characters of whole pages that are kept
STALE_SECONDS = (
    5.0  # that the page of a run that goes on is shown again: whoever gets it is told what came since
)

MADE_AT_ONCE = 2  # whole pages: each takes memory, and the processor from those who deliver

IsOver = Callable[[RunId], Awaitable[bool]]
"""Whether nobody works on this run, or is about to; may raise QueueDown."""


@dataclass(frozen=True)
class View:
    """A run as a page shows it."""

    parts: Parts
    last: int
    """Number of the last entry that is in it; -1: there is none."""
    over: bool
    cut: bool
    """Whether there is more of it than is shown."""
    elsewhere: RunId | None
    """The run in whose log the work went on."""


class Live:
    """All runs that somebody looks at. A method may raise QueueDown."""

    def __init__(self, source: Source, is_over: IsOver) -> None:
        self._source = source
        self._is_over = is_over
        self._followed: dict[RunId, Followed] = {}
        self._pages: OrderedDict[RunId, tuple[int, bool, float, View]] = OrderedDict()
        self._making: dict[RunId, asyncio.Lock] = {}
        self._at_once = asyncio.Semaphore(MADE_AT_ONCE)

    async def view(self, run: RunId) -> View:
        """The run as it is, or was a moment ago."""
        async with self._making.setdefault(run, asyncio.Lock()):
            over, size = await self._is_over(run), await self._source.size(run)
            if (kept := self._pages.get(run)) is not None:
                known_size, known_over, made, view = kept
                fresh = time.monotonic() - made < STALE_SECONDS
                if known_over == over and (known_size == size or (not over and fresh)):
                    return view
            view = await self._made(run, over)
            self._pages[run] = (size, over, time.monotonic(), view)
            self._pages.move_to_end(run)
            while sum(len(kept[3].parts.main) for kept in self._pages.values()) > MOST_PAGES:
                dropped, _ = self._pages.popitem(last=False)
                self._making.pop(dropped, None)
                if dropped == run:
                    break
            return view

    async def _made(self, run: RunId, over: bool) -> View:
        async with self._at_once:
            followed = self._followed.get(run)
            if followed is not None and followed.ready:
                trajectory, others, room = followed.trajectory, followed.others, followed.room
            else:
                found = await self._source.read(run)
                trajectory, others, room = found.trajectory, found.others, found.room
            made = await asyncio.to_thread(parts, run, trajectory, others.get, live=not over)
        elsewhere = trajectory.resumed.run if trajectory.resumed else None
        return View(made, len(trajectory) - 1, over, room < 0, elsewhere)

    async def started(self, run: RunId) -> Started | None:
        """How the run began, where its log is still there."""
        return await self._source.started(run)

    def has_room(self, run: RunId) -> bool:
        """Whether this run can be watched; False: as many others are as this process follows."""
        others = [name for name, one in self._followed.items() if one.watched and name != run]
        return len(others) < MOST_RUNS

    async def watch(self, run: RunId, after: int) -> AsyncGenerator[bytes, None]:
        """Events for a browser: each entry after this one, those that are there and those that come, in order.

        Ends when the run has ended.
        """
        followed = self._followed.get(run)
        if followed is None or followed.done:
            for idle in [one for one in self._followed.values() if not one.watched]:
                if len(self._followed) >= MOST_RUNS:
                    await idle.close()
            followed = self._followed[run] = Followed(run, self._source, self._is_over, self._forget)
        async for event in followed.watch(after):
            yield event

    def _forget(self, followed: "Followed") -> None:
        if self._followed.get(followed.run) is followed:
            del self._followed[followed.run]

    async def close(self) -> None:
        """Nobody is told anything more."""
        for followed in tuple(self._followed.values()):
            await followed.close()


class Followed:
    """One run that somebody watches."""

    def __init__(
        self, run: RunId, source: Source, is_over: IsOver, forget: Callable[["Followed"], None]
    ) -> None:
        self.run = run
        self.trajectory = Trajectory()
        self.others: dict[RunId, Trajectory] = {}
        self.ready = False
        """Whether what was there at the beginning is read."""
        self.room = 0
        """Bytes of it that may still be shown; -1: there is more of it than is shown."""
        self.done = False
        """Nothing more is read."""
        self._over = False
        self._source = source
        self._is_over = is_over
        self._told: OrderedDict[int, bytes] = OrderedDict()
        self._telling = asyncio.Lock()
        self._head = b""
        self._headed, self._head_at = -1, 0.0
        self._news = asyncio.Event()
        self._watchers, self._left_at = 0, time.monotonic()
        self._task = asyncio.create_task(self._follow(forget))

    @property
    def watched(self) -> bool:
        """Whether somebody does."""
        return self._watchers > 0

    async def watch(self, after: int) -> AsyncGenerator[bytes, None]:
        """As `Live.watch` has it."""
        self._watchers += 1
        try:
            headed = -1
            while True:
                news = self._news
                while self.ready and after + 1 < len(self.trajectory):
                    after = max(after, -1) + 1
                    yield await self._event(after)
                if self._headed > headed:
                    headed = self._headed
                    yield self._head
                if self.done:
                    if self._over:  # else the browser asks again
                        yield _event("end", None, {"last": after, "cut": self.room < 0})
                    return
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        await news.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._watchers -= 1
            self._left_at = time.monotonic()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, forget: Callable[["Followed"], None]) -> None:
        try:
            found = await self._source.read(self.run)
            self.trajectory, self.others, place = found.trajectory, found.others, found.place
            self.room = found.room
            self.ready = True
            await self._tell_head()
            while self.room >= 0 and (self._watchers or time.monotonic() - self._left_at < IDLE_SECONDS):
                lines = await self._source.streams.next(self.run, place, WAIT_MS)
                if lines:
                    place = lines[-1][0]
                    await self._take(self._shown([line for _, line in lines]))
                elif await self._is_over(self.run):
                    self._over = True
                    break
                if self._headed < len(self.trajectory) and time.monotonic() - self._head_at >= HEAD_SECONDS:
                    await self._tell_head()
            self._over = self._over or self.room < 0  # else a browser would ask again
            await self._tell_head()
        except QueueDown as exc:
            log.warning("a watched run is left", extra={"run": self.run, "reason": str(exc)})
        finally:
            self.done = True
            self._wake()
            forget(self)

    def _shown(self, lines: list[bytes]) -> list[bytes]:
        """Those for which there is room."""
        shown = []
        for line in lines:
            if (room := left(self.room, line)) < 0:
                self.room = room
                break
            self.room = room
            shown.append(line)
        return shown

    async def _take(self, lines: list[bytes]) -> None:
        known = len(self.trajectory)
        longer = await self._source.more(self.trajectory, lines)
        fresh = [entry.event for entry in longer.entries[known:]]
        if any(isinstance(one, Observed) and isinstance(one.observation, Reported) for one in fresh):
            handed = [event.run for event in longer if isinstance(event, Delegated)]
            for run in handed:
                self.others.pop(run, None)  # it was read before it ended
            await self._source.add_others(longer, self.others)
        self.trajectory = longer
        if self._watchers:
            for seq in range(known, len(longer)):
                await self._event(seq)
        self._wake()

    async def _event(self, seq: int) -> bytes:
        async with self._telling:
            if (told := self._told.get(seq)) is None:
                told = self._told[seq] = await asyncio.to_thread(self._rendered, seq)
                while len(self._told) > 1 and sum(map(len, self._told.values())) > MOST_TOLD:
                    self._told.popitem(last=False)
            return told

    def _rendered(self, seq: int) -> bytes:
        album = Album(PICTURES)
        items = touched(self.trajectory, seq, self.others.get, album, LIMIT)
        return _event("entries", seq, {"items": entries(items, album)})

    async def _tell_head(self) -> None:
        self._headed, self._head_at = len(self.trajectory), time.monotonic()
        made = await asyncio.to_thread(progress, self.run, self.trajectory, LIMIT)
        self._head = _event("head", None, {"title": made.title, "head": made.head, "beside": made.beside})
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _event(name: str, id: int | None, data: dict[str, object]) -> bytes:
    """As server-sent events have it. Source: html.spec.whatwg.org, "Server-sent events"."""
    head = f"event: {name}\n" if id is None else f"id: {id}\nevent: {name}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")
