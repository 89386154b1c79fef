"""Fixtures: a Redis server per test, and a delivery inbox on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import run_embedded_redis


@pytest.fixture
async def url(short_tmp: Path) -> AsyncIterator[str]:
    async with run_embedded_redis(short_tmp) as url:
        yield url


@pytest.fixture
async def inbox(url: str) -> AsyncIterator[DeliveryInbox]:
    made = DeliveryInbox(url)
    yield made
    await made.close()
