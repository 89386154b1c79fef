"""The one status comment of a run, kept up to date while it goes on."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator

from bot.errors import Crowded
from bot.observe.faults import fault_of
from bot.pacing import Urgency, writing
from bot.worker import Stopped, may_be_retried
from resolver import prose
from resolver.domain import Job
from resolver.errors import ForgeError, LogTaken
from resolver.forge import Forge
from resolver.kit import Kit, Reporting
from resolver.log import Log
from resolver.salvage import salvage
from resolver.settings.settings import Settings
from resolver.words.progress_prose import progress

log = logging.getLogger(__name__)

EVERY = 30.0  # seconds between two edits: GitHub wants writes spaced, and nobody reads faster
LAST_EDIT_SECONDS = 40.0  # that one under way is waited for: GitHub is given 30 to answer


def commenting(forge: Forge, settings: Settings, every: float = EVERY) -> Reporting:
    """Acknowledge a job in its thread at once, and edit that comment while the run goes on.

    The end of the story is written by whoever ends it (resolver/deliver.py, or `apologize` below); no edit follows
    it, and none is under way when the run is over.
    """

    @contextlib.asynccontextmanager
    async def reporting(job: Job, run: Log) -> AsyncIterator[None]:
        with writing(Urgency.ACKNOWLEDGEMENT):
            told = run.trajectory
            await forge.say(job.repo, job.number, job.id, progress(job.id, told, settings))
        over = asyncio.Event()
        writer = asyncio.create_task(_keep_up(job, run, len(told), forge, settings, every, over))
        try:
            yield
        finally:
            over.set()
            try:
                await asyncio.wait((writer,), timeout=LAST_EDIT_SECONDS)
            finally:
                writer.cancel()

    return reporting


async def _keep_up(
    job: Job, run: Log, told: int, forge: Forge, settings: Settings, every: float, over: asyncio.Event
) -> None:
    """`told`: how many of its events the comment knows of."""
    wait = every
    while not await _within(wait, over):
        now, wait = run.trajectory, every
        if len(now) == told:
            continue
        try:
            await run.confirm()  # we may have slept, and somebody else have told the end
            with writing(Urgency.PROGRESS):
                await forge.say(job.repo, job.number, job.id, progress(job.id, now, settings))
            told = len(now)
        except LogTaken:
            return
        except Crowded as exc:  # soon there may be room, and more to tell
            wait = max(exc.seconds, 1.0) * random.uniform(1.0, 2.0)
        except ForgeError as exc:  # a missed edit costs nothing; the next one shows more
            log.warning("status comment not updated", extra={"job": job.id, "error": str(exc)})


async def _within(seconds: float, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


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
    why = explained(error)
    if kit is None:
        await forge.say(job.repo, job.number, job.id, prose.failed(why, job.id))
    else:
        await salvage(job, why, kit, forge, lasting=lasting)


def explained(error: Exception) -> str:
    """Why a run ends before its end, as its thread is told."""
    return str(error) if isinstance(error, Stopped) else f"{str(error).rstrip('.')}. {blamed(error)}"


def blamed(error: Exception) -> str:
    """Whose failure it is, and whether another try makes sense, in a sentence."""
    return prose.reply("fault.md.j2", fault=fault_of(error), passing=may_be_retried(error)).strip()
