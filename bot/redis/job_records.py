"""Stores job records in Redis permanently, and the set of open (unfinished) jobs."""

import contextlib
import json
import logging
from collections.abc import Awaitable
from typing import cast

from pydantic import ValidationError
from redis.asyncio import Redis

from patchwright.bot.jobs import OPERATOR_REQUEST, Cancellation, JobRecord, UnreadableJob
from patchwright.bot.redis.connection import parse_stored
from patchwright.resolver.domain import JobId

log = logging.getLogger(__name__)

OPEN_JOBS_KEY = "patchwright:open_jobs"  # set: ids of the jobs that have not ended


class JobRecords:
    """Stores job records. Every method may raise RedisError and OSError, which ArqQueue translates."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def add(self, record: JobRecord) -> bool:
        """Stores the record of a new job. Returns False if the job is already known."""
        job = record.job.id
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.sadd(OPEN_JOBS_KEY, job)
            pipe.set(record_key(job), record.model_dump_json(), nx=True)
            _, is_new = await pipe.execute()
        return bool(is_new)

    async def read(self, job: JobId) -> JobRecord | None:
        """Returns the record of a job, or None if the record is missing or cannot be read."""
        return _parse_record(job, await self._redis.get(record_key(job)))

    async def is_open(self, job: JobId) -> bool:
        """Returns True if the job was added and has not ended, even if an older or newer version wrote its record."""
        return bool(await cast("Awaitable[int]", self._redis.sismember(OPEN_JOBS_KEY, job)))

    async def is_stored(self, job: JobId) -> bool:
        """Returns True if the job has a record, even if an older or newer version wrote it."""
        return bool(await self._redis.exists(record_key(job)))

    async def is_unstarted(self, job: JobId) -> bool:
        """Returns True if the job has not been started yet, even if an older or newer version wrote its record."""
        try:
            record = json.loads(await self._redis.get(record_key(job)) or b"null")
        except ValueError:
            return False
        return isinstance(record, dict) and record.get("state") == "queued" and not record.get("tries")

    async def write(self, record: JobRecord, *, keep_cancellation: bool = False) -> None:
        """Stores a record.

        If the job has ended, also deletes the request to cancel the job. Set `keep_cancellation` when you end a
        queued job, because a worker may start this job at the same moment. The worker must then still find the
        request.
        """
        job = record.job.id
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.set(record_key(job), record.model_dump_json())
            if record.state == "completed":
                pipe.srem(OPEN_JOBS_KEY, job)
                if not keep_cancellation:
                    pipe.delete(cancellation_key(job))
            await pipe.execute()

    async def restore(self, record: JobRecord) -> None:
        """Restores the record of a running job after Redis lost the record. Also marks the job as open."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.sadd(OPEN_JOBS_KEY, record.job.id)
            pipe.set(record_key(record.job.id), record.model_dump_json())
            await pipe.execute()

    async def mark_closed(self, job: JobId) -> None:
        """Removes a job from the set of open jobs."""
        await cast("Awaitable[int]", self._redis.srem(OPEN_JOBS_KEY, job))

    async def list_open_ids(self) -> list[JobId]:
        """Returns the ids of all jobs in the set of open jobs."""
        return [
            JobId(name.decode())
            for name in await cast("Awaitable[set[bytes]]", self._redis.smembers(OPEN_JOBS_KEY))
        ]

    async def list_open(self) -> list[JobRecord]:
        """Returns the records of open jobs. Leaves out records that this version cannot read."""
        records = [_parse_record(name, text) for name, text in await self._read_open()]
        return [record for record in records if record and record.state != "completed"]

    async def list_unreadable(self) -> list[UnreadableJob]:
        """Returns the open jobs that an incompatible version wrote."""
        return [job for _, text in await self._read_open() if (job := _parse_unreadable(text))]

    async def _read_open(self) -> list[tuple[JobId, bytes | None]]:
        """Returns the ids of all open jobs, each with its stored record."""
        jobs = await self.list_open_ids()
        return list(zip(jobs, await self._redis.mget(map(record_key, jobs)), strict=True)) if jobs else []


def _parse_record(job: JobId, stored: bytes | None) -> JobRecord | None:
    try:
        return None if stored is None else JobRecord.model_validate_json(stored)
    except ValidationError as exc:  # written by an incompatible version
        log.error("job record unreadable", extra={"job": job, "errors": exc.error_count()})
        return None


def _parse_unreadable(stored: bytes | None) -> UnreadableJob | None:
    """Returns the job from a record if this version can read the job, but not the whole record. Otherwise,
    returns None.
    """
    try:
        JobRecord.model_validate_json(stored or b"")
    except ValidationError:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            return UnreadableJob.model_validate(json.loads(stored or b"")["job"])
    return None


def record_key(job: JobId) -> str:
    """Returns the Redis key of a job's record."""
    return f"patchwright:job:{job}"


def cancellation_key(job: JobId) -> str:
    """Returns the Redis key of the request to cancel a job."""
    return f"patchwright:cancellation:{job}"


def parse_cancellation(stored: bytes) -> Cancellation:
    """Parses the stored request to cancel a job."""
    return parse_stored(Cancellation, stored) or OPERATOR_REQUEST
