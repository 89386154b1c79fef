"""Measures the time from a label to the first visible reaction during 20 active runs: server, worker, and
real Redis.

Every run asks a model that takes a second, runs a command, and updates its comment. All of them write for one
installation, whose writes are a second apart. Labels arrive every 2.5 s. GitHub is the fake server. The
sandboxes are local, so that only the bot is measured. It takes two minutes: `script/bench long`.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Result, in_a_directory, report
from patchwright.bot.composition.composition_root import read_environment
from patchwright.demo.github import Issue
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.demo.run import DemoSetup, run_server, set_up
from patchwright.runtime.actions import RunShell

RUNNING, LABELS, APART = 20, 20, 2.5  # runs; measured labels; seconds
LIMIT = 180.0  # seconds


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits until the condition is true. Raises TimeoutError if it never is."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


def issue(scene: DemoSetup, number: int) -> Issue:
    return scene.github.create_issue(
        scene.repository, title=f"Issue {number}", body="Please fix it.", by="maintainer"
    )


async def reaction(scene: DemoSetup, number: int) -> float:
    """Returns the seconds from the label to a reaction on its issue, or a comment."""
    labeled = issue(scene, number)
    started_at = time.perf_counter()
    telling = asyncio.create_task(scene.github.add_label(labeled, "fix-me", by="maintainer"))
    await until(lambda: bool(labeled.reactions or labeled.comments), LIMIT)
    timings = time.perf_counter() - started_at
    await telling
    return timings


async def _measure(data: Path) -> list[Result]:
    turns = [RecordedTurn(f"Step {n}.", RunShell(command="echo looking")) for n in range(400)]
    async with set_up(data, read_environment()) as scene, RecordedModel(turns, delay=1.0) as model:
        more = {
            "PATCHWRIGHT_MODEL_BASE_URL": model.base_url,
            "PATCHWRIGHT_MAX_CONCURRENT_JOBS": "64",
            "PATCHWRIGHT_MAX_STEPS": "400",
            "PATCHWRIGHT_RUNS_PER_DAY": "1000",
            # Another address of the same server, so that it counts as GitHub: writes are a second apart.
            "GITHUB_SERVER_URL": scene.github.server_url.replace("127.0.0.1", "0.0.0.0"),
        }
        scene = replace(scene, server_env={**scene.server_env, **more})
        async with run_server(scene, "local") as url:
            scene.github.add_webhook(f"{url}/webhook", scene.server_env["PATCHWRIGHT_WEBHOOK_SECRET"])
            running = [issue(scene, number) for number in range(RUNNING)]
            for one in running:
                await scene.github.add_label(one, "fix-me", by="maintainer")
            await until(lambda: all(one.comments for one in running), LIMIT)
            await until(lambda: len(model.requests) > RUNNING * 2, LIMIT)
            timings: list[float] = []
            for number in range(LABELS):
                started_at = time.perf_counter()
                timings.append(await reaction(scene, RUNNING + number))
                await asyncio.sleep(max(APART - (time.perf_counter() - started_at), 0.0))
    p50, p99 = (
        statistics.median(timings),
        max(timings),
    )  # with so few values, the slowest is the 99th percentile
    return [
        Result(name="reaction_p50", value=p50, unit="s", floor=None, target=None),
        Result(name="reaction_p99", value=p99, unit="s", floor=None, target=2.0),
    ]


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
