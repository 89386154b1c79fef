"""Keeps the index of runs up to date. Rebuilds the index from the disk and the archive after Redis was
wiped.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from patchwright.bot.errors import ArchiveDown, QueueDown
from patchwright.bot.jobs import JobQueue, JobResult
from patchwright.bot.observe.archive import Archive
from patchwright.bot.redis.shared_run_index import MAX_RUNS, SharedRunIndex
from patchwright.bot.run_summary import RunSummary, summarize_job, summarize_log, summarize_work
from patchwright.resolver.domain import Job, JobId, RunId
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.run.dependencies import ProgressReporter
from patchwright.resolver.run_log import FileLogStore, RunLog

log = logging.getLogger(__name__)

UPDATE_SECONDS = 1.0  # Time between two updates for a running job.
REBUILD_CHECK_SECONDS = 30.0  # Time between two checks whether the index was wiped.
# The name of the archive in the set of indexed sources. A source on disk has the name of its directory.
ARCHIVE_SOURCE = "the archive"


def with_run_index(
    reporting: ProgressReporter, runs: SharedRunIndex, interval: float = UPDATE_SECONDS
) -> ProgressReporter:
    """Wraps a reporter, so that it also updates the index during the run. If Redis is down, the run continues
    without updates.
    """

    @contextlib.asynccontextmanager
    async def reporting_and_indexing(job: Job, run: RunLog) -> AsyncIterator[None]:
        writer = asyncio.create_task(_keep_updated(job, run, runs, interval))
        try:
            async with reporting(job, run):
                yield
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            # The last update has a task of its own, because the current task may be canceled again while it
            # waits.
            summaries = summarize_work(job, run.trajectory, is_running=False)
            await asyncio.wait((asyncio.create_task(_put_summaries(runs, summaries)),))

    return reporting_and_indexing


async def _keep_updated(job: Job, run: RunLog, runs: SharedRunIndex, interval: float) -> None:
    last_summaries: tuple[RunSummary, ...] = ()
    while True:
        summaries = summarize_work(job, run.trajectory, is_running=True)
        # The index is updated only if more than the duration has changed.
        without_duration = tuple(summary.model_copy(update={"seconds": 0.0}) for summary in summaries)
        if without_duration != last_summaries:
            await _put_summaries(runs, summaries)
            last_summaries = without_duration
        await asyncio.sleep(interval)


async def index_result(job: JobId, result: JobResult, runs: SharedRunIndex, queue: JobQueue) -> None:
    """Writes the result of a job to the index, even if the job has no log. If the job resumed an earlier run, the
    result is the result of that run.

    Adds no entry for a job with the result Answered, because such a job needed no run of its own.
    """
    try:
        summary = await _get_worked_run(job, runs)
        if (
            summary is None
            and result.kind != "answered"
            and (record := await queue.get_record(job)) is not None
        ):
            summary = summarize_job(record.job, record.requested_at or datetime.now(UTC))
        if summary is not None:
            await runs.put(summary.with_result(result))
    except QueueDown as exc:
        log.warning("run not indexed", extra={"job": job, "reason": str(exc)})


async def index_saved_branch(job: JobId, branch: str, runs: SharedRunIndex) -> None:
    """Writes to the index where the work of a job was saved that ended without an outcome."""
    try:
        if summary := await _get_worked_run(job, runs):
            await runs.put(summary.model_copy(update={"saved_branch": branch}))
    except QueueDown as exc:
        log.warning("saved branch not indexed", extra={"job": job, "reason": str(exc)})


async def _get_worked_run(job: JobId, runs: SharedRunIndex) -> RunSummary | None:
    """Returns the run that the job worked on: the earlier run that it resumed, or its own run."""
    summary = await runs.get(job)
    if summary is None or summary.resumed_run is None:
        return summary
    return await runs.get(summary.resumed_run) or summary


async def keep_index_complete(
    runs: SharedRunIndex,
    directory: Path,
    archive: Archive | None = None,
    interval: float = REBUILD_CHECK_SECONDS,
) -> None:
    """Checks regularly whether the index was wiped. If it was wiped, adds the runs on this disk and in the archive
    again. Stops only when canceled.
    """
    local_source = f"{socket.gethostname()}:{directory}"
    while True:
        try:
            if await runs.needs_indexing(local_source):
                await runs.add_missing(
                    local_source, await asyncio.to_thread(lambda: list(read_local_summaries(directory)))
                )
            # Only one worker at a time reads the archive. If it has not finished after an hour, another
            # worker may try.
            if (
                archive is not None
                and await runs.needs_indexing(ARCHIVE_SOURCE)
                and await runs.claim_indexing(ARCHIVE_SOURCE)
            ):
                known = {summary.run for summary in await runs.list_newest()}
                await runs.add_missing(
                    ARCHIVE_SOURCE, await asyncio.to_thread(_read_archived_summaries, archive, known)
                )
        except (QueueDown, ArchiveDown) as exc:
            log.warning("run index not rebuilt", extra={"reason": str(exc)})
        await asyncio.sleep(interval)


def read_local_summaries(directory: Path) -> Iterator[RunSummary]:
    """Yields the summaries of all runs on this disk."""
    names = (JobId(path.parent.name) for path in directory.glob("*/events.jsonl"))
    yield from _read_summaries(names, FileLogStore(directory).read)


def _read_archived_summaries(archive: Archive, known: Collection[RunId]) -> list[RunSummary]:
    newest = sorted(archive.list_runs(), key=lambda pair: pair[1], reverse=True)[:MAX_RUNS]
    return list(_read_summaries((run for run, _ in newest if run not in known), archive.read))


def _read_summaries(names: Iterable[RunId], read: Callable[[RunId], Trajectory]) -> Iterator[RunSummary]:
    for name in names:
        with contextlib.suppress(LogError):  # The log is damaged, or it was removed just now.
            trajectory = read(name)
            if trajectory.run_started is not None:
                job = trajectory.run_started.job.model_copy(update={"id": name})
                yield summarize_log(job, trajectory, is_running=False)


async def _put_summaries(runs: SharedRunIndex, summaries: Iterable[RunSummary]) -> None:
    for summary in summaries:
        try:
            await runs.put(summary)
        except QueueDown as exc:
            log.warning("run not indexed", extra={"job": summary.run, "reason": str(exc)})
