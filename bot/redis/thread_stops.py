"""Stores when the jobs of an issue or pull request were last canceled. A job that was requested before this
time does not run.
"""

from datetime import datetime

from redis.asyncio import Redis

from patchwright.bot.jobs import CancelScope, matching_scopes, thread_key
from patchwright.resolver.domain import Job, Repo

STOP_EXPIRY_SECONDS = 7 * 24 * 3600  # longer than the time for which GitHub can redeliver a webhook


class ThreadStops:
    """Stores when the jobs of each issue or pull request were last canceled. Every method may raise RedisError
    or OSError; the caller, ArqQueue, converts these to QueueDown.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def is_stopped(self, job: Job, requested_at: datetime) -> bool:
        """Returns True if the jobs of the same issue or pull request were canceled after this job was requested."""
        keys = [_stop_key(job.repo, job.number, scope) for scope in matching_scopes(job)]
        stops = [stop for stop in await self._redis.mget(keys) if stop is not None]
        return any(requested_at < datetime.fromisoformat(stop.decode()) for stop in stops)

    async def record(self, repo: Repo, number: int, scope: CancelScope, time: datetime) -> None:
        """Stores when the jobs of an issue or pull request were canceled, unless a later time is already stored."""
        key = _stop_key(repo, number, scope)
        known = await self._redis.get(key)
        last = max(time, datetime.fromisoformat(known.decode())) if known else time
        await self._redis.set(key, last.isoformat(), ex=STOP_EXPIRY_SECONDS)


def _stop_key(repo: Repo, number: int, scope: CancelScope) -> str:
    return f"patchwright:stop:{scope}:{thread_key(repo, number)}"
