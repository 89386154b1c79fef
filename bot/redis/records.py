"""What Redis knows of jobs: a record each, kept for good, and which of them have not ended."""

import contextlib
import json
import logging
from collections.abc import Awaitable
from typing import cast

from pydantic import ValidationError
from redis.asyncio import Redis

from bot.jobs import Record, Unread
from resolver.domain import JobId

log = logging.getLogger(__name__)

OPEN = "patchwright:open"  # set: ids of the jobs that have not ended


class Records:
    """Every method may raise RedisError and OSError: they are the queue's to translate."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def begin(self, record: Record) -> bool:
        """Store a job that is new; False: it is known already."""
        job = record.job.id
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.sadd(OPEN, job)
            pipe.set(record_of(job), record.model_dump_json(), nx=True)
            _, fresh = await pipe.execute()
        return bool(fresh)

    async def read(self, job: JobId) -> Record | None:
        """None: never heard of, or not to be read."""
        return _read(job, await self._redis.get(record_of(job)))

    async def is_open(self, job: JobId) -> bool:
        """Whether it was put and has not ended, though nobody here may be able to read more of it."""
        return bool(await cast("Awaitable[int]", self._redis.sismember(OPEN, job)))

    async def is_stored(self, job: JobId) -> bool:
        """Whether there is a record of it, to be read or not."""
        return bool(await self._redis.exists(record_of(job)))

    async def is_fresh(self, job: JobId) -> bool:
        """Whether it was never begun, as far as any version says."""
        try:
            known = json.loads(await self._redis.get(record_of(job)) or b"null")
        except ValueError:
            return False
        return isinstance(known, dict) and known.get("state") == "queued" and not known.get("tries")

    async def write(self, record: Record, *, keep_unwanted: bool = False) -> None:
        """Store what is known now. `keep_unwanted`: whoever runs the job is still to be told that it has ended."""
        job = record.job.id
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.set(record_of(job), record.model_dump_json())
            if record.state == "ended":
                pipe.srem(OPEN, job)
                if not keep_unwanted:
                    pipe.delete(unwanted_of(job))
            await pipe.execute()

    async def restore(self, record: Record) -> None:
        """Store a job that runs, as one that has not ended: Redis may have forgotten it."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.sadd(OPEN, record.job.id)
            pipe.set(record_of(record.job.id), record.model_dump_json())
            await pipe.execute()

    async def drop(self, job: JobId) -> None:
        """It counts no longer among those that have not ended."""
        await cast("Awaitable[int]", self._redis.srem(OPEN, job))

    async def open(self) -> list[JobId]:
        """Those that have not ended, as far as is known."""
        return [
            JobId(name.decode()) for name in await cast("Awaitable[set[bytes]]", self._redis.smembers(OPEN))
        ]

    async def unended(self) -> list[Record]:
        """What is stored of those that have not ended."""
        known = [_read(name, text) for name, text in await self._stored()]
        return [one for one in known if one and one.state != "ended"]

    async def unread(self) -> list[Unread]:
        """Those that have not ended, of which more is stored than can be read here."""
        return [one for _, text in await self._stored() if (one := _unread(text))]

    async def _stored(self) -> list[tuple[JobId, bytes | None]]:
        """Those that have not ended, with their records."""
        names = await self.open()
        return list(zip(names, await self._redis.mget(map(record_of, names)), strict=True)) if names else []


def _read(job: JobId, stored: bytes | None) -> Record | None:
    try:
        return None if stored is None else Record.model_validate_json(stored)
    except ValidationError as exc:  # of another version of ours
        log.error("a job's record is unreadable", extra={"job": job, "faults": exc.error_count()})
        return None


def _unread(stored: bytes | None) -> Unread | None:
    """None: all of it can be read, or nothing."""
    try:
        Record.model_validate_json(stored or b"")
    except ValidationError:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            return Unread.model_validate(json.loads(stored or b"")["job"])
    return None


def record_of(job: JobId) -> str:
    """The key of a job's record."""
    return f"patchwright:job:{job}"


def unwanted_of(job: JobId) -> str:
    """The key of why a job is not to go on."""
    return f"patchwright:unwanted:{job}"
