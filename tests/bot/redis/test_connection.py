"""A Redis client reliably responds to cancellation."""

import asyncio
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from patchwright.bot.embedded_redis import run_embedded_redis
from patchwright.bot.redis.connection import redis_client

pytestmark = pytest.mark.redis

LOOP_ITERATIONS = 60  # iterations of the event loop, enough for several requests


async def count_lost_cancellations(redis: Redis, within: float) -> int:
    """Returns how many of many polling tasks miss their cancellation, each canceled one loop iteration later."""

    async def ask() -> None:
        while True:
            await redis.get("x")

    count = 0
    for iterations in range(LOOP_ITERATIONS):
        task = asyncio.create_task(ask())
        for _ in range(iterations):
            await asyncio.sleep(0)
        task.cancel()
        _, running = await asyncio.wait((task,), timeout=within)
        count += bool(running)
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=0.05)
    await redis.aclose()
    return count


@pytest.mark.slow
async def test_a_task_that_polls_redis_receives_every_cancellation(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        assert await count_lost_cancellations(redis_client(url), within=10) == 0
        # From 3.11.3 to 3.11, redis-py's own timeout loses some cancellations; before, it uses another timeout.
        if (3, 11, 3) <= sys.version_info < (3, 12):
            assert await count_lost_cancellations(Redis.from_url(url, socket_timeout=5), within=0.1) > 0
