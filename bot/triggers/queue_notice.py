"""Posts a notice in an issue or pull request while its job waits in the queue.

When a run starts, it edits the comment that contains the notice. A lock keeps the job from starting while the
notice is being posted. Otherwise, the notice might overwrite the text of the run.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from patchwright.bot.errors import QueueDown
from patchwright.bot.job_runner import JobResolver
from patchwright.bot.jobs import JobQueue, JobRecord, Stopped, UnreadableJob, thread_key
from patchwright.bot.run_messages import is_handled_by_run
from patchwright.bot.thread_forge import CommentForge
from patchwright.resolver.authorization import authorize
from patchwright.resolver.domain import Job, JobId, Outcome
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply

log = logging.getLogger(__name__)

NOTICE_DELAY_SECONDS = 2.0  # A job that starts sooner gets no notice.
POST_TIMEOUT_SECONDS = 20.0
# How long a lock delays the job at most, if the process that posts the notice dies.
LOCK_SECONDS = POST_TIMEOUT_SECONDS + 5
LOCK_POLL_SECONDS = 0.1


class StartLocks(Protocol):
    """Locks that keep jobs from starting. Both methods may raise QueueDown."""

    async def lock(self, job: JobId, *, seconds: float) -> None:
        """Locks the job for this many seconds; 0 unlocks it."""

    async def is_locked(self, job: JobId) -> bool: ...


class QueueNotices:
    """Posts notices for jobs that wait in the queue."""

    def __init__(
        self,
        queue: JobQueue,
        locks: StartLocks,
        forge: CommentForge,
        mention: str,
        delay: float = NOTICE_DELAY_SECONDS,
        count_workers: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """Stores the dependencies.

        `count_workers` returns the number of workers that currently take jobs. If it is None, at least one
        worker is assumed.
        """
        self._queue = queue
        self._locks = locks
        self._forge = forge
        self._mention = mention
        self._delay = delay
        self._count_workers = count_workers
        self._notified: set[JobId] = set()

    async def post_if_waiting(self, job: Job) -> None:
        """Waits for the delay, then posts a notice if the job is still queued. Failures are only logged."""
        await asyncio.sleep(self._delay)
        try:
            async with _locked(self._locks, job.id):
                # A worker marks the job as running and then checks the lock. This task acquires the lock and
                # then checks whether the job is running. So the worker and this task cannot both continue.
                record = await self._queue.get_record(job.id)
                if record is None or record.state != "queued" or record.tries:
                    return
                async with asyncio.timeout(POST_TIMEOUT_SECONDS):
                    await self._post(record)
        except (QueueDown, ForgeError, TimeoutError) as exc:
            log.warning("queue notice not posted", extra={"job": job.id, "reason": str(exc)})

    async def post_unreadable(self, job: UnreadableJob) -> None:
        """Posts a notice that workers of this version cannot read the job. Each job gets at most one such
        notice. If posting fails, only logs the failure.
        """
        if job.id in self._notified:
            return
        try:
            async with asyncio.timeout(POST_TIMEOUT_SECONDS):
                if await authorize(self._forge, job.repo, job.requester):
                    await self._forge.upsert_comment(
                        job.repo, job.number, job.id, render_reply("unreadable_job.md.j2"), in_progress=True
                    )
            self._notified.add(job.id)
        except (ForgeError, TimeoutError) as exc:
            log.warning("queue notice not posted", extra={"job": job.id, "reason": str(exc)})

    async def _post(self, record: JobRecord) -> None:
        job, others = record.job, await self._queue.all_active_jobs()
        thread = thread_key(job.repo, job.number)
        ahead = [other for other in others if other.job.id != job.id and _is_ahead(other, record)]
        ahead_in_thread = [other for other in ahead if thread_key(other.job.repo, other.job.number) == thread]
        if any(is_handled_by_run(other.job, record) for other in ahead_in_thread):
            return  # The run in progress will read this job as a message.
        if not await authorize(self._forge, job.repo, job.requester):
            return  # The job is rejected when it starts.
        count = len(ahead_in_thread) or sum(other.state == "queued" for other in ahead)
        building_images = self._count_workers is not None and not await self._count_workers()
        text = render_reply(
            "queue_notice.md.j2",
            ahead=count,
            mention=self._mention,
            same_thread=bool(ahead_in_thread),
            building_images=building_images,
        )
        await self._forge.upsert_comment(job.repo, job.number, job.id, text, in_progress=True)
        latest = await self._queue.get_record(job.id)
        if latest and isinstance(latest.result, Stopped):  # while the notice was posted
            await self._forge.upsert_comment(
                job.repo,
                job.number,
                job.id,
                reply_texts.render_rejection(
                    render_reply(
                        "cancellation.md.j2", reason=latest.result.reason, by=latest.result.by
                    ).strip()
                ),
            )


def _is_ahead(one: JobRecord, other: JobRecord) -> bool:
    """Returns True if the job of record `one` runs before the job of record `other`.

    Times are whole seconds. If two jobs were requested in the same second, each of them counts as ahead of the
    other.
    """
    return one.state == "running" or (
        one.is_requested_before(other.requested_at) if other.requested_at else True
    )


@contextlib.asynccontextmanager
async def _locked(locks: StartLocks, job: JobId) -> AsyncIterator[None]:
    await locks.lock(job, seconds=LOCK_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(QueueDown):
            await locks.lock(job, seconds=0)


def wait_for_start_lock(resolve: JobResolver, locks: StartLocks) -> JobResolver:
    """Wraps `resolve` so that a job waits while a notice about it is being posted."""

    async def resolve_when_unlocked(job: Job) -> Outcome:
        with contextlib.suppress(QueueDown):
            for _ in range(round(LOCK_SECONDS / LOCK_POLL_SECONDS)):
                if not await locks.is_locked(job.id):
                    break
                await asyncio.sleep(LOCK_POLL_SECONDS)
        return await resolve(job)

    return resolve_when_unlocked
