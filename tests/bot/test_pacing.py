"""The line of writes when those in it, or its Redis, are away."""

import asyncio
import time
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.pacing import Urgency, turn
from bot.redis.pacing import SharedLine

pytestmark = pytest.mark.redis


async def test_a_process_that_was_killed_in_the_line_holds_nobody_up(url: str) -> None:
    line = SharedLine(url)
    await turn(line, "us", 0.1)
    assert await line.claim("us", "killed", Urgency.ACKNOWLEDGEMENT, 0.1) > 0
    began = time.monotonic()
    await asyncio.wait_for(turn(line, "us", 0.1), 30)
    assert time.monotonic() - began > 1, "it was waited for, or nothing shows that it was in the line"
    await line.close()


async def test_without_its_redis_a_process_keeps_to_its_own_line(
    short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_redis(short_tmp) as url:
        line = SharedLine(url)
        await line.hold("us", 60)
        assert await line.claim("them", "a", Urgency.WORK, 60) == 0
    assert 0 < await line.held("us") <= 60
    assert await line.claim("others", "b", Urgency.WORK, 60) == 0
    assert await line.claim("others", "c", Urgency.WORK, 60) > 0
    await line.leave("others", "c")
    assert [record.message for record in caplog.records if record.name == "bot.redis.pacing"] == [
        "writes are spaced by this process alone"
    ]
    await line.close()


async def test_a_line_tells_nothing_and_leaves_nothing_behind(url: str) -> None:
    line = SharedLine(url)
    await turn(line, "us", 0.01)
    assert await line.claim("us", "waits", Urgency.WORK, 0.01) >= 0
    async for key in line._redis.scan_iter("patchwright:writes:*"):
        assert await line._redis.ttl(key) != -1  # for ever; -2: it is gone already
    await line.close()
