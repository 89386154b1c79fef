"""Redis connections, their timeouts, and the translation of their errors."""

import asyncio
import builtins
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from redis import Redis as BlockingRedis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    InvalidResponse,
    NoScriptError,
    RedisError,
    TimeoutError,
)

from patchwright.bot.errors import QueueDown
from patchwright.resolver.errors import SettingsError

T = TypeVar("T", bound=BaseModel)

RESPONSE_TIMEOUT_SECONDS = 5.0  # less than the 10 s that GitHub waits for the response to a webhook delivery
START_SECONDS = 6.0  # how long a worker that starts waits for Redis
START_RETRY_SECONDS = 0.5
# Deletes a lock only if it has the expected value. KEYS: lock. ARGV: expected value.
RELEASE_LOCK_SCRIPT = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"


def redis_pool(url: str) -> ConnectionPool:
    """Returns a connection pool for a `redis://`, `rediss://` or `unix://` URL. Raises SettingsError if the URL
    is invalid.
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


class _StorePipeline(Pipeline):
    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        with redis_errors():
            return list(await super().execute(raise_on_error))


class _StoreClient(Redis):
    """A client whose commands raise QueueDown instead of the errors of redis-py."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with redis_errors():
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return _StorePipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


def store_client(url: str) -> Redis:
    """Returns a client with its own connection pool, whose commands raise QueueDown if Redis does not respond. Raises
    SettingsError if the URL is invalid.
    """
    return _StoreClient(connection_pool=redis_pool(url))


class RedisStore:
    """A store with its own connections to Redis. Its commands raise QueueDown if Redis does not respond."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError if the Redis URL is invalid."""
        self._redis = store_client(url)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


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
    except NoScriptError:
        raise  # redis-py then sends the script itself
    except (RedisError, OSError) as exc:
        raise QueueDown(f"Redis does not respond: {type(exc).__name__}") from exc


def parse_stored(kind: type[T], text: bytes | None) -> T | None:
    """Returns a stored value; None if there is none, or if an incompatible version has stored it."""
    try:
        return kind.model_validate_json(text or b"")
    except ValidationError:
        return None


async def find_redis_problem(url: str) -> str | None:
    """Returns a sentence that says why Redis does not respond; None if it responds. Raises SettingsError if the
    URL is invalid.
    """
    try:
        await _ping(url)
        return None
    except (RedisError, OSError) as exc:
        return _describe_problem(url, exc)


async def _ping(url: str) -> None:
    redis = redis_client(url)
    try:
        await redis.ping()
    finally:
        await redis.aclose(close_connection_pool=True)


def _describe_problem(url: str, error: Exception) -> str:
    if isinstance(error, InvalidResponse):
        return f"The server at {_without_password(url)} is not Redis."
    return f"Redis at {_without_password(url)} does not respond ({_reason(error)})."


async def wait_for_redis(url: str, notify: Callable[[str], object], seconds: float = START_SECONDS) -> None:
    """Returns once Redis responds. Calls `notify` at the first failure.

    Raises SettingsError if Redis does not respond within this many seconds, or if the URL or its password is
    invalid.
    """
    first_problem = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await _ping(url)
                except (AuthenticationError, InvalidResponse) as exc:  # waiting does not help
                    raise SettingsError(f"{_describe_problem(url, exc)} Correct REDIS_URL.") from exc
                except (RedisError, OSError) as exc:
                    if first_problem is None:
                        first_problem = _describe_problem(url, exc)
                        notify(f"NOTICE: {first_problem} Trying again for {seconds:.0f} s.")
                await asyncio.sleep(START_RETRY_SECONDS)
    except builtins.TimeoutError:
        problem = first_problem or f"Redis at {_without_password(url)} does not respond."
        raise SettingsError(f"{problem} Start it, or correct REDIS_URL.") from None


def _without_password(url: str) -> str:
    """Returns the URL without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    cause = error if isinstance(error, OSError) else error.__context__
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno).lower()
    return str(getattr(cause, "strerror", None) or error)


async def can_write(redis: Redis) -> bool:
    """Returns True if Redis accepts a write now; never raises."""
    try:
        with redis_errors():
            # PING and reads prove nothing, because Redis also answers them when it is full or cannot write to
            # its disk.
            return bool(await redis.set("patchwright:write_check", b"1", px=1_000))
    except QueueDown:
        return False
