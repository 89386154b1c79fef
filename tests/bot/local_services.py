"""A trigger handler whose locks and limits are those of one process, without Redis."""

import asyncio
from datetime import UTC, date, datetime
from typing import Any

from patchwright.bot.jobs import JobQueue
from patchwright.bot.redis.quotas import MAX_REFUSALS
from patchwright.bot.thread_forge import ThreadForge
from patchwright.bot.triggers.cancellation import CancellationHandler
from patchwright.bot.triggers.command_context import TriggerServices
from patchwright.bot.triggers.queue_notice import QueueNotices
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.resolver.domain import JobId, Repo


class LocalRefusalLimit:
    """Counts the replies to people without write access in memory, for a single process."""

    def __init__(self) -> None:
        self._day: date | None = None
        self._jobs: dict[tuple[Repo, int], list[JobId]] = {}

    async def allow_refusal(self, repo: Repo, number: int, job: JobId) -> bool:
        today = datetime.now(UTC).date()
        if today != self._day:
            self._day, self._jobs = today, {}
        jobs = self._jobs.setdefault((repo, number), [])
        if job not in jobs and len(jobs) < MAX_REFUSALS:
            jobs.append(job)
        return job in jobs


class LocalStartLocks:
    """Locks for the jobs of a single process."""

    def __init__(self) -> None:
        self._until: dict[JobId, float] = {}

    async def lock(self, job: JobId, *, seconds: float) -> None:
        self._until[job] = asyncio.get_running_loop().time() + seconds
        if not seconds:
            del self._until[job]

    async def is_locked(self, job: JobId) -> bool:
        return self._until.get(job, 0.0) > asyncio.get_running_loop().time()


def local_handler(queue: JobQueue, triggers: Triggers, forge: ThreadForge, **services: Any) -> TriggerHandler:
    """Returns a handler with these services; the others are local."""
    defaults = {
        "cancellation": CancellationHandler(queue, triggers.label, forge),
        "queue_notices": QueueNotices(queue, LocalStartLocks(), forge, triggers.mention),
        "refusals": LocalRefusalLimit(),
    }
    return TriggerHandler(queue, triggers, forge, TriggerServices(**(defaults | services)))
