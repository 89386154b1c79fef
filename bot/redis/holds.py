"""Which jobs are not to be begun just now, for all workers of a Redis."""

from bot.redis.client import redis_client, redis_errors
from resolver.domain import JobId


class SharedHolds:
    """`bot.queued.Holds` on a Redis."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis = redis_client(url)

    async def hold(self, job: JobId, *, seconds: float) -> None:
        with redis_errors():
            if seconds:
                await self._redis.set(_key(job), b"1", px=round(seconds * 1000))
            else:
                await self._redis.delete(_key(job))

    async def is_held(self, job: JobId) -> bool:
        with redis_errors():
            return bool(await self._redis.exists(_key(job)))

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def _key(job: JobId) -> str:
    return f"patchwright:held:{job}"
