"""Warm items are handed out once, alive and recent, and closed if not taken."""

import asyncio

from patchwright.runtime.docker.warm_pool import WarmPool
from patchwright.runtime.errors import EngineStopped


class Item:
    def __init__(self, number: int) -> None:
        self.number = number
        self.lives = True
        self.ended = False

    async def is_alive(self) -> bool:
        return self.lives

    async def close(self) -> None:
        self.ended = True


class Factory:
    def __init__(self) -> None:
        self.made: list[Item] = []
        self.broken = False

    async def __call__(self) -> Item:
        if self.broken:
            raise EngineStopped("gone")
        await asyncio.sleep(0)
        self.made.append(Item(len(self.made)))
        return self.made[-1]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_empty_pool_starts_nothing() -> None:
    factory = Factory()
    pool = WarmPool(0, factory)
    pool.fill()
    await settled()
    assert await pool.take() is None
    assert factory.made == []


async def test_a_taken_item_is_replaced() -> None:
    factory = Factory()
    pool = WarmPool(2, factory)
    pool.fill()
    pool.fill()
    await settled()
    assert len(factory.made) == 2
    first, second = await pool.take(), await pool.take()
    assert (first, second) == tuple(factory.made[:2])
    await settled()
    assert len(factory.made) == 4
    await pool.close()
    assert [item.ended for item in factory.made] == [False, False, True, True]


async def test_dead_and_old_items_are_closed_and_not_handed_out() -> None:
    factory = Factory()
    pool = WarmPool(2, factory)
    pool.fill()
    await settled()
    factory.made[0].lives = False
    assert await pool.take() is factory.made[1]
    assert factory.made[0].ended
    old = WarmPool(1, factory, max_age=0.0)
    old.fill()
    await settled()
    assert await old.take() is None
    await old.close()
    await pool.close()


async def test_a_missing_engine_leaves_the_pool_empty_until_it_returns() -> None:
    factory = Factory()
    factory.broken = True
    pool = WarmPool(1, factory)
    pool.fill()
    await settled()
    factory.broken = False
    assert await pool.take() is None
    await settled()
    assert await pool.take() is factory.made[0]
    await pool.close()


async def test_closing_the_pool_cancels_starts() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def slow() -> Item:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        raise AssertionError

    pool = WarmPool(1, slow)
    pool.fill()
    await started.wait()
    await pool.close()
    assert ended.is_set()
    assert await pool.take() is None
