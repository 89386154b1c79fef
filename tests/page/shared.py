"""What stands in for a worker in the tests of the page: the very logs that workers write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.glance import of_log
from bot.redis.log import SharedLog, SharedLogs
from bot.redis.runs import Runs
from resolver.domain import Job
from resolver.events import Event
from resolver.log import FileLogs


@dataclass
class Writer:
    """A worker that writes what it is told to."""

    job: Job
    log: SharedLog
    runs: Runs

    @classmethod
    @asynccontextmanager
    async def opened(cls, redis: str, directory: Path, job: Job, runs: Runs) -> AsyncIterator["Writer"]:
        logs = SharedLogs(FileLogs(directory), redis)
        try:
            async with logs.open(job.id) as log:
                writer = cls(job, log, runs)
                await writer.index()
                yield writer
        finally:
            await logs.close()

    async def write(self, *events: Event) -> None:
        for event in events:
            await self.log.append(event)
        await self.index()

    async def index(self) -> None:
        await self.runs.put(of_log(self.job, self.log.trajectory, working=True))
