"""Measures the cost of a log: appending an event, reading a complete run, and reopening a killed run.

358 events of a run, with outputs of the sizes that reading and testing code produces. Reopened means that
calls in flight and usage are known. Floor, in the same run: the same bytes appended to a plain file and
synced, each right after ours, and the file's lines parsed as JSON. Peers: the figures of the paper on the
OpenHands Software Agent SDK (table 3: 433 conversations, the longest of 358 events; machine not named);
`measured`: the same of its release 1.58 on a Debian 12 machine with 2 cores.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pydantic_core import from_json

from benchmarks.context import output
from benchmarks.measure import Result, in_a_directory, report
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Event, Message, ModelReply, ReplyUsage, ToolCall, ToolResult
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult

EVENTS, TIMES = 358, 41
RUN = RunId("benchmark")
PAPER = "openhands-sdk"


def events() -> list[Event]:
    """Returns an initial prompt, then replies and results in turn. The last call is unanswered, as in a
    killed run.
    """
    run_events: list[Event] = [Message(text="The issue.", source="initial_prompt")]
    for step in range(EVENTS // 2):
        call = ToolCall(id=f"c{step}", action=RunShell(command=f"python3 -m pytest tests/test_{step}.py -q"))
        run_events.append(ModelReply(thought=f"Step {step}.", calls=(call,), usage=ReplyUsage(model="m")))
        ran = ShellResult(output=output(step), exit_code=0, cwd="/workspace", seconds=1.0)
        run_events.append(ToolResult(call_id=f"c{step}", observation=ran))
    return run_events[:-1]


async def written(logs: FileLogStore, plain: Path) -> tuple[list[float], list[float]]:
    """Returns the seconds of each append, and of the same bytes to a plain file, alternating because disks
    vary.
    """
    append_seconds, floors_seconds = [], []
    async with logs.open(RUN) as log:
        with plain.open("wb", buffering=0) as file:
            for event in events():
                started_at = time.perf_counter()
                entry = await log.append(event)
                append_seconds.append(time.perf_counter() - started_at)
                line = entry.model_dump_json().encode() + b"\n"
                started_at = time.perf_counter()
                file.write(line)
                os.fdatasync(file.fileno())
                floors_seconds.append(time.perf_counter() - started_at)
    return append_seconds, floors_seconds


async def recovered(logs: FileLogStore) -> float:
    """Returns the seconds until the log of a killed run is open and its calls in flight and usage are known."""
    started_at = time.perf_counter()
    async with logs.open(RUN) as log:
        assert len(log.trajectory.pending_calls()) == 1
        assert log.trajectory.usage().steps == EVENTS // 2
        return time.perf_counter() - started_at


def often(act: Callable[[], object]) -> list[float]:
    timings = []
    for _ in range(TIMES):
        started_at = time.perf_counter()
        act()
        timings.append(time.perf_counter() - started_at)
    return timings


def p95(timings: list[float]) -> float:
    return statistics.quantiles(timings, n=20)[-1]


async def _measure(directory: Path) -> list[Result]:
    logs = FileLogStore(directory)
    appended, floors_seconds = await written(logs, directory / "plain")
    path = logs.run_directory(RUN) / "events.jsonl"
    reopened = [await recovered(logs) for _ in range(TIMES)]
    read = often(lambda: logs.read(RUN))
    plain = often(lambda: [from_json(line, cache_strings=False) for line in path.read_bytes().splitlines()])
    results = []
    for name, floors, timings, unit, factor, median_peer, p95_peer, measured, promise in (
        ("log_append", floors_seconds, appended, "µs", 1e6, 200, 310, 910, 200),
        ("log_replay", plain, read, "ms", 1e3, 4.1, 9.7, None, 3),
        ("log_recovery", plain, reopened, "ms", 1e3, 7.4, 14.9, 19, 3),
    ):
        for suffix, of, peer in (("", statistics.median, median_peer), ("_p95", p95, p95_peer)):
            peers = {PAPER: peer} | ({"measured": measured} if measured and not suffix else {})
            results.append(
                Result(
                    name=name + suffix,
                    value=of(timings) * factor,
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
