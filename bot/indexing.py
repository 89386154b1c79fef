"""Keeps the list of runs as it should be: by the worker that does them, and from its disk when Redis was wiped."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bot.errors import ArchiveDown, QueueDown
from bot.glance import Glance, of_job, of_log
from bot.jobs import Queue, Result
from bot.observe.archive import Archive
from bot.redis.runs import KEPT, Runs
from resolver.domain import Job, JobId, RunId
from resolver.errors import LogError
from resolver.events import Trajectory
from resolver.kit import Reporting
from resolver.log import FileLogs, Log

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two looks at a run that goes on
LOOK_SECONDS = 30.0  # until a wiped list is seen
ARCHIVE = "the archive"  # where it is said which directories' runs are in the list


def indexing(reporting: Reporting, runs: Runs, every: float = EVERY) -> Reporting:
    """`reporting`, and the run in the list while it goes on. Without Redis the run goes on all the same."""

    @contextlib.asynccontextmanager
    async def both(job: Job, run: Log) -> AsyncIterator[None]:
        writer = asyncio.create_task(_keep_up(job, run, runs, every))
        try:
            async with reporting(job, run):
                yield
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            # In a task of its own: what waits in a cancelled one may be cancelled once more.
            await asyncio.wait((asyncio.create_task(_put(runs, of_log(job, run.trajectory, working=False))),))

    return both


async def _keep_up(job: Job, run: Log, runs: Runs, every: float) -> None:
    told: Glance | None = None
    while True:
        glance = of_log(job, run.trajectory, working=True)
        if glance.model_copy(update={"seconds": 0.0}) != told:  # the clock alone is no news
            await _put(runs, glance)
            told = glance.model_copy(update={"seconds": 0.0})
        await asyncio.sleep(every)


async def settled(job: JobId, result: Result, runs: Runs, queue: Queue) -> None:
    """What a job came to, in the list; also one of which there is no log. What answered a person is no run."""
    try:
        known = await runs.get(job)
        if known is None and result.kind != "answered" and (record := await queue.state(job)) is not None:
            known = of_job(record.job, record.asked or datetime.now(UTC))
        if known is not None:
            await runs.put(known.after(result))
    except QueueDown as exc:
        log.warning("a run is not listed", extra={"job": job, "reason": str(exc)})


async def keep_whole(
    runs: Runs, directory: Path, archive: Archive | None = None, every: float = LOOK_SECONDS
) -> None:
    """Until cancelled: what the list has lost of this disk's runs, and of the archive's, is read and put into it."""
    here = f"{socket.gethostname()}:{directory}"
    while True:
        try:
            if await runs.lacks(here):
                await runs.has(here, await asyncio.to_thread(lambda: list(glances(directory))))
            # One worker reads it, an hour at most; then another tries.
            if archive is not None and await runs.lacks(ARCHIVE) and await runs.claim(ARCHIVE):
                known = {one.run for one in await runs.newest()}
                await runs.has(ARCHIVE, await asyncio.to_thread(_of_archive, archive, known))
        except (QueueDown, ArchiveDown) as exc:
            log.warning("the list of runs cannot be mended", extra={"reason": str(exc)})
        await asyncio.sleep(every)


def glances(directory: Path) -> Iterator[Glance]:
    """The jobs' runs on this disk, read one after the other."""
    names = (JobId(path.parent.name) for path in directory.glob("*/events.jsonl"))
    yield from _read(names, FileLogs(directory).read)


def _of_archive(archive: Archive, known: Collection[RunId]) -> list[Glance]:
    newest = sorted(archive.listed(), key=lambda pair: pair[1], reverse=True)[:KEPT]
    return list(_read((run for run, _ in newest if run not in known), archive.read))


def _read(names: Iterable[RunId], read: Callable[[RunId], Trajectory]) -> Iterator[Glance]:
    for name in names:
        with contextlib.suppress(LogError):  # damaged, or just removed
            trajectory = read(name)
            if trajectory.started is not None:
                job = trajectory.started.job.model_copy(update={"id": name})
                yield of_log(job, trajectory, working=False)


async def _put(runs: Runs, glance: Glance) -> None:
    try:
        await runs.put(glance)
    except QueueDown as exc:
        log.warning("a run is not listed", extra={"job": glance.run, "reason": str(exc)})
