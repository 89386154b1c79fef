"""A job's outermost frame: what the machine did wrong is tried again, or told to the thread and ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from bot.errors import QueueDown
from bot.jobs import Again, Failed, Result, Why, stop_heard
from bot.observe.faults import fault_of
from resolver.domain import Job, Outcome
from resolver.errors import Interrupted, LogTaken, RateLimited, ResolverError
from runtime.errors import SandboxError

log = logging.getLogger(__name__)

MOST_TRIES = 5
FIRST_PAUSE = 10.0  # seconds; doubled with every try
LONGEST_PAUSE = 300.0
TAKEN_SECONDS = 60.0  # until a job is looked at again that another worker does
LIMIT_SECONDS = 12 * 3600.0  # of one try. The work has tighter limits of its own; this one frees the worker.
MOST_TEXT = 500  # characters of an error that are kept in a record

Resolve: TypeAlias = Callable[[Job], Awaitable[Outcome]]
Apologize: TypeAlias = Callable[[Job, Exception], Awaitable[object]]


APOLOGY_SECONDS = 300.0  # clone, push and comment


class GaveUp(Exception):
    """A job that kills its worker in every try, or never ends."""


class Stopped(Exception):
    """The job is not to go on."""


SAID: Mapping[Why, str] = {
    "asked": "Somebody stopped me.",
    "unlabelled": "Somebody took the label away.",
    "closed": "Somebody closed this.",
    "out_of_reach": "I may not act in this repository any more.",
}
"""What the thread is told."""


class Worker:
    """Does jobs through `resolve`; `Worker.run` is a handler for `Queue.work`.

    A job that is cancelled because its worker goes away is only cancelled: its log goes on later.
    """

    def __init__(
        self,
        resolve: Resolve,
        apologize: Apologize,
        *,
        most_tries: int = MOST_TRIES,
        first_pause: float = FIRST_PAUSE,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._resolve = resolve
        self._apologize = apologize
        self._most_tries = most_tries
        self._first_pause = first_pause
        self._limit_seconds = limit_seconds

    async def run(self, job: Job, tries: int) -> Result | Again:
        """What the job came to; never raises but when cancelled: with a Stop, its thread is told first."""
        try:
            if tries > self._most_tries:
                raise GaveUp(f"The work was begun {self._most_tries} times and broke off each time.")
            async with asyncio.timeout(self._limit_seconds) as limit:
                return await self._resolve(job)
        except asyncio.CancelledError:
            if stop := stop_heard():
                # In a task of its own: what waits in a cancelled one may be cancelled once more.
                await asyncio.wait((asyncio.create_task(self._tell(job, Stopped(SAID[stop.why]))),))
            raise
        except Exception as exc:
            error = cause_of(exc)
            if isinstance(error, TimeoutError) and limit.expired():
                error = GaveUp(f"The work took longer than {self._limit_seconds:g} s.")
            if isinstance(error, LogTaken):  # by whoever thought us dead: what comes of it is theirs to tell
                log.warning("job taken over", extra={"job": job.id, "reason": str(error)})
                return Again(seconds=TAKEN_SECONDS, counts=False)
            log.exception("job failed", extra={"job": job.id, "try": tries})
            if may_be_retried(error) and tries < self._most_tries:
                return Again(seconds=self._pause(error, tries))
            await self._tell(job, error)
            return Failed(error=f"{type(error).__name__}: {error}"[:MOST_TEXT], fault=fault_of(error))

    async def _tell(self, job: Job, error: Exception) -> None:
        try:
            async with asyncio.timeout(APOLOGY_SECONDS):
                await self._apologize(job, error)
        except (ResolverError, SandboxError, TimeoutError, OSError) as exc:  # the forge may be what failed
            log.error("thread not told", extra={"job": job.id, "error": type(exc).__name__})

    def _pause(self, error: Exception, tries: int) -> float:
        if isinstance(error, RateLimited):
            return max(self._first_pause, (error.until - datetime.now(UTC)).total_seconds())
        return min(self._first_pause * 2.0 ** (tries - 1), LONGEST_PAUSE)


def may_be_retried(error: Exception) -> bool:
    """Whether another try makes sense; what nobody thought of is a fault of ours, and stays one."""
    return isinstance(error, Interrupted | QueueDown) or (
        isinstance(error, ResolverError | SandboxError) and error.retryable
    )


def cause_of(error: Exception) -> Exception:
    """The one error in a group of one: a task group wraps what its task raised."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
