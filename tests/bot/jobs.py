"""Jobs for the tests of the bot, and a handler that records its calls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from patchwright.bot.jobs import JobHandler, JobQueue, JobRecord, JobResult, Retry
from patchwright.resolver.domain import Job, JobId, Rejected, Repo, User

DONE = Rejected(explanation="for the test")


def job(name: str = "acme-sample-7-000000000001", **but: object) -> Job:
    return Job(
        id=JobId(name),
        repo=Repo(owner="acme", name="sample"),
        number=7,
        requester=User(id=5, login="maintainer"),
        command="fix it",
    ).model_copy(update=but)


class RecordingHandler:
    """Counts started jobs, and blocks each until `go` is set."""

    def __init__(self) -> None:
        self.started: Counter[JobId] = Counter()
        self.tries: list[int] = []
        self.running = asyncio.Event()
        self.go = asyncio.Event()
        self.ending: JobResult | Retry | Exception = DONE

    async def __call__(self, job: Job, tries: int) -> JobResult | Retry:
        self.started[job.id] += 1
        self.tries.append(tries)
        self.running.set()
        await self.go.wait()
        ending = self.ending
        if isinstance(ending, Exception):
            raise ending
        return ending


@asynccontextmanager
async def running_worker(queue: JobQueue, handler: JobHandler) -> AsyncIterator[None]:
    """Runs a worker until the end of the block."""
    worker = asyncio.create_task(queue.process_jobs(handler))
    try:
        yield
    finally:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker


async def wait_for_state(
    queue: JobQueue, job: JobId, state: str = "completed", seconds: float = 20
) -> JobRecord:
    """Waits until the job is in this state and returns its record."""
    async with asyncio.timeout(seconds):
        while (record := await queue.get_record(job)) is None or record.state != state:
            await asyncio.sleep(0.02)
    return record
