"""`patchwright work` as separate processes, and a receiver that stores deliveries."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from patchwright.bot.http_server import HttpServer, listener_url, open_listener
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.job_records import OPEN_JOBS_KEY
from patchwright.bot.webhooks.receiver import Receiver
from patchwright.demo.github import Issue
from tests.end_to_end.conftest import Scenario
from tests.preloaded_command import preloaded_command

SECRET = "story-webhook-secret"


@asynccontextmanager
async def run_worker(
    scenario: Scenario, redis: str, data: Path, program: tuple[str, ...] | None = None, **more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a worker with its own data directory until it is ready for jobs. `more` extends its environment."""
    environment = scenario.environment | {"REDIS_URL": redis, "PATCHWRIGHT_DATA": str(data)} | more
    worker = await asyncio.create_subprocess_exec(
        *(program or preloaded_command()), "work", env=environment, stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    try:
        assert (await worker.stdout.readline()).startswith(b"patchwright worker ready")
        yield worker
    finally:
        if worker.returncode is None:
            worker.terminate()
        await worker.communicate()


class TwoWorkers:
    """Two workers with separate disks and a shared Redis. The one that does the run can get a signal."""

    def __init__(self, scenario: Scenario, place: Path, program: tuple[str, ...] | None = None) -> None:
        self._scene = scenario
        self._program = program
        self.disks = (place / "one", place / "two")
        self.processes: list[asyncio.subprocess.Process] = []
        self.signaled: list[int] = []
        """The index of the worker that was sent a signal; empty before."""

    def signal_active_worker(self, number: signal.Signals) -> bool:
        """Sends the signal to the worker that made the run's steps. Returns False if one was sent before."""
        if self.signaled:
            return False
        self.signaled.append(find_active_worker(self.disks))
        self.send(number)
        return True

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the same worker again."""
        os.kill(self.processes[self.signaled[0]].pid, number)

    @property
    def other_worker(self) -> int:
        """The index of the worker without a signal."""
        return 1 - self.signaled[0]

    @asynccontextmanager
    async def run_both(self) -> AsyncIterator[str]:
        """Runs both workers and yields the URL of their Redis."""
        async with (
            run_embedded_redis(self._scene.data / "shared") as url,
            run_worker(self._scene, url, self.disks[0], self._program) as one,
            run_worker(self._scene, url, self.disks[1], self._program) as two,
        ):
            self.processes += [one, two]
            yield url


@asynccontextmanager
async def receive_deliveries(scenario: Scenario, redis: str) -> AsyncIterator[None]:
    """Runs a receiver that stores all deliveries in the meantime."""
    inbox = DeliveryInbox(redis)
    with open_listener("127.0.0.1", 0) as socket:
        server = HttpServer(Receiver(inbox, SECRET))
        serving = asyncio.create_task(server.serve(sockets=[socket]))
        scenario.fake_github.add_webhook(f"{listener_url(socket)}/webhook", SECRET)
        yield
        server.should_exit = True
        await serving
    await inbox.close()


async def label_issues(scenario: Scenario, redis: str, *issues: Issue) -> None:
    """Labels these issues, or the scenario's own, while a receiver stores the deliveries."""
    async with receive_deliveries(scenario, redis):
        for issue in issues or (scenario.issue,):
            await scenario.fake_github.add_label(issue, "fix-me", by="maintainer")


def find_run(data: Path) -> str | None:
    """Returns the id of the only run in this directory."""
    return next((path.name for path in (data / "runs").glob("*")), None)


def find_active_worker(disks: Sequence[Path]) -> int:
    """Returns the index of the worker that made the run's steps; the other one may have opened its log first."""
    logs = [path.read_text() if (path := _log(disk)) else "" for disk in disks]
    (found,) = [number for number, text in enumerate(logs) if '"kind":"model_reply"' in text]
    return found


def _log(data: Path) -> Path | None:
    return next((data / "runs").glob("*/events.jsonl"), None)


def has_pull_request_comment(scenario: Scenario, issue: Issue | None = None) -> bool:
    """Returns True if the status comment of an issue mentions a pull request."""
    comments = scenario.repo.comments((issue or scenario.issue).number)
    return any("I opened pull request" in comment.body for comment in comments)


async def wait_for_pull_requests(
    scenario: Scenario, redis: str, *issues: Issue, seconds: float = 150
) -> None:
    """Waits until each issue has its pull request, and no job is left."""
    client = redis_client(redis)
    async with asyncio.timeout(seconds):
        while not all(has_pull_request_comment(scenario, issue) for issue in issues or (scenario.issue,)):
            await asyncio.sleep(0.2)
        while await cast("Awaitable[int]", client.scard(OPEN_JOBS_KEY)):
            await asyncio.sleep(0.2)
    await client.aclose()
