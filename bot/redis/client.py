"""How Redis is reached, how long it is waited for, and what its errors mean."""

import asyncio
import builtins
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from redis import Redis as BlockingRedis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from bot.errors import QueueDown
from resolver.errors import SettingsError

ANSWER_SECONDS = 5.0  # GitHub gives up on a delivery after 10
# KEYS: one. ARGV: what it holds; with another value it stays.
LET_GO = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"


def redis_pool(url: str) -> ConnectionPool:
    """Connections to a Redis (`redis://`, `rediss://` or `unix://`). Raises SettingsError for what is no such URL."""
    try:
        pool = ConnectionPool.from_url(
            url,
            socket_connect_timeout=ANSWER_SECONDS,
            # After a restart of Redis every pooled connection fails once.
            retry=Retry(NoBackoff(), 1),
            retry_on_error=[ConnectionError, TimeoutError],
        )
    except ValueError as exc:
        raise SettingsError(f"REDIS_URL is not a redis://, rediss:// or unix:// URL: {exc}.") from exc
    pool.connection_class = type("Heeding", (_Heeding, pool.connection_class), {})
    return pool


class _Heeding(AbstractConnection):
    """A connection that heeds being cancelled.

    With a `socket_timeout`, redis-py waits for each write by `asyncio.wait_for`, which before Python 3.12 forgets a
    cancellation that comes with the result: every fifth, where a task asks again and again. So the limit is ours.
    """

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        async with _limited("written to"):
            await super().send_packed_command(*args, **options)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        async with _limited("read from"):
            return await super().read_response(*args, **options)


@contextlib.asynccontextmanager
async def _limited(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except builtins.TimeoutError as exc:
        raise TimeoutError(f"Redis could not be {what} within {ANSWER_SECONDS:g} s") from exc


def redis_client(url: str) -> Redis:
    """A client with connections of its own. Raises SettingsError for what is no URL of a Redis."""
    return Redis(connection_pool=redis_pool(url))


def reading_client(url: str) -> BlockingRedis:
    """A client for threads, which blocks. Raises SettingsError as above."""
    redis_pool(url)  # refuses what is no URL of a Redis
    return BlockingRedis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS)


@contextlib.contextmanager
def redis_errors() -> Iterator[None]:
    """Whatever goes wrong with Redis in the block is QueueDown."""
    try:
        yield
    except (RedisError, OSError) as exc:
        raise QueueDown(f"Redis does not answer: {type(exc).__name__}") from exc


async def answers(redis: Redis) -> bool:
    """Whether something could be stored there now; never raises."""
    try:
        with redis_errors():
            # A Redis that is full, or cannot write to its disk, still answers a PING or a question.
            return bool(await redis.set("patchwright:stores", b"1", px=1_000))
    except QueueDown:
        return False
