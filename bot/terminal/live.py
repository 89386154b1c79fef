"""A run in place: what it is at, its plan and what it cost stand below the lines that it has told."""

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

from bot.terminal.ink import Ink, can_stand, fit, ink_for, size_of
from bot.terminal.lines import BOX, Narrator, plain
from resolver.actions import PlanItem
from resolver.domain import Spent
from resolver.events import Entry, Told, Trajectory
from resolver.gate import plan
from resolver.log import Listener
from resolver.resolve import STILL_RUNNING
from resolver.summary import did
from resolver.words import wording

EVERY = 0.25  # seconds between two looks at clock and window
NOTHING = Trajectory()
_ERASED = "\r\x1b[J"  # from the picture's first line, where the cursor waits, to the end of the screen
_UNWRAPPED, _WRAPPED = "\x1b[?7l", "\x1b[?7h"  # a line that is wider than we think is cut instead of broken


@asynccontextmanager
async def telling(
    stream: TextIO,
    environ: Mapping[str, str],
    *,
    quiet: bool = False,
    verbose: bool = False,
    earlier: Trajectory = NOTHING,
) -> AsyncIterator[Listener]:
    """Tells a run to a person: in place on a terminal, as lines elsewhere.

    `stream` is standard output or error. `earlier`: what is in the log of a run that goes on.
    """
    if quiet:
        yield lambda entry: None
        return
    ink = ink_for(stream, environ)
    if not can_stand(stream, environ):
        steps = len(earlier.decisions())
        yield Narrator(
            lambda line: print(line, file=stream, flush=True), ink=ink, verbose=verbose, steps=steps
        )
        return
    live = Live(stream, ink, verbose=verbose, earlier=earlier)
    async with live.shown():
        yield live


class Live:
    """One run on one terminal. It changes no mode of the terminal, so that nothing is to be mended if it is killed."""

    def __init__(self, stream: TextIO, ink: Ink, *, verbose: bool, earlier: Trajectory = NOTHING) -> None:
        self._stream = stream
        self._ink = ink
        self._run = earlier
        self._said = "getting ready"
        self._began = datetime.now(UTC)
        self._drawn = ""
        self._over = False
        self._size = size_of(stream)
        self._lock = threading.RLock()  # libraries log from threads of their own
        self._owner: asyncio.Task[object] | None = None
        steps = len(earlier.decisions())
        self._tell = Narrator(self._above, self._size.columns, ink, verbose=verbose, plans=False, steps=steps)

    def __call__(self, entry: Entry) -> None:
        with self._lock:
            self._run = self._run.followed_by(entry)
            self._tell(entry)
            self._draw()

    def say(self, line: str) -> None:
        """A line of somebody else's, above the picture."""
        with self._lock:
            line = plain(line)
            self._said = line.strip() or self._said
            self._above(line)
            self._draw()

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Keeps the picture up to date, and takes it away at the end. What is printed meanwhile stands above it."""
        self._owner = asyncio.current_task()
        with self._taking_over(), self._erasing():
            ticking = asyncio.create_task(self._tick())
            try:
                yield
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)

    @contextmanager
    def _erasing(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._put("")
                self._over = True

    @contextmanager
    def _taking_over(self) -> Iterator[None]:
        """Whatever goes to this terminal by Python's own streams and loggers is said by us."""
        with ExitStack() as undo:
            lines = undo.enter_context(_Lines(self))
            if sys.stderr.isatty():
                undo.enter_context(contextlib.redirect_stderr(lines))
            if sys.stdout.isatty():
                undo.enter_context(contextlib.redirect_stdout(lines))
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is self._stream:
                    handler.setStream(lines)
                    undo.callback(handler.setStream, self._stream)
            yield

    async def _tick(self) -> None:
        while True:
            with self._lock:
                self._draw()
            await asyncio.sleep(EVERY)

    def _draw(self) -> None:
        if self._over or not self._is_in_front():
            self._drawn = ""
            return
        size = size_of(self._stream)
        if size != self._size:
            self._tell.resize(size.columns)
        lines = self._picture(size)
        drawn = "\n".join(lines)
        if (drawn, size) != (self._drawn, self._size):
            self._size = size
            back = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
            self._put(f"{_UNWRAPPED}{drawn}{_WRAPPED}\r{back}", drawn)

    def _above(self, line: str) -> None:
        self._put(f"{line}\n")

    def _put(self, text: str, drawn: str = "") -> None:
        # Terminals keep the cursor at its character when the window changes, so that what is erased is what was drawn.
        self._stream.write((_ERASED if self._drawn else "") + text)
        self._stream.flush()
        self._drawn = drawn

    def _is_in_front(self) -> bool:
        """Whether the terminal is ours to draw on: `bg` gives it back to the shell."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:  # nobody's controlling terminal
            return True

    def _picture(self, size: os.terminal_size) -> list[str]:
        now = datetime.now(UTC)
        stopping = self._owner is not None and self._owner.cancelling() > 0
        since = self._run.entries[-1].at if self._run.entries else self._began
        what = "stopping" if stopping else under_way(self._run) if self._run.entries else self._said
        return picture(self._run, what, (now - since).total_seconds(), self._elapsed(now), size, self._ink)

    def _elapsed(self, now: datetime) -> float:
        if not self._run.entries:
            return (now - self._began).total_seconds()
        return self._run.spent().seconds + (now - self._run.entries[-1].at).total_seconds()


class _Lines(io.TextIOBase):
    """A stream whose lines are said."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._live.say(line)
        return len(text)

    def close(self) -> None:
        if self._rest:
            self._live.say(self._rest)
        self._rest = ""
        super().close()


def under_way(run: Trajectory) -> str:
    """What is waited for."""
    verdict = run.verdict
    if run.settled or (verdict and not verdict.partial) or ((ended := run.ended) and ended.reason == "asked"):
        return "finishing"
    if run.ended:
        return "proving the patch in clean sandboxes"
    if waiting := run.unanswered():
        return did(waiting[0].action)
    if run.decisions() or any(isinstance(event, Told) for event in run):
        return f"waiting for {run.started.model if run.started else 'the model'}"
    return "making the sandbox ready"


def picture(
    run: Trajectory, what: str, waited: float, elapsed: float, size: os.terminal_size, ink: Ink
) -> list[str]:
    """The lines that stand below: none wider than the window, and no more than leave a third of it free.

    `waited`: seconds that `what` takes by now. `elapsed`: seconds that the run has taken.
    """
    width = size.columns - 1
    title = []
    if run.started:
        about = f"{run.started.job.repo}#{run.started.thread.number} {run.started.thread.title}"
        title = ["", ink.bold(fit(plain(about), width))]
    room = max(0, size.lines * 2 // 3 - 2 - len(title))
    took = f"  {_clock(waited)}"
    return [
        *title,
        *_plan(plan(run), room, width, ink),
        f"> {fit(plain(what), width - 2 - len(took))}{ink.dim(took)}",
        "  " + ink.dim(" · ".join(_fitting(_figures(run, elapsed), width - 2))),
    ]


def _plan(items: tuple[PlanItem, ...], room: int, width: int, ink: Ink) -> Iterator[str]:
    """The points around the one that is being done, where there is no room for all."""
    doing = next((n for n, item in enumerate(items) if item.state in ("doing", "open")), 0)
    first = max(0, min(doing - room // 2, len(items) - room))
    for item in items[first : first + room]:
        line = f"  {BOX[item.state]} {fit(plain(item.text), width - 6)}"
        yield {"done": ink.green, "dropped": ink.dim, "doing": ink.yellow}.get(item.state, str)(line)


def _figures(run: Trajectory, elapsed: float) -> Iterator[str]:
    """In the order in which they are wanted."""
    spent, under = run.spent(), run.configured
    yield _clock(elapsed)
    if not run.entries:
        return
    yield _money(spent) + (f" of ${under.usd:.2f}" if under and spent.cost is not None else "")
    yield f"{spent.tokens:,} tokens"
    if under:
        yield f"{spent.steps} of {under.steps} steps"
    if _tests_still_run(run):
        yield "the tests run at base"


def _fitting(parts: Iterator[str], width: int) -> Iterator[str]:
    left = width + 3
    for part in parts:
        left -= len(part) + 3
        if left >= 0:
            yield part


def _money(spent: Spent) -> str:
    return "cost unknown" if spent.cost is None else wording.dollars(spent.cost)


def _clock(seconds: float) -> str:
    return f"{max(0, int(seconds))} s" if seconds < 60 else wording.duration(seconds)


def _tests_still_run(run: Trajectory) -> bool:
    """Whether the agent waits to be told how the tests end on the untouched code."""
    told = [event for event in run if isinstance(event, Told)]
    return (
        run.verdict is None
        and run.ended is None
        and any(event.source == "brief" and STILL_RUNNING in event.text for event in told)
        and not any(event.source in ("baseline", "proof") for event in told)
    )
