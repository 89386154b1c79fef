"""The watchers of a server's conversations: each gets all entries in order and once, over one connection to Redis."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from patchwright.bot.conversations.event_feed import EventFeeds
from patchwright.bot.errors import QueueDown
from patchwright.bot.redis import conversation_records
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.bot.redis.shared_run_log import stream_key
from patchwright.resolver.domain import RunId

pytestmark = pytest.mark.redis

LOGS = [RunId(f"log-{number}") for number in range(20)]


@pytest.fixture
async def records(url: str) -> AsyncIterator[ConversationRecords]:
    records = ConversationRecords(url)
    yield records
    await records.close()


@pytest.fixture
async def redis(url: str) -> AsyncIterator[Redis]:
    redis = redis_client(url)
    yield redis
    await redis.aclose(close_connection_pool=True)


async def write(redis: Redis, log: RunId, *entries: int) -> None:
    for entry in entries:
        await redis.xadd(stream_key(log), {"entry": str(entry)})


async def read(feeds: EventFeeds, log: RunId, after: int, last: int) -> list[int]:
    """Follows the log until its entry `last`."""
    found: list[int] = []
    async with asyncio.timeout(30), feeds.follow(log, after) as entries:
        async for entry in entries:
            found.append(int(entry))
            if found[-1] == last:
                return found
    raise AssertionError("the log ended")


async def test_watchers_who_come_and_go_at_any_time_get_all_entries_in_order_and_once(
    records: ConversationRecords, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_records, "READ_COUNT", 7)  # Responses of several parts.
    feeds, chance = EventFeeds(records), random.Random(20)

    async def fill(log: RunId) -> None:
        for start in range(0, 100, 10):
            await write(redis, log, *range(start, start + 10))
            await asyncio.sleep(chance.random() / 50)

    async def watch(log: RunId) -> tuple[int, list[int]]:
        await asyncio.sleep(chance.random() / 5)
        after = chance.randrange(50)
        return after, await read(feeds, log, after, chance.randrange(after, 100))

    watching = [watch(log) for log in LOGS for _ in range(10)]
    found = await asyncio.gather(*watching, *map(fill, LOGS))
    for after, entries in filter(None, found):
        assert entries == list(range(after, entries[-1] + 1))


async def test_all_watchers_share_one_connection(records: ConversationRecords, redis: Redis) -> None:
    feeds = EventFeeds(records)
    async with contextlib.AsyncExitStack() as stack:
        for log in LOGS * 2:
            await stack.enter_async_context(feeds.follow(log))
        await write(redis, LOGS[-1], 0)
        assert await read(feeds, LOGS[-1], 0, 0) == [0]
        await asyncio.sleep(0.2)  # Redis has noticed which connections were closed.
        clients = await redis.client_list()
        assert [client["cmd"] for client in clients if not client["cmd"].startswith("client")] == ["xread"]


async def test_watchers_connect_again_when_redis_comes_back(
    records: ConversationRecords, redis: Redis
) -> None:
    feeds = EventFeeds(records)
    await write(redis, LOGS[0], 0, 1)
    waiting = [asyncio.create_task(read(feeds, log, 0, 2)) for log in LOGS[:2]]
    await asyncio.sleep(0.2)
    await redis.shutdown(nosave=True)
    assert all(
        isinstance(error, QueueDown) for error in await asyncio.gather(*waiting, return_exceptions=True)
    )
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(RedisError, OSError):
                await redis.ping()
                break
            await asyncio.sleep(0.1)
    again = asyncio.create_task(read(feeds, LOGS[0], 0, 2))
    await asyncio.sleep(0.2)
    await write(redis, LOGS[0], 2)
    assert await again == [0, 1, 2]
