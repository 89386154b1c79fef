"""Shows runs while they are in progress. Each run's log is read once, even if many browsers watch the run."""

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace

from patchwright.bot.dashboard.log_reader import LogReader, remaining_after
from patchwright.bot.errors import QueueDown
from patchwright.bot.run_summary import RunSummary, summarize_log
from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.confirmation import ConfirmationRequest
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import RunStarted, ToolResult, Trajectory
from patchwright.resolver.run_calls import get_confirmation
from patchwright.resolver.run_events import SubagentSpawned
from patchwright.resolver.viewer.blocks import ImageCollection
from patchwright.resolver.viewer.run_html import RunFragments, render_fragments, render_items, render_progress
from patchwright.resolver.viewer.timeline import find_changed_items

log = logging.getLogger(__name__)

MAX_LIVE_TEXT = 4_000  # maximum characters of each text in a live entry
MAX_LIVE_PICTURES = 200_000  # maximum characters of all pictures in a live entry
READ_BLOCK_MS = 1_000  # how long one read waits for new lines
HEAD_INTERVAL_SECONDS = 1.0  # minimum time between two header updates
IDLE_SECONDS = 30.0  # how long a run is followed after the last watcher left
KEEPALIVE_SECONDS = 15.0  # time between two keepalive comments to a browser
MAX_FOLLOWED_RUNS = 32  # maximum number of runs that are followed at the same time
MAX_CACHED_EVENT_BYTES = 4 << 20  # maximum bytes of rendered events, per run
MAX_CACHED_VIEW_CHARS = 8 << 20  # maximum characters of all rendered pages
# How long the rendered page of a running job is reused. The browser gets the newer entries from the event
# stream.
VIEW_CACHE_SECONDS = 5.0
# Maximum number of pages rendered at the same time. Rendering takes memory and CPU time from the webhook
# receiver.
MAX_CONCURRENT_VIEWS = 2
IsOver = Callable[[RunId], Awaitable[bool]]
"""Returns False if a worker is working on this run, or is about to start it. Otherwise returns True. May raise
QueueDown.
"""


@dataclass(frozen=True)
class RunPageView:
    """A rendered run."""

    content: RunFragments
    last_entry: int
    """The number of the last log entry on the page; -1 if the page shows no entries."""
    is_over: bool
    is_truncated: bool
    """True if the page shows only the start of the log, because the log is too long."""
    resumed_run: RunId | None
    """The earlier run that this job resumed; its log contains the steps. None if the job did not resume a run."""
    waiting: ConfirmationRequest | None
    """The call that waits for approval; None if there is none."""
    summary: RunSummary | None
    """The summary of the log, which may be newer than the summary in the index. None if the log has no start."""


class LiveRuns:
    """Renders runs as pages, and streams new entries to browsers. Methods may raise QueueDown."""

    def __init__(self, log_reader: LogReader, is_over: IsOver) -> None:
        self._log_reader = log_reader
        self._is_over = is_over
        self._followed: dict[RunId, FollowedRun] = {}
        self._view_cache: OrderedDict[RunId, tuple[int, bool, float, RunPageView]] = OrderedDict()
        self._view_locks: dict[RunId, asyncio.Lock] = {}
        self._view_slots = asyncio.Semaphore(MAX_CONCURRENT_VIEWS)

    async def get_view(self, run: RunId) -> RunPageView:
        """Returns the rendered run, which may be a few seconds old."""
        async with self._view_locks.setdefault(run, asyncio.Lock()):
            is_over, size = await self._is_over(run), await self._log_reader.size(run)
            if (cached := self._view_cache.get(run)) is not None:
                if resumed := cached[3].resumed_run:  # The header also shows the work in this run's log.
                    size += await self._log_reader.size(resumed)
                cached_size, cached_over, built_at, view = cached
                is_fresh = time.monotonic() - built_at < VIEW_CACHE_SECONDS
                if cached_over == is_over and (cached_size == size or (not is_over and is_fresh)):
                    return view
            view = await self._build_view(run, is_over)
            self._view_cache[run] = (size, is_over, time.monotonic(), view)
            self._view_cache.move_to_end(run)
            while (
                sum(len(cached[3].content.main) for cached in self._view_cache.values())
                > MAX_CACHED_VIEW_CHARS
            ):
                dropped, _ = self._view_cache.popitem(last=False)
                self._view_locks.pop(dropped, None)
                if dropped == run:
                    break
            return view

    async def _build_view(self, run: RunId, is_over: bool) -> RunPageView:
        async with self._view_slots:
            followed = self._followed.get(run)
            if followed is not None and followed.is_ready:
                trajectory, subagents, remaining_bytes = (
                    followed.trajectory,
                    followed.subagents,
                    followed.remaining_bytes,
                )
            else:
                found = await self._log_reader.read(run)
                trajectory, subagents, remaining_bytes = (
                    found.trajectory,
                    found.subagents,
                    found.remaining_bytes,
                )
            fragments = await asyncio.to_thread(
                render_fragments, run, trajectory, subagents.get, is_live=not is_over
            )
            if resumed := trajectory.run_resumed:
                work = await self._log_reader.join_earlier_log(run, trajectory)
                top = await asyncio.to_thread(render_progress, run, work, MAX_LIVE_TEXT, is_over=is_over)
                fragments = replace(fragments, title=top.title, header=top.header)
        summary = None
        if trajectory.run_started is not None:
            job = trajectory.run_started.job.model_copy(update={"id": run})
            summary = summarize_log(job, trajectory, is_running=not is_over)
        return RunPageView(
            fragments,
            len(trajectory) - 1,
            is_over,
            remaining_bytes < 0,
            resumed.run if resumed else None,
            get_confirmation(trajectory) if is_over else None,
            summary,
        )

    async def read_start(self, run: RunId) -> RunStarted | None:
        """Returns the start event of a run, or None if its log is gone."""
        return await self._log_reader.read_start(run)

    def has_capacity(self, run: RunId) -> bool:
        """Returns True if this process can follow this run in addition to the other runs that browsers
        watch.
        """
        watched = [name for name, one in self._followed.items() if one.is_watched and name != run]
        return len(watched) < MAX_FOLLOWED_RUNS

    async def watch(self, run: RunId, after: int) -> AsyncGenerator[bytes, None]:
        """Yields a server-sent event for each entry with a number above `after`: first for existing entries,
        then for new ones. Also yields an event when the page header changes.

        Stops when the run has ended, its log exceeds the size limit, or Redis fails.
        """
        followed = self._followed.get(run)
        if followed is None or followed.is_done:
            for idle in [one for one in self._followed.values() if not one.is_watched]:
                if len(self._followed) >= MAX_FOLLOWED_RUNS:
                    await idle.close()
            followed = self._followed[run] = FollowedRun(run, self._log_reader, self._is_over, self._remove)
        async for event in followed.watch(after):
            yield event

    def _remove(self, followed: "FollowedRun") -> None:
        if self._followed.get(followed.run) is followed:
            del self._followed[followed.run]

    async def close(self) -> None:
        """Ends all streams."""
        for followed in tuple(self._followed.values()):
            await followed.close()


class FollowedRun:
    """A run whose log is followed, because a browser watches the run or recently watched it."""

    def __init__(
        self, run: RunId, log_reader: LogReader, is_over: IsOver, on_close: Callable[["FollowedRun"], None]
    ) -> None:
        self.run = run
        self.trajectory = Trajectory()
        self.subagents: dict[RunId, Trajectory] = {}
        self.is_ready = False
        """True after the log has been read once to its current end. Later entries are then followed as they come."""
        self.remaining_bytes = 0
        """Number of bytes of the log that may still be shown; -1 if the rest of the log is hidden."""
        self.is_done = False
        """True after this object has stopped following the log."""
        self._is_run_over = self._is_complete = False
        """`_is_run_over`: no worker will continue the run. `_is_complete`: no later entry will be shown."""
        self._log_reader = log_reader
        self._is_over = is_over
        self._event_cache: OrderedDict[int, bytes] = OrderedDict()
        self._render_lock = asyncio.Lock()
        self._head = b""
        self._head_entry, self._head_at, self._head_version = -1, 0.0, 0
        self._changed = asyncio.Event()
        self._watchers, self._left_at = 0, time.monotonic()
        self._task = asyncio.create_task(self._follow(on_close))

    @property
    def is_watched(self) -> bool:
        """Returns whether a browser watches this run."""
        return self._watchers > 0

    async def watch(self, after: int) -> AsyncGenerator[bytes, None]:
        """Yields events as `LiveRuns.watch` does."""
        self._watchers += 1
        try:
            sent_head = 0
            while True:
                changed = self._changed
                while self.is_ready and after + 1 < len(self.trajectory):
                    after = max(after, -1) + 1
                    yield await self._get_event(after)
                if self._head_version > sent_head:
                    sent_head = self._head_version
                    yield self._head
                if self.is_done:
                    if self._is_complete:  # without the "end" event, the browser reconnects
                        yield _format_sse(
                            "end", None, {"last": after, "is_truncated": self.remaining_bytes < 0}
                        )
                    return
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    yield b": keepalive\n\n"
        finally:
            self._watchers -= 1
            self._left_at = time.monotonic()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, on_close: Callable[["FollowedRun"], None]) -> None:
        try:
            found = await self._log_reader.read(self.run)
            self.trajectory, self.subagents, position = (
                found.trajectory,
                found.subagents,
                found.stream_position,
            )
            self.remaining_bytes = found.remaining_bytes
            self.is_ready = True
            await self._update_head()
            while self.remaining_bytes >= 0 and (
                self._watchers or time.monotonic() - self._left_at < IDLE_SECONDS
            ):
                lines = await self._log_reader.streams.wait_for_lines(self.run, position, READ_BLOCK_MS)
                if lines:
                    position = lines[-1][0]
                    await self._append_lines(self._within_limit([line for _, line in lines]))
                elif await self._is_over(self.run):
                    self._is_run_over = True
                    break
                if (
                    self._head_entry < len(self.trajectory)
                    and time.monotonic() - self._head_at >= HEAD_INTERVAL_SECONDS
                ):
                    await self._update_head()
            # If the rest of the log is hidden, browsers must not reconnect to get it.
            self._is_complete = self._is_run_over or self.remaining_bytes < 0
            await self._update_head()
        except QueueDown as exc:
            log.warning("live run stopped", extra={"run": self.run, "reason": str(exc)})
        finally:
            self.is_done = True
            self._notify_watchers()
            on_close(self)

    def _within_limit(self, lines: list[bytes]) -> list[bytes]:
        """Returns the first lines, as many as the size limit of the log allows. Subtracts their size from
        `remaining_bytes`.
        """
        accepted = []
        for line in lines:
            if (remaining := remaining_after(self.remaining_bytes, line)) < 0:
                self.remaining_bytes = remaining
                break
            self.remaining_bytes = remaining
            accepted.append(line)
        return accepted

    async def _append_lines(self, lines: list[bytes]) -> None:
        old_length = len(self.trajectory)
        trajectory = await self._log_reader.append_lines(self.trajectory, lines)
        new_events = [entry.event for entry in trajectory.entries[old_length:]]
        if any(
            isinstance(one, ToolResult) and isinstance(one.observation, SubagentResult) for one in new_events
        ):
            spawned = [event.run for event in trajectory if isinstance(event, SubagentSpawned)]
            for run in spawned:
                self.subagents.pop(run, None)  # the log has grown since the last read
            await self._log_reader.load_subagents(trajectory, self.subagents)
        self.trajectory = trajectory
        if self._watchers:
            for seq in range(old_length, len(trajectory)):
                await self._get_event(seq)
        self._notify_watchers()

    async def _get_event(self, seq: int) -> bytes:
        async with self._render_lock:
            if (event := self._event_cache.get(seq)) is None:
                event = self._event_cache[seq] = await asyncio.to_thread(self._render_entry, seq)
                while (
                    len(self._event_cache) > 1
                    and sum(map(len, self._event_cache.values())) > MAX_CACHED_EVENT_BYTES
                ):
                    self._event_cache.popitem(last=False)
            return event

    def _render_entry(self, seq: int) -> bytes:
        images = ImageCollection(MAX_LIVE_PICTURES)
        items = find_changed_items(self.trajectory, seq, self.subagents.get, images, MAX_LIVE_TEXT)
        return _format_sse("entries", seq, {"items": render_items(items, images)})

    async def _update_head(self) -> None:
        self._head_entry, self._head_at = len(self.trajectory), time.monotonic()
        work = await self._log_reader.join_earlier_log(self.run, self.trajectory)
        progress = await asyncio.to_thread(
            render_progress, self.run, work, MAX_LIVE_TEXT, is_over=self._is_run_over
        )
        self._head = _format_sse(
            "head", None, {"title": progress.title, "header": progress.header, "sidebar": progress.sidebar}
        )
        self._head_version += 1
        self._notify_watchers()

    def _notify_watchers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _format_sse(name: str, id: int | None, data: dict[str, object]) -> bytes:
    """Formats a server-sent event. Source: html.spec.whatwg.org, "Server-sent events"."""
    head = f"event: {name}\n" if id is None else f"id: {id}\nevent: {name}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")
