"""Receiver, worker and Redis are killed repeatedly under load, and every trigger is handled once."""

import pytest

from benchmarks.deliveries import soak

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_a_minute_of_kills_loses_and_duplicates_nothing() -> None:
    result = await soak(60, server_every=15, redis_every=25)
    assert (len(result.kills) // 2, result.redis_kills) == (3, 2)
    assert result.failed > 0  # Otherwise there was nothing to redeliver.
    assert (result.lost, result.doubled, result.forged_starts) == (0, 0, 0)
    assert len(result.wanted) > 1_500


async def test_without_redelivery_something_is_lost() -> None:
    result = await soak(12, server_every=8, redis_every=100, recovers=False)
    assert result.failed > 0
    assert result.lost > 0
    assert (result.doubled, result.forged_starts) == (0, 0)
