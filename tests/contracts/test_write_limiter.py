"""The contract of all write limiters: writes keep their interval, and urgent ones go first."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from patchwright.bot.errors import Preempted
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_write_limiter import SharedWriteLimiter
from patchwright.bot.write_limiter import LocalWriteLimiter, Priority, WriteLimiter, acquire, write_priority
from patchwright.resolver.errors import RateLimited

INTERVAL = 0.2  # seconds

OpenLimiter = Callable[[], WriteLimiter]


@pytest.fixture(params=["own", pytest.param("shared", marks=pytest.mark.redis)])
async def open_limiter(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[OpenLimiter]:
    """Opens another client of the same limiter: another process, where the limiter is shared."""
    if request.param == "own":
        local = LocalWriteLimiter()
        yield lambda: local
        return
    async with run_embedded_redis(short_tmp) as url:
        opened: list[SharedWriteLimiter] = []

        def open_shared() -> SharedWriteLimiter:
            opened.append(SharedWriteLimiter(url))
            return opened[-1]

        yield open_shared
        for limiter in opened:
            await limiter.close()


async def acquisition_order(tickets: dict[str, tuple[WriteLimiter, Priority]]) -> list[str]:
    """Returns the order in which these tickets, polling at the same time, acquire the limiter."""
    order, started_at = list[str](), time.monotonic()
    while len(order) < len(tickets):
        assert time.monotonic() - started_at < 30
        for ticket, (limiter, priority) in tickets.items():
            if ticket not in order and await limiter.try_acquire("app", ticket, priority, INTERVAL) == 0:
                order.append(ticket)
        await asyncio.sleep(0.01)
    return order


async def test_writes_keep_the_interval_across_processes(open_limiter: OpenLimiter) -> None:
    started_at = time.monotonic()
    await asyncio.gather(*(acquire(open_limiter(), "app", INTERVAL) for _ in range(5)))
    assert time.monotonic() - started_at >= 4 * INTERVAL - 0.02


async def test_writes_of_another_installation_do_not_wait(open_limiter: OpenLimiter) -> None:
    limiter = open_limiter()
    await limiter.block("others", 60)
    await acquire(limiter, "app", 60)
    with pytest.raises(RateLimited):
        await acquire(limiter, "others", INTERVAL)
    assert await limiter.try_acquire("third", "ticket", Priority.WORK, 60) == 0


async def test_an_acknowledgment_goes_before_older_work(open_limiter: OpenLimiter) -> None:
    await acquire(open_limiter(), "app", INTERVAL)
    waiting = {f"work {n}": (open_limiter(), Priority.WORK) for n in range(3)}
    for ticket, (limiter, priority) in waiting.items():
        assert await limiter.try_acquire("app", ticket, priority, INTERVAL) > 0
        await asyncio.sleep(0.002)  # the resolution of the limiter's clock
    waiting["ack"] = (open_limiter(), Priority.ACKNOWLEDGMENT)
    assert await waiting["ack"][0].try_acquire("app", "ack", Priority.ACKNOWLEDGMENT, INTERVAL) > 0
    assert await acquisition_order(waiting) == ["ack", "work 0", "work 1", "work 2"]


async def test_progress_never_queues(open_limiter: OpenLimiter) -> None:
    limiter = open_limiter()
    with write_priority(Priority.PROGRESS):
        await acquire(limiter, "app", 60)
        with pytest.raises(Preempted) as preempted:
            await acquire(open_limiter(), "app", 60)
    assert 0 < preempted.value.retry_after <= 60


async def test_progress_is_written_when_nothing_else_waits(open_limiter: OpenLimiter) -> None:
    await acquire(open_limiter(), "app", INTERVAL)
    work = (open_limiter(), Priority.WORK)
    assert await work[0].try_acquire("app", "work", Priority.WORK, INTERVAL) > 0
    assert await acquisition_order({"progress": (open_limiter(), Priority.PROGRESS), "work": work}) == [
        "work",
        "progress",
    ]


async def test_a_canceled_waiter_blocks_nobody(open_limiter: OpenLimiter) -> None:
    await acquire(open_limiter(), "app", INTERVAL)
    with write_priority(Priority.ACKNOWLEDGMENT):
        waiter = asyncio.create_task(acquire(open_limiter(), "app", INTERVAL))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    await asyncio.wait_for(acquire(open_limiter(), "app", INTERVAL), 20)


async def test_a_block_applies_to_all_processes(open_limiter: OpenLimiter) -> None:
    limiter = open_limiter()
    assert await open_limiter().blocked_seconds("app") == 0
    await limiter.block("app", 1.0)
    await limiter.block("app", 0.1)  # a later, shorter block does not shorten it
    assert 0.5 < await open_limiter().blocked_seconds("app") <= 1.0
    with pytest.raises(RateLimited):
        await acquire(open_limiter(), "app", INTERVAL)
    started_at = time.monotonic()
    while await limiter.blocked_seconds("app"):
        assert time.monotonic() - started_at < 20
        await asyncio.sleep(0.05)
    await acquire(open_limiter(), "app", INTERVAL)
