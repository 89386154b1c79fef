"""Redis connections, their timeouts, and the translation of their errors."""

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

from patchwright.bot.errors import QueueDown
from patchwright.resolver.errors import SettingsError

RESPONSE_TIMEOUT_SECONDS = 5.0  # less than the 10 s that GitHub waits for the response to a webhook delivery
# Deletes a lock only if it has the expected value. KEYS: lock. ARGV: expected value.
RELEASE_LOCK_SCRIPT = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"


def redis_pool(url: str) -> ConnectionPool:
    """Returns a connection pool for a `redis://`, `rediss://` or `unix://` URL. Raises SettingsError if it is
    invalid.
    """
    try:
        pool = ConnectionPool.from_url(
            url,
            socket_connect_timeout=RESPONSE_TIMEOUT_SECONDS,
            # After a restart of Redis, every pooled connection fails once.
            retry=Retry(NoBackoff(), 1),
            retry_on_error=[ConnectionError, TimeoutError],
        )
    except ValueError as exc:
        raise SettingsError(f"REDIS_URL is not a redis://, rediss:// or unix:// URL: {exc}.") from exc
    pool.connection_class = type("Cancelable", (_CancelableConnection, pool.connection_class), {})
    return pool


class _CancelableConnection(AbstractConnection):
    """A connection that always raises CancelledError when its task is canceled.

    With a `socket_timeout`, redis-py wraps each write in `asyncio.wait_for`. Before Python 3.12, `wait_for`
    loses a cancellation that arrives at the same time as the result. In a task that polls, this happens to
    about one cancellation in five. Therefore this class implements the timeout itself.
    """

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        async with _response_timeout("written to"):
            await super().send_packed_command(*args, **options)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        async with _response_timeout("read from"):
            return await super().read_response(*args, **options)


@contextlib.asynccontextmanager
async def _response_timeout(operation: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
            yield
    except builtins.TimeoutError as exc:
        raise TimeoutError(f"Redis could not be {operation} within {RESPONSE_TIMEOUT_SECONDS:g} s") from exc


def redis_client(url: str) -> Redis:
    """Returns a client with its own connection pool. Raises SettingsError if the URL is invalid."""
    return Redis(connection_pool=redis_pool(url))


def blocking_client(url: str) -> BlockingRedis:
    """Returns a blocking client for use in threads. Raises SettingsError if the URL is invalid."""
    redis_pool(url)  # raises SettingsError if the URL is invalid
    return BlockingRedis.from_url(
        url, socket_timeout=RESPONSE_TIMEOUT_SECONDS, socket_connect_timeout=RESPONSE_TIMEOUT_SECONDS
    )


@contextlib.contextmanager
def redis_errors() -> Iterator[None]:
    """Converts each Redis error that the block raises to QueueDown."""
    try:
        yield
    except (RedisError, OSError) as exc:
        raise QueueDown(f"Redis does not respond: {type(exc).__name__}") from exc


async def can_write(redis: Redis) -> bool:
    """Returns True if Redis accepts a write now; never raises."""
    try:
        with redis_errors():
            # PING and reads prove nothing, because Redis also answers them when it is full or cannot write to
            # its disk.
            return bool(await redis.set("patchwright:write_check", b"1", px=1_000))
    except QueueDown:
        return False
