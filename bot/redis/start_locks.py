"""Locks that keep jobs from starting. All workers that use the same Redis share these locks."""

from patchwright.bot.redis.connection import RedisStore
from patchwright.resolver.domain import JobId


class SharedStartLocks(RedisStore):
    """Stores the locks of `bot.triggers.queue_notice.StartLocks` in Redis."""

    async def lock(self, job: JobId, *, seconds: float) -> None:
        if seconds:
            await self._redis.set(_key(job), b"1", px=round(seconds * 1000))
        else:
            await self._redis.delete(_key(job))

    async def is_locked(self, job: JobId) -> bool:
        return bool(await self._redis.exists(_key(job)))


def _key(job: JobId) -> str:
    return f"patchwright:start_lock:{job}"
