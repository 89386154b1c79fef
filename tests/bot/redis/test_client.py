"""A client of Redis that is told to go, goes."""

import asyncio
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from bot.embedded import embedded_redis
from bot.redis.client import redis_client

pytestmark = pytest.mark.redis

MOMENTS = 60  # turns of the loop: several questions long


async def unheard(redis: Redis, within: float) -> int:
    """How many of those who ask again and again do not hear that they are cancelled, each a turn later than another."""

    async def ask() -> None:
        while True:
            await redis.get("x")

    count = 0
    for turns in range(MOMENTS):
        asking = asyncio.create_task(ask())
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        _, going_on = await asyncio.wait((asking,), timeout=within)
        count += bool(going_on)
        while not asking.done():
            asking.cancel()
            await asyncio.wait((asking,), timeout=0.05)
    await redis.aclose()
    return count


async def test_whoever_asks_redis_again_and_again_hears_every_cancellation(short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        assert await unheard(redis_client(url), within=10) == 0
        if sys.version_info < (3, 12):  # the library's own way of waiting forgets some of them
            assert await unheard(Redis.from_url(url, socket_timeout=5), within=0.1) > 0
