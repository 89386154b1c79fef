"""What jobs have come to and cost, counted once each, however often they are begun or ended."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, cast

from redis.asyncio import Redis

from bot.jobs import Failed, Result
from bot.redis.client import redis_client, redis_errors
from resolver.domain import Delivered, Job, JobId, Repo, Spent
from runtime.frozen import Frozen

# And a configuration. Hash: name and labels -> number, since this Redis is there.
COUNTS = "patchwright:counts:"
CONFIGURATIONS = "patchwright:configurations"  # set: those that anything was counted for
COUNTED = "patchwright:counted"  # set: ids of the jobs that are in it
PULLS = "patchwright:pulls"  # hash: pull request of ours -> what it came to
DAYS_KEPT = 3
SECONDS = (30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
"""Upper bounds by which the times of runs are counted."""


PullOutcome = Literal["untouched", "merged", "closed"]
"""untouched: merged, and nobody but us has committed to it."""


class Standing(Frozen):
    """How much was asked for and spent today (UTC)."""

    by_user: int
    """Jobs that were begun for this requester, this one among them."""
    by_repository: int
    usd: Decimal
    """Known dollars of all jobs."""


class Account(Frozen):
    """What a job's run has used, and those that it has asked for."""

    spent: Spent = Spent()
    tokens: Mapping[tuple[str, str], int] = {}
    """By kind (`prompt`, `cached`, `completion`) and model; cached ones are prompt's too."""
    repairs: int = 0
    """How often its patch went back to the agent."""
    mends_checks: bool = False
    """It was begun because checks failed on a commit of ours."""
    provider_failed: bool = False
    """The agent's work ended because no usable reply came from its model."""


class Ledger:
    """Counts on a Redis. Every method may raise QueueDown."""

    def __init__(self, url: str, configuration: str = "default") -> None:
        """`configuration`: what is counted here is told apart from what others count by this name.

        Raises SettingsError for what is no URL of a Redis.
        """
        self._redis: Redis = redis_client(url)
        self._configuration = configuration

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

    async def end(self, job: JobId, result: Result, account: Account) -> None:
        """What the job came to in the end; once."""
        with redis_errors():
            if not await cast("Any", self._redis.sadd(COUNTED, job)):
                return
        numbers: dict[str, float] = {f"endings {result.kind}": 1, **_of_the_run(account)}
        if (verdict := getattr(result, "verdict", None)) is not None:
            numbers[f"verdicts {verdict.kind}"] = 1
        if isinstance(result, Failed):
            numbers[f"faults {result.fault}"] = 1
        elif account.provider_failed:
            numbers["faults provider"] = 1
        if isinstance(result, Delivered) and result.ci == "held":
            numbers["ci held"] = 1
        if account.mends_checks:
            numbers["ci repair"] = 1
        await self.count(numbers)

    async def count(self, numbers: Mapping[str, float]) -> None:
        """Add these, by name and labels with a space between; the labels have to be of a small set."""
        key = COUNTS + self._configuration
        with redis_errors():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.sadd(CONFIGURATIONS, self._configuration)
                for name, number in numbers.items():
                    pipe.hincrbyfloat(key, name, number)
                await pipe.execute()

    async def outcome_of_pull(self, repo: Repo, number: int, outcome: PullOutcome) -> None:
        """What a pull request of ours came to; told again, or another when it was reopened, it counts once."""
        with redis_errors():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hget(PULLS, name_of_pull(str(repo), number))
                pipe.hset(PULLS, name_of_pull(str(repo), number), outcome)
                before, _ = await pipe.execute()
        if before == outcome.encode():
            return
        gone = {f"pulls {before.decode()}": -1.0} if before else {}
        await self.count({f"pulls {outcome}": 1.0, **gone})

    async def counts(self) -> dict[str, dict[str, float]]:
        """All that was counted, by configuration, then by name and labels."""
        with redis_errors():
            known = sorted(name.decode() for name in await cast("Any", self._redis.smembers(CONFIGURATIONS)))
            async with self._redis.pipeline(transaction=False) as pipe:
                for configuration in known:
                    pipe.hgetall(COUNTS + configuration)
                found = await pipe.execute()
        return {
            configuration: {name.decode(): float(number) for name, number in counts.items()}
            for configuration, counts in zip(known, found, strict=True)
        }

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def name_of_pull(repository: str, number: int) -> str:
    """What a pull request is called in PULLS."""
    return f"{repository}#{number}".lower()


def _of_the_run(account: Account) -> dict[str, float]:
    spent = account.spent
    if not spent.steps:
        return {}
    within = next((str(bound) for bound in SECONDS if spent.seconds <= bound), "+Inf")
    return {
        "usd": float(spent.usd),
        **({"unpriced": 1} if spent.unpriced else {}),
        "steps": spent.steps,
        "repairs": account.repairs,
        f"seconds_within {within}": 1,
        "seconds": spent.seconds,
        **{f"tokens {kind} {model}": number for (kind, model), number in account.tokens.items()},
    }


def _counting(day: date, job: Job) -> tuple[str, str]:
    """Where the day's jobs of its requester and of its repository are."""
    user = job.requester.id if job.requester else 0
    return _key(day, "user", str(user)), _key(day, "repository", str(job.repo).lower())


def _key(day: date, *what: str) -> str:
    return ":".join(("patchwright", "day", day.isoformat(), *what))
