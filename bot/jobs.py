"""What becomes of a job, and the seam that carries it from receiver to worker."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import Field

from bot.observe.faults import Fault
from resolver.domain import Asked, Commented, Delivered, Job, JobId, Refused, Repo, User
from runtime.frozen import Frozen

log = logging.getLogger(__name__)


Why = Literal["asked", "unlabelled", "closed", "out_of_reach"]
"""What has a job stopped: a command; or its label, its thread or our way to it is gone."""


class Stop(Frozen):
    """Told to a handler that is cancelled because its job is not to go on; without it, a worker goes away."""

    why: Why


# Not in the CancelledError: what the handler waits for may swallow that, and then it ends by another one.
_STOPS: WeakKeyDictionary[asyncio.Task[Any], Stop] = WeakKeyDictionary()


def stop(handling: asyncio.Task[Any], told: Stop) -> None:
    """Cancel a handler's task, and let it know why."""
    _STOPS[handling] = told
    handling.cancel()


def stop_heard() -> Stop | None:
    """Why the job of this task, a handler's, is not to go on; None: it is."""
    handling = asyncio.current_task()
    return None if handling is None else _STOPS.get(handling)


class Failed(Frozen):
    """The machine failed, not the work: somebody must look."""

    kind: Literal["failed"] = "failed"
    error: str
    fault: Fault = "ours"


class Cancelled(Frozen):
    """It was not to go on."""

    kind: Literal["cancelled"] = "cancelled"
    why: Why = "asked"


class Answered(Frozen):
    """Dealt with without a run of its own: a command, or a word to a run that was going on."""

    kind: Literal["answered"] = "answered"
    run: JobId | None = None
    """The run that was told."""


Result: TypeAlias = Delivered | Commented | Refused | Asked | Failed | Cancelled | Answered


class Again(Frozen):
    """Not ended: to be begun once more."""

    kind: Literal["again"] = "again"
    seconds: float
    """How long to wait first."""
    counts: bool = True
    """False when this was no try: it had to make way."""


class Record(Frozen):
    """What became of a job."""

    job: Job
    state: Literal["queued", "running", "ended"] = "queued"
    tries: int = 0
    """How often it was begun, those not counted that had to make way."""
    result: Annotated[Result, Field(discriminator="kind")] | None = None
    """None until it ended."""
    urgent: bool = True
    """Whether a person waits for it: then it goes before what nobody waits for."""
    asked: datetime | None = None
    """When it was asked for; None: not known."""

    def begun(self) -> "Record":
        return self.model_copy(update={"state": "running", "tries": self.tries + 1})

    def after(self, result: Result | Again) -> "Record":
        if isinstance(result, Again):
            tries = self.tries if result.counts else self.tries - 1
            return self.model_copy(update={"state": "queued", "tries": tries})
        return self.model_copy(update={"state": "ended", "result": result})

    def is_before(self, at: datetime) -> bool:
        """Whether somebody who spoke then can have meant this job: GitHub's times are whole seconds."""
        return self.asked is None or self.asked <= at


class Unread(Frozen, extra="ignore"):
    """A job that somebody asked for and another version of ours has put, as far as it can be read."""

    id: JobId
    repo: Repo
    number: int
    requester: User


Left: TypeAlias = Callable[[Unread], Coroutine[Any, Any, None]]
"""Hears that such a job waits; never raises."""


Handler: TypeAlias = Callable[[Job, int], Coroutine[Any, Any, Result | Again]]
"""Does a job. The number says which try this is, from 1; a try that was killed counts."""


class Queue(Protocol):
    """Where jobs wait: one of an issue or pull request at a time, those that somebody waits for before the others.

    A method that asks or changes something may raise QueueDown.
    """

    async def put(self, job: Job, *, urgent: bool = True, asked: datetime | None = None) -> bool:
        """Store the job; False: it is known already, whether it waits, runs or has ended.

        `urgent`: a person waits for it. `asked`: when it was asked for; False, too, if its thread was stopped since.
        """

    async def take_up(self, job: Job) -> None:
        """It is being dealt with, without being put: known as running until it is settled, and no work for anybody."""

    async def settle(self, job: Job, result: Result) -> None:
        """What the job came to without being begun; it need not have been put."""

    async def open(self, repo: Repo, number: int) -> tuple[Record, ...]:
        """What waits or runs for this issue or pull request, in the order in which it was asked for."""

    async def unread(self, repo: Repo, number: int) -> tuple[Unread, ...]:
        """What waits or runs for it, and only another version of ours can do or stop."""

    async def everywhere(self) -> tuple[Record, ...]:
        """What waits or runs for any of them, in no order."""

    async def stop(self, repo: Repo, number: int, at: datetime, why: Why = "asked") -> tuple[Record, ...]:
        """Cancel what was asked for there until then, also what has not arrived yet; what waited or ran.

        All of it; `unlabelled`: what a label asked for.
        """

    async def cancel(self, job: JobId, why: Why = "asked") -> bool:
        """Stop the job within seconds, or never begin it; False: it is unknown or has ended."""

    async def is_wanted(self, job: JobId) -> bool:
        """Whether a job that runs is to go on: from its stop to its end it puts its work away."""

    async def state(self, job: JobId) -> Record | None:
        """What became of it; None: never heard of."""

    async def work(self, handler: Handler) -> None:
        """Do jobs until cancelled; what runs then is cancelled too and goes back into the queue.

        Whatever a handler raises ends its job as Failed. A queue that is down is waited for.
        """


def thread_of(repo: Repo, number: int) -> str:
    """The name of an issue or pull request, however its repository is spelled."""
    return f"{repo}#{number}".lower()


Scope = Literal["all", "label"]
"""What of a thread a stop is about."""


def scope_of(why: Why) -> Scope:
    return "label" if why == "unlabelled" else "all"


def scopes_of(job: Job) -> tuple[Scope, ...]:
    """The stops that are about this job."""
    return ("all",) if job.label is None else ("all", "label")


def meant_by(records: Iterable[Record], at: datetime, scope: Scope) -> tuple[Record, ...]:
    """Those that a stop of this scope at this time is about."""
    return tuple(one for one in records if one.is_before(at) and scope in scopes_of(one.job))


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """As they were asked for."""
    first = datetime.min.replace(tzinfo=UTC)
    return tuple(sorted(records, key=lambda one: (one.asked or first, one.job.id)))


def ending(job: JobId, task: asyncio.Task[Result | Again]) -> Result | Again:
    """What a task that is done came to."""
    if task.cancelled():
        return Failed(error="cancelled from inside")
    if (error := task.exception()) is not None:
        log.error("a job's handler raised", extra={"job": job}, exc_info=error)
        return Failed(error=type(error).__name__)
    return task.result()
