"""Shows a run's current activity, plan and cost in a frame below the progress lines. New content replaces the
frame in place.
"""

import asyncio
import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TextIO

from patchwright.bot.terminal.output import strip_control_chars
from patchwright.bot.terminal.progress_printer import CHECKBOXES, EMPTY_TRAJECTORY, VERIFYING, ProgressPrinter
from patchwright.bot.terminal.style import Style, can_redraw, detect_style, terminal_size, truncate
from patchwright.resolver.cost import format_usd
from patchwright.resolver.descriptions import describe_action, name_thread
from patchwright.resolver.events import Entry, Message, Trajectory
from patchwright.resolver.rendering import filters
from patchwright.resolver.run_calls import latest_plan
from patchwright.resolver.run_log import Listener
from patchwright.resolver.run_task import get_task
from patchwright.runtime.tool_action import PlanItem

# Time between two updates of the frame. Each shows the new time and follows the window size.
REFRESH_SECONDS = 0.25
# Erases the frame: the cursor is in its first line, and the sequence erases everything below.
_ERASE_BELOW = "\r\x1b[J"
# Turns off line wrapping. A line that takes more cells than computed is then cut off.
_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"


@asynccontextmanager
async def open_display(
    stream: TextIO,
    environ: Mapping[str, str],
    *,
    quiet: bool = False,
    verbose: bool = False,
    earlier: Trajectory = EMPTY_TRAJECTORY,
) -> AsyncIterator[Listener]:
    """Yields a listener that shows a run. On a terminal, the listener redraws a frame in place. On any other
    stream, the listener prints lines.

    `stream` is standard output or standard error. `earlier` is the existing log of a run that is resumed.
    """
    if quiet:
        yield lambda entry: None
        return
    style = detect_style(stream, environ)
    if not can_redraw(stream, environ):
        yield ProgressPrinter(
            lambda line: print(line, file=stream, flush=True),
            style=style,
            verbose=verbose,
            earlier=earlier,
        )
        return
    display = LiveDisplay(stream, style, verbose=verbose, earlier=earlier)
    async with display.session():
        yield display


class LiveDisplay:
    """Shows one run on one terminal. Changes no terminal modes, so that the terminal stays usable if this
    process is killed.
    """

    def __init__(
        self, stream: TextIO, style: Style, *, verbose: bool, earlier: Trajectory = EMPTY_TRAJECTORY
    ) -> None:
        self._stream = stream
        self._style = style
        self._trajectory = earlier
        self._earlier_seconds = earlier.usage().seconds
        self._has_started = False
        """True after the first new entry. Before it, the earlier entries say nothing about the current activity."""
        self._startup_status = "starting"
        self._started_at = datetime.now(UTC)
        self._last_frame = ""
        self._is_closed = False
        self._size = terminal_size(stream)
        self._lock = threading.RLock()  # needed because libraries log from threads of their own
        self._owner: asyncio.Task[object] | None = None
        self._printer = ProgressPrinter(
            self._write_above,
            self._size.columns,
            style,
            verbose=verbose,
            show_plan=False,
            earlier=earlier,
        )

    def __call__(self, entry: Entry) -> None:
        with self._lock:
            self._trajectory = self._trajectory.with_entry(entry)
            self._has_started = True
            self._printer(entry)
            self._draw()

    def print_line(self, line: str) -> None:
        """Prints a line above the frame, such as a log message of another module."""
        with self._lock:
            line = strip_control_chars(line)
            self._startup_status = line.strip() or self._startup_status
            self._write_above(line)
            self._draw()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[None]:
        """Keeps the frame up to date inside the block, and erases it at the end. Prints other output above
        the frame.
        """
        self._owner = asyncio.current_task()
        with self._capture_output(), self._erase_at_end():
            ticking = asyncio.create_task(self._refresh())
            try:
                yield
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)

    @contextmanager
    def paused(self) -> Iterator[TextIO]:
        """Erases the frame inside the block, so that a person can type. Yields the terminal."""
        with self._lock:
            self._write("")
            self._is_closed = True
        try:
            yield self._stream
        finally:
            self._is_closed = False

    @contextmanager
    def _erase_at_end(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._write("")
                self._is_closed = True

    @contextmanager
    def _capture_output(self) -> Iterator[None]:
        """Calls `print_line` with the text that Python's streams and log handlers write to this terminal."""
        with ExitStack() as undo:
            lines = undo.enter_context(_LineStream(self))
            if sys.stderr.isatty():
                undo.enter_context(contextlib.redirect_stderr(lines))
            if sys.stdout.isatty():
                undo.enter_context(contextlib.redirect_stdout(lines))
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is self._stream:
                    handler.setStream(lines)
                    undo.callback(handler.setStream, self._stream)
            yield

    async def _refresh(self) -> None:
        while True:
            with self._lock:
                self._draw()
            await asyncio.sleep(REFRESH_SECONDS)

    def _draw(self) -> None:
        if self._is_closed or not self._is_foreground():
            self._last_frame = ""
            return
        size = terminal_size(self._stream)
        if size != self._size:
            self._printer.resize(size.columns)
        lines = self._frame_lines(size)
        frame = "\n".join(lines)
        if (frame, size) != (self._last_frame, self._size):
            self._size = size
            back = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
            self._write(f"{_WRAP_OFF}{frame}{_WRAP_ON}\r{back}", frame)

    def _write_above(self, line: str) -> None:
        self._write(f"{line}\n")

    def _write(self, text: str, frame: str = "") -> None:
        # When the window changes, the cursor stays at the same character of the text. So this erases exactly
        # the lines that were drawn.
        self._stream.write((_ERASE_BELOW if self._last_frame else "") + text)
        self._stream.flush()
        self._last_frame = frame

    def _is_foreground(self) -> bool:
        """Returns True if this process may draw on the terminal. After the shell command `bg`, returns False,
        because the shell then uses the terminal.
        """
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:  # This terminal does not control the process.
            return True

    def _frame_lines(self, size: os.terminal_size) -> list[str]:
        now = datetime.now(UTC)
        since = self._trajectory.entries[-1].timestamp if self._has_started else self._started_at
        activity = current_activity(self._trajectory) if self._has_started else self._startup_status
        if self._owner is not None and self._owner.cancelling() > 0:
            activity = "stopping"
        return render_frame(
            self._trajectory, activity, (now - since).total_seconds(), self._elapsed(now), size, self._style
        )

    def _elapsed(self, now: datetime) -> float:
        if not self._has_started:
            return self._earlier_seconds + (now - self._started_at).total_seconds()
        return (
            self._trajectory.usage().seconds + (now - self._trajectory.entries[-1].timestamp).total_seconds()
        )


class _LineStream(io.TextIOBase):
    """A text stream that passes its lines to the display."""

    def __init__(self, display: LiveDisplay) -> None:
        self._display = display
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._display.print_line(line)
        return len(text)

    def close(self) -> None:
        if self._rest:
            self._display.print_line(self._rest)
        self._rest = ""
        super().close()


def current_activity(trajectory: Trajectory) -> str:
    """Returns what the run is currently doing or waiting for."""
    verdict = trajectory.verdict
    if (
        trajectory.job_completed
        or (verdict and not verdict.partial)
        or ((stopped := trajectory.agent_stopped) and stopped.reason == "input_required")
    ):
        return "finishing"
    if trajectory.agent_stopped:
        return VERIFYING if get_task(trajectory) == "work" else "finishing"
    if pending := trajectory.pending_calls():
        return describe_action(pending[0].action)
    if trajectory.replies() or any(isinstance(event, Message) for event in trajectory):
        return f"waiting for {trajectory.run_started.model if trajectory.run_started else 'the model'}"
    return "preparing the sandbox"


def render_frame(
    trajectory: Trajectory,
    activity: str,
    activity_seconds: float,
    elapsed_seconds: float,
    size: os.terminal_size,
    style: Style,
) -> list[str]:
    """Returns the lines of the frame. They fit the width of the window, and fill at most two thirds of its
    height.

    `activity_seconds` is the duration of the current activity. `elapsed_seconds` is the duration of the run.
    """
    width = size.columns - 1
    title = []
    if (started := trajectory.run_started) is not None:
        description = f"{name_thread(started)} {started.thread.title}"
        title = ["", style.bold(truncate(strip_control_chars(description), width))]
    max_lines = max(0, size.lines * 2 // 3 - 2 - len(title))
    duration = f"  {_duration_text(activity_seconds)}"
    return [
        *title,
        *_plan_lines(latest_plan(trajectory), max_lines, width, style),
        f"> {truncate(strip_control_chars(activity), width - 2 - len(duration))}{style.dim(duration)}",
        "  " + style.dim(" · ".join(_fit_items(_status_items(trajectory, elapsed_seconds), width - 2))),
    ]


def _plan_lines(items: tuple[PlanItem, ...], max_lines: int, width: int, style: Style) -> Iterator[str]:
    """Yields the items of the plan. If not all items fit, yields only the items around the current one."""
    doing = next((n for n, item in enumerate(items) if item.status in ("doing", "open")), 0)
    first = max(0, min(doing - max_lines // 2, len(items) - max_lines))
    for item in items[first : first + max_lines]:
        line = f"  {CHECKBOXES[item.status]} {truncate(strip_control_chars(item.text), width - 6)}"
        yield {"done": style.green, "dropped": style.dim, "doing": style.yellow}.get(item.status, str)(line)


def _status_items(trajectory: Trajectory, elapsed_seconds: float) -> Iterator[str]:
    """Yields the items of the status line, starting with the most important one."""
    usage, limits = trajectory.usage_since_resume(), trajectory.run_configured
    yield _duration_text(elapsed_seconds)
    if not trajectory.entries:
        return
    if usage.has_unknown_cost:
        yield "cost unknown"
    elif usage.cost is not None:
        yield format_usd(usage.cost) + (f" of ${limits.usd:.2f}" if limits else "")
    yield f"{usage.tokens:,} tokens"
    if limits:
        yield f"{usage.steps} of {limits.steps} steps"
    if trajectory.is_baseline_pending and trajectory.agent_stopped is None:
        yield "baseline tests running"


def _fit_items(items: Iterator[str], width: int) -> Iterator[str]:
    left = width + 3
    for item in items:
        left -= len(item) + 3
        if left >= 0:
            yield item


def _duration_text(seconds: float) -> str:
    return f"{max(0, int(seconds))} s" if seconds < 60 else filters.format_duration(seconds)
