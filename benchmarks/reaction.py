"""From a label to the first thing that people see of us, while 20 runs go on: the server, its worker and real Redis.

Every run asks a model that takes a second, tries a command, and keeps its comment up to date; all of them write for one
installation, whose writes are a second apart. Labels come one every 2.5 s. GitHub is the stand-in; the sandboxes are
local, so that what is measured is the bot. It takes two minutes: `script/bench long`.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Result, in_a_directory, report
from bot.compose import environment
from demo.model import Endpoint, Turn
from demo.run import Stage, server, stage
from demo.world import Issue
from runtime.actions import RunShell

RUNNING, LABELS, APART = 20, 20, 2.5  # runs; labels that are measured; seconds
BETWEEN = 1.0  # seconds between two writes
LIMIT = 180.0  # seconds


async def until(seen: Callable[[], bool], seconds: float) -> None:
    """Raises TimeoutError when it does not come to pass."""
    async with asyncio.timeout(seconds):
        while True:
            if seen():
                return
            await asyncio.sleep(0.005)


def issue(scene: Stage, number: int) -> Issue:
    return scene.world.issue(
        scene.repository, title=f"Issue {number}", body="Please mend it.", by="maintainer"
    )


async def reaction(scene: Stage, number: int) -> float:
    """Seconds from the label to a reaction on its issue, or a comment."""
    labelled = issue(scene, number)
    began = time.perf_counter()
    telling = asyncio.create_task(scene.world.label(labelled, "fix-me", by="maintainer"))
    await until(lambda: bool(labelled.reactions or labelled.comments), LIMIT)
    taken = time.perf_counter() - began
    await telling
    return taken


async def _measure(data: Path) -> list[Result]:
    turns = [Turn(f"Step {n}.", RunShell(command="echo looking")) for n in range(400)]
    async with stage(data, environment()) as scene, Endpoint(turns, delay=1.0) as model:
        more = {
            "PATCHWRIGHT_MODEL_BASE_URL": model.base_url,
            "PATCHWRIGHT_JOBS_AT_ONCE": "64",
            "PATCHWRIGHT_MAX_STEPS": "400",
            "PATCHWRIGHT_USER_RUNS_PER_DAY": "1000",
            "PATCHWRIGHT_REPOSITORY_RUNS_PER_DAY": "1000",
            "PATCHWRIGHT_BETWEEN_WRITES": str(BETWEEN),
        }
        scene = replace(scene, environment={**scene.environment, **more})
        async with server(scene, "local") as url:
            scene.world.hook(f"{url}/webhook", scene.environment["PATCHWRIGHT_WEBHOOK_SECRET"])
            running = [issue(scene, number) for number in range(RUNNING)]
            for one in running:
                await scene.world.label(one, "fix-me", by="maintainer")
            await until(lambda: all(one.comments for one in running), LIMIT)
            await until(lambda: len(model.requests) > RUNNING * 2, LIMIT)
            taken: list[float] = []
            for number in range(LABELS):
                began = time.perf_counter()
                taken.append(await reaction(scene, RUNNING + number))
                await asyncio.sleep(max(APART - (time.perf_counter() - began), 0.0))
    p50, p99 = statistics.median(taken), max(taken)  # of so few, the slowest is the hundredth
    return [
        Result(name="reaction_p50", value=p50, unit="s", floor=None, target=None),
        Result(name="reaction_p99", value=p99, unit="s", floor=None, target=2.0),
    ]


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
