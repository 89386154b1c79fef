"""The shared write limiter when a waiting process or Redis is gone."""

import asyncio
import time
from pathlib import Path

import pytest

from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_write_limiter import SharedWriteLimiter
from patchwright.bot.write_limiter import Priority, acquire

pytestmark = pytest.mark.redis


@pytest.mark.slow
async def test_a_process_killed_in_the_queue_does_not_block_writes(url: str) -> None:
    line = SharedWriteLimiter(url)
    await acquire(line, "us", 0.1)
    assert await line.try_acquire("us", "killed", Priority.ACKNOWLEDGMENT, 0.1) > 0
    began = time.monotonic()
    await asyncio.wait_for(acquire(line, "us", 0.1), 30)
    assert time.monotonic() - began > 1, "it was waited for, or nothing shows that it was in the line"
    await line.close()


async def test_without_redis_writes_are_limited_per_process(
    short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_embedded_redis(short_tmp) as url:
        line = SharedWriteLimiter(url)
        await line.block("us", 60)
        assert await line.try_acquire("them", "a", Priority.WORK, 60) == 0
    assert 0 < await line.blocked_seconds("us") <= 60
    assert await line.try_acquire("others", "b", Priority.WORK, 60) == 0
    assert await line.try_acquire("others", "c", Priority.WORK, 60) > 0
    await line.withdraw("others", "c")
    assert [
        record.message
        for record in caplog.records
        if record.name == "patchwright.bot.redis.shared_write_limiter"
    ] == ["write limits apply to this process only"]
    await line.close()


async def test_the_write_limiter_stores_no_credentials_and_leaves_no_keys(url: str) -> None:
    line = SharedWriteLimiter(url)
    await acquire(line, "us", 0.01)
    assert await line.try_acquire("us", "waits", Priority.WORK, 0.01) >= 0
    async for key in line._redis.scan_iter("patchwright:writes:*"):
        assert await line._redis.ttl(key) != -1  # -1: no expiry; -2: the key is gone.
    await line.close()
