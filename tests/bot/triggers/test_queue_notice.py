"""Start locks within one process and on Redis."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.start_locks import SharedStartLocks
from patchwright.bot.triggers.queue_notice import StartLocks, wait_for_start_lock
from patchwright.resolver.domain import Job, JobId, Rejected
from tests.bot.jobs import DONE, job
from tests.bot.local_services import LocalStartLocks

ONE, OTHER = JobId("one"), JobId("other")


@pytest.fixture(params=["here", pytest.param("redis", marks=pytest.mark.redis)])
async def holds(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[StartLocks]:
    if request.param == "here":
        yield LocalStartLocks()
        return
    async with run_embedded_redis(short_tmp) as url:
        shared = SharedStartLocks(url)
        yield shared
        await shared.close()


async def test_a_start_lock_lasts_until_it_is_released_or_expires(holds: StartLocks) -> None:
    await holds.lock(ONE, seconds=60)
    assert await holds.is_locked(ONE) and not await holds.is_locked(OTHER)
    await holds.lock(ONE, seconds=0)
    assert not await holds.is_locked(ONE)
    await holds.lock(ONE, seconds=0.05)
    await asyncio.sleep(0.2)
    assert not await holds.is_locked(ONE)


async def resolve(job: Job) -> Rejected:
    return DONE


async def test_a_job_waits_for_its_start_lock(holds: StartLocks) -> None:
    await holds.lock(job().id, seconds=60)
    working = asyncio.create_task(wait_for_start_lock(resolve, holds)(job()))
    await asyncio.sleep(0.3)
    assert not working.done()
    await holds.lock(job().id, seconds=0)
    async with asyncio.timeout(60):
        assert await working == DONE


async def test_a_job_does_not_wait_for_an_unavailable_redis(tmp_path: Path) -> None:
    away = SharedStartLocks(f"unix://{tmp_path}/nothing")
    with pytest.raises(QueueDown):
        await away.is_locked(ONE)
    async with asyncio.timeout(20):
        assert await wait_for_start_lock(resolve, away)(job()) == DONE
