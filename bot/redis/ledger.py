"""What jobs have come to and cost, counted once each, however often they are begun or ended."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from redis.asyncio import Redis

from bot.jobs import Result
from bot.redis.client import redis_client, redis_errors
from resolver.domain import Job, JobId, Spent
from runtime.frozen import Frozen

COUNTS = "patchwright:counts"  # hash: name and label -> number, since this Redis is there
COUNTED = "patchwright:counted"  # set: ids of the jobs that are in it
DAYS_KEPT = 3


class Standing(Frozen):
    """How much was asked for and spent today (UTC)."""

    by_user: int
    """Jobs that were begun for this requester, this one among them."""
    by_repository: int
    usd: Decimal
    """Known dollars of all jobs."""


class Ledger:
    """Counts on a Redis. Every method may raise QueueDown."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis: Redis = redis_client(url)

    async def begin(self, job: Job) -> Standing:
        """Note that the job is begun; the same one again is counted once."""
        day = datetime.now(UTC).date()
        users, repositories = _counting(day, job)
        with redis_errors():
            async with self._redis.pipeline(transaction=True) as pipe:
                for key in (users, repositories):
                    pipe.sadd(key, job.id)
                    pipe.expire(key, DAYS_KEPT * 24 * 3600)
                pipe.scard(users)
                pipe.scard(repositories)
                pipe.hvals(_key(day, "usd"))
                *_, by_user, by_repository, costs = await pipe.execute()
        return Standing(
            by_user=by_user,
            by_repository=by_repository,
            usd=sum((Decimal(cost.decode()) for cost in costs), Decimal(0)),
        )

    async def forget(self, job: Job) -> None:
        """Nothing was begun: it counts against nobody's day."""
        day = datetime.now(UTC).date()
        with redis_errors():
            async with self._redis.pipeline(transaction=True) as pipe:
                for key in _counting(day, job):
                    pipe.srem(key, job.id)
                await pipe.execute()

    async def charge(self, job: JobId, spent: Spent) -> None:
        """What the job has cost until now, all its tries together."""
        key = _key(datetime.now(UTC).date(), "usd")
        with redis_errors():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(key, job, str(spent.usd))
                pipe.expire(key, DAYS_KEPT * 24 * 3600)
                await pipe.execute()

    async def end(self, job: JobId, result: Result, spent: Spent) -> None:
        """What the job came to in the end; once."""
        with redis_errors():
            if not await cast("Any", self._redis.sadd(COUNTED, job)):
                return
            verdict = getattr(result, "verdict", None)
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hincrby(COUNTS, f"endings {result.kind}", 1)
                if verdict is not None:
                    pipe.hincrby(COUNTS, f"verdicts {verdict.kind}", 1)
                pipe.hincrbyfloat(COUNTS, "usd", float(spent.usd))
                pipe.hincrby(COUNTS, "tokens prompt", spent.prompt_tokens)
                pipe.hincrby(COUNTS, "tokens completion", spent.completion_tokens)
                pipe.hincrby(COUNTS, "steps", spent.steps)
                await pipe.execute()

    async def counts(self) -> dict[str, float]:
        """All that was counted, by name and label."""
        with redis_errors():
            found = await cast("Any", self._redis.hgetall(COUNTS))
        return {name.decode(): float(number) for name, number in found.items()}

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def _counting(day: date, job: Job) -> tuple[str, str]:
    """Where the day's jobs of its requester and of its repository are."""
    user = job.requester.id if job.requester else 0
    return _key(day, "user", str(user)), _key(day, "repository", str(job.repo).lower())


def _key(day: date, *what: str) -> str:
    return ":".join(("patchwright", "day", day.isoformat(), *what))
