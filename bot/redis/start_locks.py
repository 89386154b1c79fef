"""Locks that keep jobs from starting. All workers that use the same Redis share these locks."""

from patchwright.bot.redis.connection import redis_client, redis_errors
from patchwright.resolver.domain import JobId


class SharedStartLocks:
    """Stores the locks of `bot.triggers.queue_notice.StartLocks` in Redis."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError if the Redis URL is invalid."""
        self._redis = redis_client(url)

    async def lock(self, job: JobId, *, seconds: float) -> None:
        with redis_errors():
            if seconds:
                await self._redis.set(_key(job), b"1", px=round(seconds * 1000))
            else:
                await self._redis.delete(_key(job))

    async def is_locked(self, job: JobId) -> bool:
        with redis_errors():
            return bool(await self._redis.exists(_key(job)))

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def _key(job: JobId) -> str:
    return f"patchwright:start_lock:{job}"
