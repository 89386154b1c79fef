"""Writes run logs as a worker does, for the tests of the dashboard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.redis.shared_run_log import SharedLogStore, SharedRunLog
from patchwright.bot.run_summary import summarize_log
from patchwright.resolver.domain import Job
from patchwright.resolver.events import Event
from patchwright.resolver.run_log import FileLogStore


@dataclass
class RunWriter:
    """A worker that appends given events to its log."""

    job: Job
    log: SharedRunLog
    runs: SharedRunIndex

    @classmethod
    @asynccontextmanager
    async def open(
        cls, redis: str, directory: Path, job: Job, runs: SharedRunIndex
    ) -> AsyncIterator["RunWriter"]:
        logs = SharedLogStore(FileLogStore(directory), redis)
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
        await self.runs.put(summarize_log(self.job, self.log.trajectory, is_running=True))
