"""Receiver, worker and Redis are killed again and again under load, and every trigger is done once."""

import pytest

from benchmarks.deliveries import soak

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_two_minutes_of_kills_lose_and_double_nothing() -> None:
    told = await soak(120, server_every=30, redis_every=50)
    assert (len(told.kills) // 2, told.redis_kills) == (3, 2)
    assert told.failed > 0  # so that there was something to ask for again
    assert (told.lost, told.doubled, told.taken) == (0, 0, 0)
    assert len(told.wanted) > 3_000


async def test_without_asking_again_something_is_lost() -> None:
    told = await soak(12, server_every=8, redis_every=100, recovers=False)
    assert told.failed > 0
    assert told.lost > 0
    assert (told.doubled, told.taken) == (0, 0)
