"""Shows the progress of an evaluation: one line that is redrawn on a terminal, or a line for each event."""

import time
from collections.abc import Mapping
from decimal import Decimal
from typing import TextIO

from patchwright.bot.terminal.output import strip_control_chars
from patchwright.bot.terminal.style import can_redraw, detect_style, terminal_size, truncate
from patchwright.evaluation.attempt import AttemptTask
from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.results import AttemptResult
from patchwright.resolver.cost import format_usd
from patchwright.resolver.rendering.filters import format_duration

_ERASE_LINE = "\r\x1b[K"


class ProgressDisplay:
    """Counts what is done, and prints it to a stream."""

    def __init__(
        self, stream: TextIO, environ: Mapping[str, str], total: int, *, quiet: bool = False
    ) -> None:
        """`total` is the number of attempts that the evaluation makes."""
        self._stream = stream
        self._style = detect_style(stream, environ)
        self._redraws = can_redraw(stream, environ)
        self._quiet = quiet
        self._total = total
        self._started_at = time.monotonic()
        self._started: set[str] = set()
        self._active: dict[str, None] = {}  # instances in the order in which they started
        self._new = 0  # attempts that this process made, from which the remaining time is estimated
        self._broken: set[str] = set()
        self.resolved = self.failed = self.skipped = 0
        self.usd = Decimal(0)

    def start(self, instance: Instance) -> None:
        self._started.add(instance.id)
        self._active[instance.id] = None
        self._draw()

    def show_control(self, control: ControlResult) -> None:
        if control.problem and control.instance not in self._broken:
            self._broken.add(control.instance)
            self._print(self._style.yellow("left out"), control.instance, control.problem)
        self._draw()

    def show_attempt(self, result: AttemptResult) -> None:
        """Shows the result of an attempt, which an earlier process may have made."""
        self.resolved += result.resolved
        self.failed += not result.resolved
        self.usd += result.usage.usd
        is_new = result.instance in self._started
        self._new += is_new
        if is_new:
            word = self._style.green("resolved") if result.resolved else self._style.red("failed  ")
            reason = "" if result.resolved else f", {str(result.failure).replace('_', ' ')}"
            details = f"verdict {result.verdict}{reason}, {format_duration(result.usage.seconds)}"
            self._print(word, result.run, details)
        self._draw()

    def show_skip(self, task: AttemptTask) -> None:
        self.skipped += 1
        self._print(self._style.yellow("skipped "), task.run, "the budget is spent")

    def end(self, instance: Instance) -> None:
        self._active.pop(instance.id, None)
        self._draw()

    def close(self) -> None:
        """Removes the line that is redrawn."""
        if self._redraws and not self._quiet:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()

    def status(self) -> str:
        """Returns the counts, the cost and the remaining time in one line."""
        done = self.resolved + self.failed + self.skipped
        parts = [f"{done} of {self._total}", f"{self.resolved} resolved", f"{self.failed} failed"]
        if self._broken:
            parts.append(f"{len(self._broken)} left out")
        parts.append(format_usd(self.usd))
        if self._new and (left := self._total - done) > 0:
            seconds = (time.monotonic() - self._started_at) / self._new * left
            parts.append(f"about {format_duration(seconds)} left")
        return ", ".join(parts)

    def _print(self, word: str, name: str, text: str) -> None:
        if self._quiet:
            return
        line = f"{word} {strip_control_chars(name)}: {strip_control_chars(' '.join(text.split()))[:300]}"
        if not self._redraws:
            line += f" ({self.status()})"
        self._stream.write((_ERASE_LINE if self._redraws else "") + line + "\n")
        self._stream.flush()

    def _draw(self) -> None:
        if self._redraws and not self._quiet:
            width = terminal_size(self._stream).columns - 1
            active = f"; working on {', '.join(self._active)}" if self._active else ""
            self._stream.write(_ERASE_LINE + self._style.dim(truncate(self.status() + active, width)))
            self._stream.flush()
