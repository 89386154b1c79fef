"""Stores the index of runs for the dashboard: one summary per run, newest first."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from patchwright.bot.redis.connection import RedisStore
from patchwright.bot.redis.counters import PULL_OUTCOMES_KEY, pull_key
from patchwright.bot.run_summary import RunSummary
from patchwright.resolver.domain import RunId

log = logging.getLogger(__name__)

RUNS_KEY = "patchwright:runs"  # hash: run id -> RunSummary
ORDER_KEY = "patchwright:runs:order"  # sorted set: run id -> start time
INDEXED_DIRECTORIES_KEY = "patchwright:runs:indexed"  # set: run directories whose runs are indexed
MAX_RUNS = 20_000  # maximum number of runs in the index; older runs are found only in the archive
CLAIM_SECONDS = 3600
SCAN_BATCH_SIZE = 2_500  # number of summaries per round trip; reading this many blocks Redis for about 10 ms

_PUT_SCRIPT = Path(__file__).with_name("put_run.lua").read_text()


class SharedRunIndex(RedisStore):
    """Stores run summaries in Redis. Every method may raise QueueDown."""

    def __init__(self, url: str, *, max_runs: int = MAX_RUNS) -> None:
        """Raises SettingsError if the Redis URL is invalid."""
        super().__init__(url)
        self._max_runs = max_runs
        self._scan_lock = asyncio.Lock()

    async def put(self, summary: RunSummary) -> None:
        """Adds or replaces the summary of a run."""
        value = summary.model_dump_json(exclude_defaults=True)
        arguments = (
            RUNS_KEY,
            ORDER_KEY,
            summary.run,
            value,
            str(summary.started_at),
            str(self._max_runs),
        )
        await cast("Any", self._redis.eval(_PUT_SCRIPT, 2, *arguments))

    async def get(self, run: RunId) -> RunSummary | None:
        """Returns the summary of a run, or None if the run is not in the index."""
        return _parse_summary(run, await cast("Any", self._redis.hget(RUNS_KEY, run)))

    async def list_newest(self) -> list[RunSummary]:
        """Returns all summaries, newest first. Each contains the current outcome of its pull request.

        Concurrent calls run one after the other.
        """
        async with self._scan_lock:
            return await self._scan()

    async def _scan(self) -> list[RunSummary]:
        summaries: dict[bytes, RunSummary] = {}
        cursor = None
        outcomes = await cast("Any", self._redis.hgetall(PULL_OUTCOMES_KEY))
        while cursor != 0:
            cursor, batch = await cast("Any", self._redis.hscan(RUNS_KEY, cursor or 0, count=SCAN_BATCH_SIZE))
            for run, value in batch.items():
                if (summary := _parse_summary(run.decode(), value)) is not None:
                    outcome = summary.pull_request and outcomes.get(
                        pull_key(summary.repository, summary.pull_request).encode()
                    )
                    summaries[run] = summary.with_pull_outcome(outcome.decode()) if outcome else summary
        return sorted(summaries.values(), key=lambda summary: -summary.started_at)

    async def needs_indexing(self, directory: str) -> bool:
        """Returns True if the runs of a directory are not in the index. The directory may be new, or Redis may
        have been wiped.
        """
        return not await cast("Any", self._redis.sismember(INDEXED_DIRECTORIES_KEY, directory))

    async def claim_indexing(self, directory: str) -> bool:
        """Reserves the indexing of a directory for the caller. Returns False if it was reserved in the last hour."""
        return bool(
            await self._redis.set(
                f"{INDEXED_DIRECTORIES_KEY}:claimed:{directory}", b"1", nx=True, ex=CLAIM_SECONDS
            )
        )

    async def add_missing(self, directory: str, summaries: Iterable[RunSummary]) -> None:
        """Adds the runs of the directory that are missing in the index. Then marks the directory as indexed."""
        for summary in summaries:
            if await self.get(summary.run) is None:
                await self.put(summary)
        await cast("Any", self._redis.sadd(INDEXED_DIRECTORIES_KEY, directory))


def _parse_summary(run: str, value: bytes | None) -> RunSummary | None:
    if value is None:
        return None
    try:
        return RunSummary.model_validate_json(value)
    except ValidationError as exc:  # written by an incompatible version
        log.warning("run summary unreadable", extra={"run": run, "errors": exc.error_count()})
        return None
