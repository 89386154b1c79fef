"""What a log costs: an event written down, a whole run read back, and a killed run found ready to go on.

400 events of a run, with outputs of the sizes that reading and testing code brings. Floor, in the same run: the same
bytes appended to a plain file and synced; the same file read and nothing made of it. Peers: the figures that the paper
on the OpenHands Software Agent SDK gives (table 3: 433 conversations, the longest of 358 events; machine not named).
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.context import output
from benchmarks.measure import Result, report
from resolver.domain import RunId
from resolver.events import Call, Decided, Event, Observed, Usage
from resolver.log import FileLogs
from runtime.actions import RunShell
from runtime.observations import Ran

STEPS, TIMES = 200, 21
RUN = RunId("benchmark")
PAPER = "openhands-sdk"


def events() -> list[Event]:
    """Replies and their results in turn; the last call is unanswered, as in a run that was killed."""
    made: list[Event] = []
    for step in range(STEPS):
        call = Call(id=f"c{step}", action=RunShell(command=f"python3 -m pytest tests/test_{step}.py -q"))
        made.append(Decided(thought=f"Step {step}.", calls=(call,), usage=Usage(model="m")))
        ran = Ran(output=output(step), exit_code=0, cwd="/workspace", seconds=1.0)
        made.append(Observed(call=f"c{step}", observation=ran))
    return made[:-1]


async def written(logs: FileLogs) -> list[float]:
    """Seconds of each append."""
    taken = []
    async with logs.open(RUN) as log:
        for event in events():
            began = time.perf_counter()
            await log.append(event)
            taken.append(time.perf_counter() - began)
    return taken


async def recovered(logs: FileLogs) -> float:
    """Seconds until the log of a killed run is open and what was in flight is known."""
    began = time.perf_counter()
    async with logs.open(RUN) as log:
        assert len(log.trajectory.unanswered()) == 1
        return time.perf_counter() - began


def bare(lines: list[bytes], path: Path) -> list[float]:
    """Seconds of each append and sync of a plain file."""
    taken = []
    with path.open("wb", buffering=0) as file:
        for line in lines:
            began = time.perf_counter()
            file.write(line)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return taken


def often(act: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return taken


def p95(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=20)[-1]


async def _measure(directory: Path) -> list[Result]:
    logs = FileLogs(directory)
    appended = await written(logs)
    path = logs.path(RUN) / "events.jsonl"
    least = bare(path.read_bytes().splitlines(keepends=True), directory / "plain")
    reopened = [await recovered(logs) for _ in range(TIMES)]
    read, plain = often(lambda: logs.read(RUN)), often(path.read_bytes)
    results = []
    for name, floors, taken, unit, factor, median_peer, p95_peer, promise in (
        ("log_append", least, appended, "µs", 1e6, 200, 310, 1000),
        ("log_replay", plain, read, "ms", 1e3, 4.1, 9.7, 20),
        ("log_recovery", plain, reopened, "ms", 1e3, 7.4, 14.9, 20),
    ):
        for suffix, of, peer in (("", statistics.median, median_peer), ("_p95", p95, p95_peer)):
            results.append(
                Result(
                    name=name + suffix,
                    value=of(taken) * factor,
                    unit=unit,
                    floor=of(floors) * factor,
                    peers={PAPER: peer},
                    target=None if suffix else promise,
                )
            )
    size = path.stat().st_size / 1000
    return [
        *results,
        Result(name="log_size", value=size, unit="kB", floor=None, peers={PAPER: 380}, target=None),
    ]


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_measure(Path(directory)))


if __name__ == "__main__":
    report(measure())
