"""How a worker takes jobs from arq's queue: not those that somebody has, and none before its pause is over."""

import json
from datetime import timedelta
from typing import Any, cast

import arq
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix
from arq.worker import Worker as ArqWorker

from bot.redis.client import LET_GO, redis_pool

QUEUE = "patchwright:queue"
EXPIRES_MS = 10 * 365 * 24 * 3600 * 1000  # arq's own choice would end what waits for a day
PAUSED = b"paused"
"""What says that nobody has a job, but nobody is to begin it yet."""
EVERY = 1_000_000  # arq's choice, 100, would be used up by what runs elsewhere


class Later(arq.Retry):
    """The job is to be begun after a pause. arq would put it behind all others; here it keeps its rank."""

    def __init__(self, seconds: float, rank: timedelta | None = None) -> None:
        """`rank`: what it has from now on, as for `enqueue_job`; None: what it had."""
        super().__init__(defer=rank)
        self.seconds = seconds


class Taker(ArqWorker):
    """arq's worker, which would ask for each job by itself whether somebody has it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, queue_read_limit=EVERY)
        self.pauses: dict[str, float] = {}
        """Seconds, of those that are just being given back."""

    async def start_jobs(self, job_ids: list[bytes]) -> None:
        keys = [in_progress_key_prefix.encode() + job for job in job_ids]
        had = await self.pool.mget(keys) if keys else []
        await super().start_jobs([job for job, by in zip(job_ids, had, strict=True) if by is None])

    async def finish_job(
        self,
        job_id: str,
        finish: bool,
        result_data: bytes | None,
        result_timeout_s: float | None,
        keep_result_forever: bool,
        incr_score: int | None,
        keep_in_progress: float | None,
    ) -> None:
        if pause := self.pauses.pop(job_id, 0):
            await self.pool.set(in_progress_key_prefix + job_id, PAUSED, px=round(pause * 1000))
            keep_in_progress = pause
        await super().finish_job(
            job_id,
            finish,
            result_data,
            result_timeout_s,
            keep_result_forever,
            incr_score,
            keep_in_progress,
        )


def arq_client(url: str) -> ArqRedis:
    """A Redis on which jobs are JSON, and wait for as long as it takes. Raises SettingsError for a wrong URL."""
    return ArqRedis(
        redis_pool(url),
        job_serializer=to_json,
        job_deserializer=json.loads,
        default_queue_name=QUEUE,
        expires_extra_ms=EXPIRES_MS,
    )


def to_json(value: dict[str, Any]) -> bytes:
    # arq puts exceptions into what it stores of a failed job; their text is enough.
    return json.dumps(value, default=str).encode()


async def wake(redis: arq.ArqRedis, job: str) -> None:
    """End its pause, if it has one; whoever runs it keeps it."""
    await cast("Any", redis.eval(LET_GO, 1, in_progress_key_prefix + job, PAUSED.decode()))
