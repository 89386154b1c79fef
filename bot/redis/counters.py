"""Counts the results and costs of jobs. A retried job is counted only once."""

from collections.abc import Mapping
from typing import Any, cast

from patchwright.bot.jobs import Failed, JobResult
from patchwright.bot.redis.connection import RedisStore
from patchwright.bot.run_summary import PullOutcome
from patchwright.bot.usage_report import UsageReport
from patchwright.resolver.domain import JobId, Published, Repo

# Start of a key; a metrics label follows. Value: hash that maps a metric name and its labels to a number. The
# numbers never expire.
COUNTS_PREFIX = "patchwright:counts:"
METRICS_LABELS_KEY = "patchwright:metrics_labels"  # set: all metrics labels that have counts
COUNTED_JOBS_KEY = "patchwright:counted_jobs"  # set: ids of the jobs whose results are counted
PULL_OUTCOMES_KEY = "patchwright:pull_outcomes"  # hash: Patchwright's pull request -> its outcome
DURATION_BUCKETS = (30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
"""Upper bounds of the buckets in the histogram of run durations, in seconds."""


class Counters(RedisStore):
    """Stores counters in Redis. Every method may raise QueueDown."""

    def __init__(self, url: str, metrics_label: str = "default") -> None:
        """`metrics_label` separates these counts from the counts of other deployments that use the same Redis.

        Raises SettingsError if the Redis URL is invalid.
        """
        super().__init__(url)
        self._metrics_label = metrics_label

    async def record_result(self, job: JobId, result: JobResult, report: UsageReport) -> None:
        """Counts the final result of a job, once."""
        if not await cast("Any", self._redis.sadd(COUNTED_JOBS_KEY, job)):
            return
        increments: dict[str, float] = {f"outcomes {result.kind}": 1, **_usage_increments(report)}
        if (verdict := getattr(result, "verdict", None)) is not None:
            increments[f"verdicts {verdict.kind}"] = 1
        if report.failure:
            increments[f"failures {report.failure}"] = 1
        if isinstance(result, Failed):
            increments[f"faults {result.fault} {result.error.partition(':')[0]}"] = 1
        elif report.provider_failed:
            increments["faults provider ModelError"] = 1
        if isinstance(result, Published) and result.ci_state == "held":
            increments["ci hold"] = 1
        if report.fixes_checks:
            increments["ci repair"] = 1
        await self.add(increments)

    async def add(self, increments: Mapping[str, float]) -> None:
        """Adds `increments` to the counters.

        Each key contains a metric name and its labels, separated by spaces. The labels must come from a small
        fixed set.
        """
        key = COUNTS_PREFIX + self._metrics_label
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.sadd(METRICS_LABELS_KEY, self._metrics_label)
            for name, increment in increments.items():
                pipe.hincrbyfloat(key, name, increment)
            await pipe.execute()

    async def record_pull_outcome(self, repo: Repo, number: int, outcome: PullOutcome) -> None:
        """Records the outcome of one of Patchwright's pull requests.

        Does nothing if the same outcome is already recorded. A different outcome replaces the previous one.
        """
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(PULL_OUTCOMES_KEY, pull_key(str(repo), number))
            pipe.hset(PULL_OUTCOMES_KEY, pull_key(str(repo), number), outcome)
            previous, _ = await pipe.execute()
        if previous == outcome.encode():
            return
        correction = {f"pulls {previous.decode()}": -1.0} if previous else {}
        await self.add({f"pulls {outcome}": 1.0, **correction})

    async def fetch_counts(self) -> dict[str, dict[str, float]]:
        """Returns all counts. The first key is the metrics label; the second key is the metric name with its
        labels.
        """
        labels = sorted(name.decode() for name in await cast("Any", self._redis.smembers(METRICS_LABELS_KEY)))
        async with self._redis.pipeline(transaction=False) as pipe:
            for label in labels:
                pipe.hgetall(COUNTS_PREFIX + label)
            hashes = await pipe.execute()
        return {
            label: {name.decode(): float(value) for name, value in counts.items()}
            for label, counts in zip(labels, hashes, strict=True)
        }


def pull_key(repository: str, number: int) -> str:
    """Returns the field of a pull request in the Redis hash PULL_OUTCOMES_KEY."""
    return f"{repository}#{number}".lower()


def _usage_increments(report: UsageReport) -> dict[str, float]:
    usage = report.usage
    if not usage.steps:
        return {}
    bucket = next((str(bound) for bound in DURATION_BUCKETS if usage.seconds <= bound), "+Inf")
    return {
        "usd": float(usage.usd),
        **({"unpriced": 1} if usage.unpriced else {}),
        "steps": usage.steps,
        "repairs": report.repairs,
        f"seconds_within {bucket}": 1,
        "seconds": usage.seconds,
        **{f"tokens {kind} {model}": number for (kind, model), number in report.tokens.items()},
    }
