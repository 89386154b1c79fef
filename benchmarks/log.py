"""What a log costs: an event written down, a whole run read back, and a killed run found ready to go on.

358 events of a run, with outputs of the sizes that reading and testing code brings. Ready to go on: what was in flight
and what was spent is known. Floor, in the same run: the same bytes appended to a plain file and synced, each right
after ours; the file's lines read as JSON, and nothing made of it. Peers: the figures that the paper on the OpenHands
Software Agent SDK gives (table 3: 433 conversations, the longest of 358 events; machine not named); `measured`: the
same of its release 1.58 on a Debian 12 machine with 2 cores.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pydantic_core import from_json

from benchmarks.context import output
from benchmarks.measure import Result, in_a_directory, report
from resolver.domain import RunId
from resolver.events import Call, Decided, Event, Observed, Told, Usage
from resolver.log import FileLogs
from runtime.actions import RunShell
from runtime.observations import Ran

EVENTS, TIMES = 358, 41
RUN = RunId("benchmark")
PAPER = "openhands-sdk"


def events() -> list[Event]:
    """A brief, replies and their results in turn; the last call is unanswered, as in a run that was killed."""
    made: list[Event] = [Told(text="The issue.", source="brief")]
    for step in range(EVENTS // 2):
        call = Call(id=f"c{step}", action=RunShell(command=f"python3 -m pytest tests/test_{step}.py -q"))
        made.append(Decided(thought=f"Step {step}.", calls=(call,), usage=Usage(model="m")))
        ran = Ran(output=output(step), exit_code=0, cwd="/workspace", seconds=1.0)
        made.append(Observed(call=f"c{step}", observation=ran))
    return made[:-1]


async def written(logs: FileLogs, plain: Path) -> tuple[list[float], list[float]]:
    """Seconds of each append, and of the same bytes' to a plain file: in turn, for a disk has its moods."""
    ours, least = [], []
    async with logs.open(RUN) as log:
        with plain.open("wb", buffering=0) as file:
            for event in events():
                began = time.perf_counter()
                entry = await log.append(event)
                ours.append(time.perf_counter() - began)
                line = entry.model_dump_json().encode() + b"\n"
                began = time.perf_counter()
                file.write(line)
                os.fdatasync(file.fileno())
                least.append(time.perf_counter() - began)
    return ours, least


async def recovered(logs: FileLogs) -> float:
    """Seconds until the log of a killed run is open, and what was in flight and what was spent is known."""
    began = time.perf_counter()
    async with logs.open(RUN) as log:
        assert len(log.trajectory.unanswered()) == 1
        assert log.trajectory.spent().steps == EVENTS // 2
        return time.perf_counter() - began


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
    appended, least = await written(logs, directory / "plain")
    path = logs.path(RUN) / "events.jsonl"
    reopened = [await recovered(logs) for _ in range(TIMES)]
    read = often(lambda: logs.read(RUN))
    plain = often(lambda: [from_json(line, cache_strings=False) for line in path.read_bytes().splitlines()])
    results = []
    for name, floors, taken, unit, factor, median_peer, p95_peer, measured, promise in (
        ("log_append", least, appended, "µs", 1e6, 200, 310, 910, 200),
        ("log_replay", plain, read, "ms", 1e3, 4.1, 9.7, None, 3),
        ("log_recovery", plain, reopened, "ms", 1e3, 7.4, 14.9, 19, 3),
    ):
        for suffix, of, peer in (("", statistics.median, median_peer), ("_p95", p95, p95_peer)):
            peers = {PAPER: peer} | ({"measured": measured} if measured and not suffix else {})
            results.append(
                Result(
                    name=name + suffix,
                    value=of(taken) * factor,
                    unit=unit,
                    floor=of(floors) * factor,
                    peers=peers,
                    target=None if suffix else promise,
                )
            )
    size = path.stat().st_size / 1000
    return [
        *results,
        Result(name="log_size", value=size, unit="kB", floor=None, peers={PAPER: 380}, target=None),
    ]


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
