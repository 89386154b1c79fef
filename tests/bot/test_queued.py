"""Which jobs are not to be begun just now: in one process, and for all workers of a Redis."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.errors import QueueDown
from bot.queued import Holds, HoldsHere, when_free
from bot.redis.holds import SharedHolds
from resolver.domain import Job, JobId, Refused
from tests.bot.jobs import DONE, job

ONE, OTHER = JobId("one"), JobId("other")


@pytest.fixture(params=["here", pytest.param("redis", marks=pytest.mark.redis)])
async def holds(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[Holds]:
    if request.param == "here":
        yield HoldsHere()
        return
    async with embedded_redis(short_tmp) as url:
        shared = SharedHolds(url)
        yield shared
        await shared.close()


async def test_a_job_is_held_until_it_is_let_go_or_the_time_is_over(holds: Holds) -> None:
    await holds.hold(ONE, seconds=60)
    assert await holds.is_held(ONE) and not await holds.is_held(OTHER)
    await holds.hold(ONE, seconds=0)
    assert not await holds.is_held(ONE)
    await holds.hold(ONE, seconds=0.05)
    await asyncio.sleep(0.2)
    assert not await holds.is_held(ONE)


async def resolve(job: Job) -> Refused:
    return DONE


async def test_work_waits_until_the_job_is_let_go(holds: Holds) -> None:
    await holds.hold(job().id, seconds=60)
    working = asyncio.create_task(when_free(resolve, holds)(job()))
    await asyncio.sleep(0.3)
    assert not working.done()
    await holds.hold(job().id, seconds=0)
    async with asyncio.timeout(10):
        assert await working == DONE


async def test_work_does_not_wait_for_a_redis_that_is_away(tmp_path: Path) -> None:
    away = SharedHolds(f"unix://{tmp_path}/nothing")
    with pytest.raises(QueueDown):
        await away.is_held(ONE)
    async with asyncio.timeout(20):
        assert await when_free(resolve, away)(job()) == DONE
