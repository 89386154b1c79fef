"""From a label to the open pull request: the demo with its recorded model, which answers at once.

Server, queue, worker, sandbox, git and both test runs are real; GitHub is the stand-in. The images are built and the
repository is cached (one run before does not count), and GitHub's spacing of writes is left out. The sandbox is Docker.
"""

import asyncio
import statistics
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Result, in_a_directory, report
from benchmarks.reaction import LIMIT, until
from bot.compose import environment
from demo.run import Stage, server, stage

TIMES = 5


async def once(scene: Stage) -> float:
    """Seconds from the label on a new issue to its pull request."""
    told, before = scene.issue, len(scene.repository.pulls)
    issue = scene.world.issue(scene.repository, title=told.title, body=told.body, by="reporter")
    began = time.perf_counter()
    telling = asyncio.create_task(scene.world.label(issue, "fix-me", by="maintainer"))
    await until(lambda: len(scene.repository.pulls) > before, LIMIT)
    taken = time.perf_counter() - began
    await telling
    await until(lambda: "I opened pull request" in issue.comments[0].body, LIMIT)
    return taken


async def _measure(data: Path) -> list[Result]:
    async with stage(data, environment()) as scene:
        quick = {"PATCHWRIGHT_BETWEEN_WRITES": "0"}
        scene = replace(scene, environment={**scene.environment, **quick})
        async with server(scene, "docker") as url:
            scene.world.hook(f"{url}/webhook", scene.environment["PATCHWRIGHT_WEBHOOK_SECRET"])
            await once(scene)
            taken = [await once(scene) for _ in range(TIMES)]
    return [
        Result(
            name="label_to_pull_request", value=statistics.median(taken), unit="s", floor=None, target=10.0
        )
    ]


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
