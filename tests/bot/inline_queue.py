"""A job queue in this process, for tests."""

import asyncio
import itertools
from datetime import datetime

from patchwright.bot.jobs import (
    OPERATOR_REQUEST,
    Cancellation,
    CancelScope,
    JobHandler,
    JobRecord,
    JobResult,
    Retry,
    UnreadableJob,
    cancel_handler,
    cancel_scope,
    matching_scopes,
    select_records,
    sort_by_request_time,
    task_result,
    thread_key,
)
from patchwright.resolver.domain import Job, JobId, Repo


class InlineQueue:
    """Keeps jobs in memory and runs one at a time."""

    def __init__(self) -> None:
        self._records: dict[JobId, JobRecord] = {}
        self._waiting: asyncio.PriorityQueue[tuple[bool, int, JobId]] = asyncio.PriorityQueue()
        self._places = itertools.count()
        self._running: dict[JobId, asyncio.Task[JobResult | Retry]] = {}
        self._stopped: dict[tuple[str, CancelScope], datetime] = {}
        self._unwanted: dict[JobId, Cancellation] = {}
        self._taken_up: dict[JobId, JobRecord] = {}
        self.left: list[UnreadableJob] = []
        """Jobs that another version queued."""

    @property
    def known(self) -> frozenset[JobId]:
        """The ids of all jobs ever queued."""
        return frozenset(self._records)

    async def put(self, job: Job, *, urgent: bool = True, requested_at: datetime | None = None) -> bool:
        thread = thread_key(job.repo, job.number)
        stops = [self._stopped.get((thread, scope)) for scope in matching_scopes(job)]
        if job.id in self._records or (requested_at and any(stop and requested_at < stop for stop in stops)):
            return False
        self._records[job.id] = JobRecord(job=job, urgent=urgent, requested_at=requested_at)
        self._enqueue(job.id)
        return True

    async def mark_running(self, job: Job) -> None:
        self._taken_up[job.id] = JobRecord(job=job).with_next_try()

    async def complete(self, job: Job, result: JobResult) -> None:
        self._records[job.id] = self._records.get(job.id, JobRecord(job=job)).with_result(result)

    async def active_jobs(self, repo: Repo, number: int) -> tuple[JobRecord, ...]:
        thread = thread_key(repo, number)
        known = await self.all_active_jobs()
        return sort_by_request_time(
            one for one in known if thread_key(one.job.repo, one.job.number) == thread
        )

    async def unreadable_jobs(self, repo: Repo, number: int) -> tuple[UnreadableJob, ...]:
        return tuple(one for one in self.left if thread_key(one.repo, one.number) == thread_key(repo, number))

    async def all_active_jobs(self) -> tuple[JobRecord, ...]:
        return tuple(one for one in self._records.values() if one.state != "completed")

    async def cancel_thread(
        self,
        repo: Repo,
        number: int,
        requested_before: datetime,
        cancellation: Cancellation = OPERATOR_REQUEST,
    ) -> tuple[JobRecord, ...]:
        scope = cancel_scope(cancellation.reason)
        key = thread_key(repo, number), scope
        self._stopped[key] = max(requested_before, self._stopped.get(key, requested_before))
        meant = select_records(await self.active_jobs(repo, number), requested_before, scope)
        for one in meant:
            await self.cancel(one.job.id, cancellation)
        return meant

    def _enqueue(self, job: JobId) -> None:
        self._waiting.put_nowait((not self._records[job].urgent, next(self._places), job))

    async def cancel(self, job: JobId, cancellation: Cancellation = OPERATOR_REQUEST) -> bool:
        known = self._records.get(job)
        if known is None or known.state == "completed":
            return False
        if known.state == "queued" and known.tries:  # An immediate next try saves its work.
            self._unwanted[job] = cancellation
            self._enqueue(job)
            return True
        self._records[job] = known.with_result(cancellation.as_result())
        if job in self._running:
            cancel_handler(self._running[job], cancellation)
        return True

    async def end_github_waits(self) -> None:
        for job, record in self._records.items():
            if record.state == "queued" and record.github_wait:
                self._enqueue(job)

    async def should_continue(self, job: JobId) -> bool:
        known = self._records.get(job)
        return job not in self._unwanted and (known is None or known.state != "completed")

    async def get_record(self, job: JobId) -> JobRecord | None:
        return self._records.get(job) or self._taken_up.get(job)

    async def process_jobs(self, handler: JobHandler) -> None:
        while True:
            _, _, job = await self._waiting.get()
            if self._records[job].state != "completed":
                await self._run(handler, self._records[job].with_next_try())

    async def _run(self, handler: JobHandler, record: JobRecord) -> None:
        job = record.job.id
        self._records[job] = record
        task = self._running[job] = asyncio.create_task(handler(record.job, record.counted_tries))
        if why := self._unwanted.pop(job, None):
            await asyncio.sleep(0)  # The task must start before it can be canceled.
            self._records[job] = record.with_result(why.as_result())
            cancel_handler(task, why)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            result = (
                Retry(delay_seconds=0, counts_as_try=False) if task.cancelled() else task_result(job, task)
            )
            self._records[job] = record.with_result(result)
            self._enqueue(job)
            raise
        finally:
            del self._running[job]
        if self._records[job].state == "completed":
            return  # Canceled in the meantime.
        result = task_result(job, task)
        self._records[job] = record.with_result(result)
        if isinstance(result, Retry):
            asyncio.get_running_loop().call_later(result.delay_seconds, self._enqueue, job)
