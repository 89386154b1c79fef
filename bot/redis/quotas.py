"""Stores how many jobs started on each day and what they cost, so that daily limits can be checked."""

from datetime import UTC, date, datetime
from decimal import Decimal

from patchwright.bot.redis.connection import RedisStore
from patchwright.resolver.domain import Job, JobId, Repo, Usage
from patchwright.runtime.frozen_model import FrozenModel

RETENTION_DAYS = 3
MAX_REFUSALS = 3
"""Maximum number of replies to people without write access, per day (UTC) and issue or pull request."""


class DailyUsage(FrozenModel):
    """The number of jobs that started today, and the dollars that were spent today (UTC)."""

    user_jobs: int
    """Number of jobs that the requester of the current job started today, including the current job."""
    repository_jobs: int
    usd: Decimal
    """The known cost of all jobs today, in dollars."""


class Quotas(RedisStore):
    """Stores daily totals in Redis. Every method may raise QueueDown."""

    async def count_start(self, job: Job) -> DailyUsage:
        """Counts the start of a job, and returns the day's totals. The same job counts only once per day."""
        day = datetime.now(UTC).date()
        users, repositories = _daily_job_keys(day, job)
        async with self._redis.pipeline(transaction=True) as pipe:
            for key in (users, repositories):
                pipe.sadd(key, job.id)
                pipe.expire(key, RETENTION_DAYS * 24 * 3600)
            pipe.scard(users)
            pipe.scard(repositories)
            pipe.hvals(_daily_key(day, "usd"))
            *_, user_jobs, repository_jobs, costs = await pipe.execute()
        return DailyUsage(
            user_jobs=user_jobs,
            repository_jobs=repository_jobs,
            usd=sum((Decimal(cost.decode()) for cost in costs), Decimal(0)),
        )

    async def forget_start(self, job: Job) -> None:
        """Removes a job from the day's count, because the job was rejected."""
        day = datetime.now(UTC).date()
        async with self._redis.pipeline(transaction=True) as pipe:
            for key in _daily_job_keys(day, job):
                pipe.srem(key, job.id)
            await pipe.execute()

    async def record_cost(self, job: JobId, usage: Usage) -> None:
        """Stores the cost of a job so far. This is the sum over all its tries."""
        key = _daily_key(datetime.now(UTC).date(), "usd")
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, job, str(usage.usd))
            pipe.expire(key, RETENTION_DAYS * 24 * 3600)
            await pipe.execute()

    async def allow_refusal(self, repo: Repo, number: int, job: JobId) -> bool:
        """Returns True if the bot may reply to this request of a person without write access. The number of
        such replies in an issue or pull request is limited.
        """
        key = _daily_key(datetime.now(UTC).date(), "refusals", f"{repo}#{number}".lower())
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.sismember(key, job)
            pipe.scard(key)
            is_counted, count = await pipe.execute()
        if is_counted or count >= MAX_REFUSALS:
            return bool(is_counted)
        # Each concurrent request can exceed the limit by one.
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.sadd(key, job)
            pipe.expire(key, RETENTION_DAYS * 24 * 3600)
            await pipe.execute()
        return True


def _daily_job_keys(day: date, job: Job) -> tuple[str, str]:
    """Returns the keys of two sets: the requester's jobs on this day, and the repository's jobs on this day."""
    user = job.requester.id if job.requester else 0
    return _daily_key(day, "user", str(user)), _daily_key(day, "repository", str(job.repo).lower())


def _daily_key(day: date, *parts: str) -> str:
    return ":".join(("patchwright", "day", day.isoformat(), *parts))
