"""A Redis of its own for each test, and what stores in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.redis.inbox import Inbox


@pytest.fixture
async def url(short_tmp: Path) -> AsyncIterator[str]:
    async with embedded_redis(short_tmp) as url:
        yield url


@pytest.fixture
async def inbox(url: str) -> AsyncIterator[Inbox]:
    made = Inbox(url)
    yield made
    await made.close()
