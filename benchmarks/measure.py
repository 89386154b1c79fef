"""The results of benchmarks, and how they are printed and stored.

A benchmark is a module in this package with a function `measure() -> list[Result]` that ends in::

    if __name__ == "__main__":
        report(measure())
"""

import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

RESULTS = Path(__file__).parent / "results.json"


class Result(BaseModel):
    """One figure, and what to compare it with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    value: float
    unit: str
    better: Literal["lower", "higher"] = "lower"
    floor: float | None
    """The same measurement of the minimum that does anything, in the same run; None if there is none."""
    peers: dict[str, float] = Field(default_factory=dict)
    """Figures of other programs in the same unit; the benchmark's module names their source."""
    target: float | None
    """The figure that we guarantee; None if we guarantee none."""

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


class Run(BaseModel):
    """One process from start to end."""

    milliseconds: float
    """Wall time."""
    megabytes: float
    """Peak resident memory in 10^6 bytes, of the process itself without its children."""
    cpu_milliseconds: float
    """Processor time, of the process itself and its children."""


# A child's peak includes what its parent held at the start, so the parent must be the smallest possible
# Python. Started from this process, every command would appear to need at least as much as this process.
_LAUNCHER = """
import os, sys, time
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
started = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(pid, 0)
cpu = usage.ru_utime + usage.ru_stime
print(time.perf_counter() - started, usage.ru_maxrss, cpu, os.waitstatus_to_exitcode(status))
"""


def run(command: Sequence[str]) -> Run:
    """Times one run of a command, given by its full path, that must succeed.

    Raises CalledProcessError with the exit code if it fails.
    """
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command]
    seconds, kibibytes, cpu_seconds, code = subprocess.run(
        launch, capture_output=True, text=True, check=True
    ).stdout.split()
    if code != "0":
        raise subprocess.CalledProcessError(int(code), command)
    return Run(
        milliseconds=float(seconds) * 1000,
        megabytes=int(kibibytes) * 1024 / 1e6,
        cpu_milliseconds=float(cpu_seconds) * 1000,
    )


def median_run(command: Sequence[str], times: int) -> Run:
    """Returns the median of each figure over `times` runs, after one that fills the caches and does not
    count.
    """
    run(command)
    runs = [run(command) for _ in range(times)]
    return Run(
        milliseconds=statistics.median(one.milliseconds for one in runs),
        megabytes=statistics.median(one.megabytes for one in runs),
        cpu_milliseconds=statistics.median(one.cpu_milliseconds for one in runs),
    )


def in_a_directory(measured: Callable[[Path], Coroutine[Any, Any, list[Result]]]) -> list[Result]:
    """Measures in a temporary directory."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(measured(Path(directory)))


def table(results: Sequence[Result]) -> str:
    """Returns the results as text, one per line."""
    heads = ("", "name", "value", "unit", "floor", "target", "peers")
    rows = [heads] + [
        (
            "ok" if result.met else "MISSED",
            result.name,
            _figure(result.value),
            result.unit,
            _figure(result.floor),
            _figure(result.target),
            ", ".join(f"{name} {_figure(value)}" for name, value in result.peers.items()),
        )
        for result in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}".removesuffix(".0")


def report(results: Sequence[Result]) -> None:
    """Prints the table and stores the results; they replace older ones of the same name."""
    names = {result.name for result in results}
    previous = [] if not RESULTS.exists() else json.loads(RESULTS.read_text())
    rows = [row for row in previous if row["name"] not in names] + [result.model_dump() for result in results]
    RESULTS.write_text(json.dumps(sorted(rows, key=lambda row: row["name"]), indent=2) + "\n")
    print(table(results))


@contextlib.contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """Stops the process at the end of the block."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
