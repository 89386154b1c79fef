"""The one status comment of a run, kept up to date while it goes on."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from resolver import prose
from resolver.domain import Job
from resolver.errors import ForgeError
from resolver.forge import Forge
from resolver.kit import Kit, Reporting
from resolver.log import Log
from resolver.salvage import salvage

log = logging.getLogger(__name__)

EVERY = 30.0  # seconds between two edits: GitHub wants writes spaced, and nobody reads faster


def commenting(forge: Forge, every: float = EVERY) -> Reporting:
    """Acknowledge a job in its thread at once, and edit that comment while the run goes on.

    The end of the story is written by whoever ends it (resolver/deliver.py, or `apologize` below).
    """

    @contextlib.asynccontextmanager
    async def reporting(job: Job, run: Log) -> AsyncIterator[None]:
        await forge.say(job.repo, job.number, job.id, prose.working())
        writer = asyncio.create_task(_keep_up(job, run, forge, every))
        try:
            yield
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    return reporting


async def _keep_up(job: Job, run: Log, forge: Forge, every: float) -> None:
    told = 0
    while True:
        await asyncio.sleep(every)
        steps = run.trajectory.spent().steps
        if steps == told or run.trajectory.ended is not None:
            continue
        told = steps
        try:
            await forge.say(job.repo, job.number, job.id, prose.progress(run.trajectory))
        except ForgeError as exc:  # a missed edit costs nothing; the next one shows more
            log.warning("status comment not updated", extra={"job": job.id, "error": str(exc)})


@contextlib.asynccontextmanager
async def silent(job: Job, run: Log) -> AsyncIterator[None]:
    """Reports to nobody: the person who waits sees the terminal."""
    yield


async def apologize(
    forge: Forge, job: Job, error: Exception, kit: Kit | None = None, *, lasting: bool = True
) -> None:
    """End the status comment of a run that the machine, the forge or the model failed, and keep its work.

    `kit` None: it failed before there was any. `lasting`: this machine keeps the log.
    """
    if kit is None:
        await forge.say(job.repo, job.number, job.id, prose.failed(str(error), job.id))
    else:
        await salvage(job, str(error), kit, forge, lasting=lasting)
