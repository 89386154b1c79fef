"""The job queue on Redis. Each trigger leads to exactly one job, even if a process is killed at any point.

One permanent record per job stores its state and result. arq delivers each job to a worker at least once.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from arq.constants import in_progress_key_prefix
from pydantic import ValidationError
from redis.exceptions import RedisError

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import (
    OPERATOR_REQUEST,
    Cancellation,
    JobHandler,
    JobRecord,
    JobResult,
    Retry,
    UnreadableJob,
    UnreadableJobListener,
    cancel_handler,
    cancel_scope,
    select_records,
    sort_by_request_time,
    task_result,
    thread_key,
)
from patchwright.bot.redis.arq_worker import (
    ARQ_FUNCTION,
    EXPIRES_MS,
    PAUSE_MARKER,
    QUEUE_NAME,
    QueueWorker,
    RetryLater,
    arq_client,
    forget_start_now,
    start_now,
)
from patchwright.bot.redis.connection import redis_errors
from patchwright.bot.redis.job_records import JobRecords, cancellation_key, parse_cancellation
from patchwright.bot.redis.thread_stops import ThreadStops
from patchwright.resolver.domain import Job, JobId, Repo

log = logging.getLogger(__name__)

SUPERVISE_SECONDS = 1.0  # how often a running job renews its leases and checks for cancellation
LEASE_SECONDS = 30.0  # another worker may take over a job whose lease was not renewed for this long
BUSY_RETRY_SECONDS = 2.0  # delay before a job checks again whether another job of its thread is running
URGENT_OFFSET = timedelta(days=-1)  # makes an urgent job due earlier than all other jobs
UNREADABLE_RETRY_SECONDS = 60.0  # delay before a worker reads an unreadable job again
ERROR_RETRY_SECONDS = 1.0  # how long a worker waits after a Redis error


class ArqQueue:
    """A job queue on Redis. The URL of the Redis starts with `redis://`, `rediss://` or `unix://`."""

    def __init__(
        self,
        url: str,
        *,
        max_concurrent_jobs: int = 2,
        is_only_worker: bool = False,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """`is_only_worker` is True if no other worker uses this Redis. Each worker runs at most
        `max_concurrent_jobs` jobs at the same time.

        Raises SettingsError if the Redis URL is invalid.
        """
        self._redis = arq_client(url)
        self._records = JobRecords(self._redis)
        self._stops = ThreadStops(self._redis)
        self._max_concurrent_jobs = max_concurrent_jobs
        self._is_only_worker = is_only_worker
        self._lease_seconds = lease_seconds
        self._running_jobs: set[JobId] = set()

    async def put(self, job: Job, *, urgent: bool = True, requested_at: datetime | None = None) -> bool:
        record = JobRecord(job=job, urgent=urgent, requested_at=requested_at)
        with redis_errors():
            if requested_at is not None and await self._stops.is_stopped(job, requested_at):
                return False
            is_new = await self._records.add(record)
            open_record = record if is_new else await self._find_open(job)
            if open_record:  # a process may have died after it stored the job and before it queued the job
                await self._enqueue(open_record)
            return is_new

    async def cancel(self, job: JobId, cancellation: Cancellation = OPERATOR_REQUEST) -> bool:
        with redis_errors():
            record = await self.get_record(job)
            if record is None or record.state == "completed":
                return False
            await self._redis.set(cancellation_key(job), cancellation.model_dump_json(), px=EXPIRES_MS)
            if record.state == "queued" and record.tries == 0:
                # The cancellation request stays stored for a handler that has just started.
                await self._records.write(
                    record.with_result(cancellation.as_result()), keep_cancellation=True
                )
            elif record.state == "queued":  # a try that starts at once, only to handle the cancellation
                await start_now(self._redis, job, URGENT_OFFSET if record.urgent else timedelta())
            return True

    async def end_github_waits(self) -> None:
        with redis_errors():
            for record in await self._records.list_open():
                if record.state == "queued" and record.github_wait:
                    offset = URGENT_OFFSET if record.urgent else timedelta()
                    await start_now(self._redis, record.job.id, offset)

    async def should_continue(self, job: JobId) -> bool:
        with redis_errors():
            return not await self._redis.exists(cancellation_key(job))

    async def mark_running(self, job: Job) -> None:
        with redis_errors():
            await self._records.write(JobRecord(job=job).with_next_try())

    async def complete(self, job: Job, result: JobResult) -> None:
        with redis_errors():
            await self._records.write(
                (await self.get_record(job.id) or JobRecord(job=job)).with_result(result)
            )

    async def active_jobs(self, repo: Repo, number: int) -> tuple[JobRecord, ...]:
        thread = thread_key(repo, number)
        records = await self.all_active_jobs()
        return sort_by_request_time(
            record for record in records if thread_key(record.job.repo, record.job.number) == thread
        )

    async def unreadable_jobs(self, repo: Repo, number: int) -> tuple[UnreadableJob, ...]:
        with redis_errors():
            unreadable = await self._records.list_unreadable()
        thread = thread_key(repo, number)
        return tuple(job for job in unreadable if thread_key(job.repo, job.number) == thread)

    async def all_active_jobs(self) -> tuple[JobRecord, ...]:
        with redis_errors():
            return tuple(await self._records.list_open())

    async def cancel_thread(
        self,
        repo: Repo,
        number: int,
        requested_before: datetime,
        cancellation: Cancellation = OPERATOR_REQUEST,
    ) -> tuple[JobRecord, ...]:
        scope = cancel_scope(cancellation.reason)
        with redis_errors():
            await self._stops.record(repo, number, scope, requested_before)
        matching = select_records(await self.active_jobs(repo, number), requested_before, scope)
        for record in matching:
            await self.cancel(record.job.id, cancellation)
        return matching

    async def get_record(self, job: JobId) -> JobRecord | None:
        with redis_errors():
            return await self._records.read(job)

    async def measure_backlog(self) -> tuple[dict[str, int], float]:
        """Returns the number of unfinished jobs by state, and the longest wait for a worker, in seconds."""
        now, waits = time.time(), [0.0]
        with redis_errors():
            open_records = {record.job.id: record for record in await self._records.list_open()}
            due = await self._redis.zrangebyscore(QUEUE_NAME, "-inf", now * 1000, withscores=True)
            due_records = [
                (open_records[JobId(name.decode())], due_at / 1000)
                for name, due_at in due
                if name.decode() in open_records
            ]
            leases = await self._redis.mget(
                [in_progress_key_prefix + record.job.id for record, _ in due_records] or ["-"]
            )
            locks = await self._redis.mget(
                [_thread_lock_key(record.job) for record, _ in due_records] or ["-"]
            )
        for (record, due_at), lease, lock in zip(due_records, leases, locks, strict=False):
            if lease is None and lock is None:
                waits.append(now - due_at + (URGENT_OFFSET.total_seconds() if record.urgent else 0))
        return dict(Counter[str](record.state for record in open_records.values())), max(waits)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)

    async def process_jobs(
        self, handler: JobHandler, on_unreadable: UnreadableJobListener | None = None
    ) -> None:
        """Runs jobs until canceled. Calls `on_unreadable` with each job that it cannot read."""
        tasks: set[asyncio.Task[Any]] = set()
        try:
            if self._is_only_worker:
                await self._retry_until_done(self._release_orphans)
            while True:
                await self._retry_until_done(self._requeue_open_jobs)
                # After a Redis error, an arq worker ends with wrong counters. A new arq worker replaces it,
                # and its running jobs continue.
                worker = self.build_worker(handler, on_unreadable)
                try:
                    await worker.main()
                except (RedisError, OSError) as exc:
                    log.warning("queue interrupted", extra={"reason": type(exc).__name__})
                    await asyncio.sleep(ERROR_RETRY_SECONDS)
                finally:
                    tasks |= set(worker.tasks.values())
                    tasks -= {task for task in tasks if task.done()}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def build_worker(
        self, handler: JobHandler, on_unreadable: UnreadableJobListener | None = None
    ) -> QueueWorker:
        """Returns the arq worker that runs the jobs for `process_jobs`."""

        async def resolve(ctx: dict[Any, Any], text: str) -> None:
            job_id = JobId(ctx.get("job_id", ""))
            try:
                await self._handle_entry(
                    handler, job_id, text, on_unreadable if ctx.get("job_try", 1) > 1 else None
                )
            except RetryLater as later:
                worker.pauses[job_id] = later.seconds
                raise

        worker = QueueWorker(
            resolve, self._redis, max_jobs=self._max_concurrent_jobs, lease_seconds=self._lease_seconds
        )
        return worker

    async def _handle_entry(
        self, handler: JobHandler, job_id: JobId, text: str, on_unreadable: UnreadableJobListener | None
    ) -> None:
        try:
            try:
                job = Job.model_validate_json(text)
            except ValidationError as exc:
                fields = {"job": job_id, "errors": exc.error_count()}
                log.error("job from another version skipped", extra=fields)
                if on_unreadable is not None and await self._records.is_unstarted(job_id):
                    with contextlib.suppress(ValidationError):
                        await on_unreadable(UnreadableJob.model_validate_json(text))
                raise RetryLater(UNREADABLE_RETRY_SECONDS) from exc
            await self._run_unless_running(handler, job)
        except (RedisError, OSError, QueueDown) as exc:
            # arq removes a job from its queue after any error except RetryLater.
            raise RetryLater(ERROR_RETRY_SECONDS) from exc

    async def _run_unless_running(self, handler: JobHandler, job: Job) -> None:
        if job.id in self._running_jobs:  # the lease expired, but this worker still runs the job
            raise RetryLater(self._lease_seconds)
        self._running_jobs.add(job.id)
        try:
            await self._run_job(handler, job)
        finally:
            self._running_jobs.discard(job.id)

    async def _run_job(self, handler: JobHandler, job: Job) -> None:
        if await self._find_open(job) is None:
            return
        if not await self._acquire_thread_lock(job):  # two jobs of one thread would push to the same branch
            raise RetryLater(BUSY_RETRY_SECONDS)
        open_record = await self._find_open(job)
        if open_record is None:  # the job that held the lock has completed this job, too
            await self._release_thread_lock(await self.get_record(job.id) or JobRecord(job=job))
            return
        record = open_record.with_next_try()
        await self._records.write(record)
        await forget_start_now(self._redis, job.id)
        task = asyncio.create_task(handler(job, record.counted_tries))
        supervisor = asyncio.create_task(self._supervise(record, task))
        try:
            await asyncio.wait((task,))
            cancellation = supervisor.result() if supervisor.done() else None
        except asyncio.CancelledError:  # this worker is shutting down; another try resumes the run
            task.cancel()
            await asyncio.wait((task,))
            result = (
                Retry(delay_seconds=0, counts_as_try=False) if task.cancelled() else task_result(job.id, task)
            )
            # The result is stored in a task of its own. Before Python 3.11.3, a timeout inside a canceled
            # task cancels the task again; redis-py uses such timeouts. Debian 12 has 3.11.2.
            await asyncio.create_task(self._store_result(record, result))
            raise
        finally:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
            await asyncio.create_task(self._release_thread_lock(record))
        result = cancellation.as_result() if cancellation and task.cancelled() else task_result(job.id, task)
        await self._retry_until_done(lambda: self._store_result(record, result))
        if isinstance(result, Retry):
            delay = timedelta(seconds=result.delay_seconds)
            raise RetryLater(result.delay_seconds, delay + URGENT_OFFSET if record.urgent else delay)

    async def _store_result(self, record: JobRecord, result: JobResult | Retry) -> None:
        """Stores the result of this try. Does nothing if another worker has started a newer try."""
        if await self._is_current_attempt(record):
            await self._records.write(record.with_result(result))

    async def _is_current_attempt(self, record: JobRecord) -> bool:
        """Returns False if another worker has started a newer try, because it considered this worker dead."""
        stored = await self.get_record(record.job.id)
        return stored is None or stored.tries <= record.tries

    async def _find_open(self, job: Job) -> JobRecord | None:
        """Returns the record of a job, or None if the job has ended or was never added."""
        record = await self.get_record(job.id)
        if record is None and await self._records.is_open(job.id):
            return JobRecord(job=job)  # an incompatible version wrote the record, and the job has not ended
        return None if record is None or record.state == "completed" else record

    async def _acquire_thread_lock(self, job: Job) -> bool:
        """Locks the job's issue or pull request. Returns False if another of its jobs is running."""
        key, lease = _thread_lock_key(job), round(self._lease_seconds * 1000)
        return bool(await self._redis.set(key, job.id, nx=True, px=lease)) or (
            await self._redis.get(key) == job.id.encode()
        )

    async def _release_thread_lock(self, record: JobRecord) -> None:
        key, job_id = _thread_lock_key(record.job), record.job.id.encode()
        with contextlib.suppress(RedisError, OSError, QueueDown):  # the lock expires by itself
            if await self._redis.get(key) == job_id and await self._is_current_attempt(record):
                await self._redis.delete(key)

    async def _supervise(
        self, record: JobRecord, task: asyncio.Task[JobResult | Retry]
    ) -> Cancellation | None:
        """Renews the leases of a running job. If the job is canceled, cancels its task."""
        job, lease = record.job, round(self._lease_seconds * 1000)
        while not task.done():
            try:
                async with self._redis.pipeline(transaction=False) as pipe:
                    pipe.get(cancellation_key(job.id))
                    pipe.set(in_progress_key_prefix + job.id, b"1", px=lease, xx=True)
                    pipe.set(_thread_lock_key(job), job.id, px=lease)
                    stored, has_lease, _ = await pipe.execute()
                if not has_lease:  # Redis was wiped, or was unreachable for longer than the lease
                    await self._restore_job(record)
            except (RedisError, OSError):
                stored = None  # the job continues while Redis is down
            if stored:
                cancellation = parse_cancellation(stored)
                cancel_handler(task, cancellation)
                return cancellation
            await asyncio.sleep(SUPERVISE_SECONDS)
        return None

    async def _restore_job(self, record: JobRecord) -> None:
        """Restores the lease, the record and the queue entry of a running job after Redis lost them. The
        lease comes first, because it keeps other workers from starting the job.
        """
        lease = round(self._lease_seconds * 1000)
        if await self._redis.set(in_progress_key_prefix + record.job.id, b"1", nx=True, px=lease):
            await self._records.restore(record)
            # queued again, but no other worker starts the job before the lease expires
            await self._enqueue(record)

    async def _release_orphans(self) -> None:
        """Lets the jobs of a killed worker restart. Must not be called while other workers use this Redis."""
        for job in await self._records.list_open_ids():
            if await self._redis.get(in_progress_key_prefix + job) != PAUSE_MARKER:
                await self._redis.delete(in_progress_key_prefix + job)

    async def _requeue_open_jobs(self) -> None:
        """Adds unfinished jobs to arq's queue if they are missing there. If a job in the list of open jobs is
        completed or its record is lost, removes the job from this list.
        """
        for job in await self._records.list_open_ids():
            record = await self.get_record(job)
            if record is not None and record.state != "completed":
                await self._enqueue(record)
            elif record is not None or not await self._records.is_stored(job):
                await self._records.mark_closed(job)

    async def _enqueue(self, record: JobRecord) -> None:
        """Adds the job to arq's queue, unless the queue already contains the job."""
        offset = URGENT_OFFSET if record.urgent else None
        job = record.job
        await self._redis.enqueue_job(ARQ_FUNCTION, job.model_dump_json(), _job_id=job.id, _defer_by=offset)

    async def _retry_until_done(self, operation: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await operation()
            except (RedisError, OSError, QueueDown) as exc:
                log.warning("redis unavailable", extra={"reason": type(exc).__name__})
                await asyncio.sleep(ERROR_RETRY_SECONDS)


def _thread_lock_key(job: Job) -> str:
    return f"patchwright:thread_lock:{thread_key(job.repo, job.number)}"
