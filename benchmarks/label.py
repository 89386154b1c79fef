"""Measures the time from a label to the open pull request: the demo with its recorded model, which answers
immediately.

Server, queue, worker, sandbox, git, and both test runs are real; GitHub is the fake server. The images are
built and the repository is cached (a first run does not count). GitHub's spacing of writes is off. The
sandbox is Docker.
"""

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.measure import Result, in_a_directory, report
from benchmarks.reaction import LIMIT, until
from patchwright.bot.composition.composition_root import read_environment
from patchwright.demo.run import DemoSetup, run_server, set_up

TIMES = 5


async def once(setup: DemoSetup) -> float:
    """Returns the seconds from the label on a new issue to its pull request."""
    sample_issue, before = setup.issue, len(setup.repository.pulls)
    issue = setup.github.create_issue(
        setup.repository, title=sample_issue.title, body=sample_issue.body, by="reporter"
    )
    started_at = time.perf_counter()
    telling = asyncio.create_task(setup.github.add_label(issue, "fix-me", by="maintainer"))
    await until(lambda: len(setup.repository.pulls) > before, LIMIT)
    timings = time.perf_counter() - started_at
    await telling
    await until(lambda: "I opened pull request" in issue.comments[0].body, LIMIT)
    return timings


async def _measure(data: Path) -> list[Result]:
    async with set_up(data, read_environment()) as setup, run_server(setup, "docker") as url:
        setup.github.add_webhook(f"{url}/webhook", setup.server_env["PATCHWRIGHT_WEBHOOK_SECRET"])
        await once(setup)
        timings = [await once(setup) for _ in range(TIMES)]
    return [
        Result(
            name="label_to_pull_request", value=statistics.median(timings), unit="s", floor=None, target=10.0
        )
    ]


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
