"""Jobs for the tests of the bot, and a handler that shows what it was given."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bot.jobs import Again, Handler, Queue, Record, Result
from resolver.domain import Job, JobId, Refused, Repo, User

DONE = Refused(explanation="for the test")


def job(name: str = "acme-sample-7-000000000001", **but: object) -> Job:
    return Job(
        id=JobId(name),
        repo=Repo(owner="acme", name="sample"),
        number=7,
        requester=User(id=5, login="maintainer"),
        command="fix it",
    ).model_copy(update=but)


class Handlers:
    """Counts what is begun; holds every job until it is let go."""

    def __init__(self) -> None:
        self.begun: Counter[JobId] = Counter()
        self.tries: list[int] = []
        self.running = asyncio.Event()
        self.go = asyncio.Event()
        self.ending: Result | Again | Exception = DONE

    async def __call__(self, job: Job, tries: int) -> Result | Again:
        self.begun[job.id] += 1
        self.tries.append(tries)
        self.running.set()
        await self.go.wait()
        ending = self.ending
        if isinstance(ending, Exception):
            raise ending
        return ending


@asynccontextmanager
async def working(queue: Queue, handler: Handler) -> AsyncIterator[None]:
    """A worker that is told to go at the end of the block."""
    worker = asyncio.create_task(queue.work(handler))
    try:
        yield
    finally:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker


async def settled(queue: Queue, job: JobId, state: str = "ended", seconds: float = 20) -> Record:
    """The job's record once it is in this state."""
    async with asyncio.timeout(seconds):
        while (record := await queue.state(job)) is None or record.state != state:
            await asyncio.sleep(0.02)
    return record
