"""A job that is returned to the queue with a pause, while somebody starts it at once."""

from datetime import timedelta

import pytest
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix

from patchwright.bot.redis.arq_worker import (
    PAUSE_MARKER,
    QUEUE_NAME,
    QueueWorker,
    arq_client,
    forget_start_now,
    start_now,
)

pytestmark = pytest.mark.redis


async def pause_job(redis: ArqRedis) -> bytes | None:
    """Returns the job to the queue with a pause of an hour. Returns its lease afterwards."""

    async def work(ctx: dict[object, object]) -> None: ...

    await redis.zadd(QUEUE_NAME, {"run-1": 1})
    worker = QueueWorker(work, redis, max_jobs=1, lease_seconds=10)
    worker.pauses["run-1"] = 3600
    await worker.finish_job("run-1", False, None, None, False, None, None)
    lease: bytes | None = await redis.get(in_progress_key_prefix + "run-1")
    return lease


async def test_a_job_that_is_started_just_before_its_pause_does_not_pause(url: str) -> None:
    redis = arq_client(url)
    assert await pause_job(redis) == PAUSE_MARKER  # the control
    await start_now(redis, "run-1", timedelta())
    assert await redis.get(in_progress_key_prefix + "run-1") is None
    await forget_start_now(redis, "run-1")  # the job has started
    assert await pause_job(redis) == PAUSE_MARKER
    await start_now(redis, "run-1", timedelta())
    assert await pause_job(redis) is None
    assert await pause_job(redis) == PAUSE_MARKER  # one start ends one pause
    await redis.aclose(close_connection_pool=True)
