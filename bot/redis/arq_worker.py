"""An arq worker that skips paused jobs, and jobs that already run on another worker."""

import json
import logging
import time
from datetime import timedelta
from typing import Any, cast

import arq
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix
from arq.typing import WorkerCoroutine
from arq.worker import Worker as ArqWorker

from patchwright.bot.redis.connection import RELEASE_LOCK_SCRIPT, redis_pool

QUEUE_NAME = "patchwright:queue"
ARQ_FUNCTION = "resolve"
POLL_SECONDS = 0.2  # how often arq polls for jobs
# With arq's defaults (300 s per job, 5 tries, 24 h in the queue), a job could end without a result. These
# limits are never reached, because the handler has a time limit of its own and the job record counts the
# tries.
JOB_TIMEOUT_SECONDS = 7 * 24 * 3600
MAX_TRIES = 1_000_000
EXPIRES_MS = 10 * 365 * 24 * 3600 * 1000  # arq's default would drop a job after a day in the queue
PAUSE_MARKER = b"paused"
"""The value of a job's lease while the job is paused. A paused job must not start, and no worker is running it.
"""
WAKE_KEY_PREFIX = "patchwright:wake:"
"""Prefix of the keys of jobs that shall start at once."""
WAKE_MS = 60_000  # longer than a worker needs to return a job to the queue
QUEUE_READ_LIMIT = 1_000_000  # with arq's default of 100, running jobs could hide jobs that wait


class RetryLater(arq.Retry):
    """Raised to start a job again after a pause. Unlike with arq.Retry, the job keeps its place in the
    queue.
    """

    def __init__(self, seconds: float, defer_by: timedelta | None = None) -> None:
        """`defer_by` moves the job to another place in the queue: see `_defer_by` of arq's `enqueue_job`. If
        it is None, the job keeps its place.
        """
        super().__init__(defer=defer_by)
        self.seconds = seconds


class QueueWorker(ArqWorker):
    """An arq worker that finds out with one query which due jobs are running or paused. arq itself would send
    one query per job.
    """

    def __init__(
        self, function: WorkerCoroutine, redis: ArqRedis, *, max_jobs: int, lease_seconds: float
    ) -> None:
        # arq would log the arguments of a job, which are untrusted text.
        logging.getLogger("arq.worker").setLevel(logging.WARNING)
        super().__init__(
            functions=[arq.func(function, name=ARQ_FUNCTION)],
            redis_pool=redis,
            queue_name=QUEUE_NAME,
            handle_signals=False,
            max_jobs=max_jobs,
            poll_delay=POLL_SECONDS,
            job_timeout=JOB_TIMEOUT_SECONDS,
            max_tries=MAX_TRIES,
            keep_result=0,  # the result is stored in the job record instead
            expires_extra_ms=EXPIRES_MS,
            job_serializer=to_json,
            job_deserializer=json.loads,
            queue_read_limit=QUEUE_READ_LIMIT,
        )
        # Duration of a job's lease in seconds. arq's default is the job timeout + 10 s. With this default,
        # the job of a killed worker could not be restarted for a week. This lease is short, and is renewed
        # while the job runs.
        self.in_progress_timeout_s = lease_seconds
        self.pauses: dict[str, float] = {}
        """The jobs that are being returned to the queue, each with the length of its pause in seconds."""

    async def start_jobs(self, job_ids: list[bytes]) -> None:
        keys = [in_progress_key_prefix.encode() + job for job in job_ids]
        leases = await self.pool.mget(keys) if keys else []
        await super().start_jobs([job for job, lease in zip(job_ids, leases, strict=True) if lease is None])

    async def finish_job(self, job_id: str, *arguments: Any) -> None:
        if pause := self.pauses.pop(job_id, 0):
            await self.pool.set(in_progress_key_prefix + job_id, PAUSE_MARKER, px=round(pause * 1000))
            arguments = (*arguments[:-1], pause)  # The last one is `keep_in_progress`.
        await super().finish_job(job_id, *arguments)
        # The record says that the job waits before the pause begins. `start_now` may have come in between.
        if pause and await self.pool.getdel(WAKE_KEY_PREFIX + job_id):
            await _make_due(self.pool, job_id, timedelta())


def arq_client(url: str) -> ArqRedis:
    """Returns an arq client that stores jobs as JSON and never drops them. Raises SettingsError if the URL is
    invalid.
    """
    return ArqRedis(
        redis_pool(url),
        job_serializer=to_json,
        job_deserializer=json.loads,
        default_queue_name=QUEUE_NAME,
        expires_extra_ms=EXPIRES_MS,
    )


def to_json(value: dict[str, Any]) -> bytes:
    # arq stores the exception of a failed job in the job's result. The text of the exception is enough.
    return json.dumps(value, default=str).encode()


async def start_now(redis: arq.ArqRedis, job: str, offset: timedelta) -> None:
    """Makes a queued job due at the current time plus `offset`, and ends its pause, even if the pause has yet to
    begin.
    """
    await redis.set(WAKE_KEY_PREFIX + job, 1, px=WAKE_MS)
    await _make_due(redis, job, offset)


async def forget_start_now(redis: arq.ArqRedis, job: str) -> None:
    """Called when the job starts, so that its next pause is not cut short."""
    await redis.delete(WAKE_KEY_PREFIX + job)


async def _make_due(redis: arq.ArqRedis, job: str, offset: timedelta) -> None:
    due_at = time.time() + offset.total_seconds()
    await redis.zadd(QUEUE_NAME, {job: int(due_at * 1000)}, xx=True)
    await end_pause(redis, job)


async def end_pause(redis: arq.ArqRedis, job: str) -> None:
    """Ends the pause of a job, so that a worker can start the job. Does nothing if the job is not paused."""
    await cast("Any", redis.eval(RELEASE_LOCK_SCRIPT, 1, in_progress_key_prefix + job, PAUSE_MARKER.decode()))
