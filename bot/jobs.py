"""What becomes of a job, the seam that carries it from receiver to worker, and the queue of one process."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import Field

from bot.faults import Fault
from resolver.domain import Asked, Commented, Delivered, Job, JobId, Refused, Repo
from runtime.frozen import Frozen

log = logging.getLogger(__name__)


STOPPED = "somebody asked to stop it"
"""The message of a handler's cancellation when its job is not to go on; any other is a worker that goes away."""


class Failed(Frozen):
    """The machine failed, not the work: somebody must look."""

    kind: Literal["failed"] = "failed"
    error: str
    fault: Fault = "ours"


class Cancelled(Frozen):
    """Somebody asked to stop it."""

    kind: Literal["cancelled"] = "cancelled"


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

    async def settle(self, job: Job, result: Result) -> None:
        """What the job came to without being begun; it need not have been put."""

    async def open(self, repo: Repo, number: int) -> tuple[Record, ...]:
        """What waits or runs for this issue or pull request, in the order in which it was asked for."""

    async def stop(self, repo: Repo, number: int, at: datetime) -> tuple[Record, ...]:
        """Cancel all that was asked for there until then, also what has not arrived yet; what waited or ran."""

    async def cancel(self, job: JobId) -> bool:
        """Stop the job within seconds, or never begin it; False: it is unknown or has ended."""

    async def state(self, job: JobId) -> Record | None:
        """What became of it; None: never heard of."""

    async def work(self, handler: Handler) -> None:
        """Do jobs until cancelled; what runs then is cancelled too and goes back into the queue.

        Whatever a handler raises ends its job as Failed. A queue that is down is waited for.
        """

    async def healthy(self) -> bool:
        """Whether a job could be stored now; never raises."""


class InlineQueue:
    """The queue in this process: nothing outlives it. One job at a time."""

    def __init__(self) -> None:
        self._records: dict[JobId, Record] = {}
        self._waiting: asyncio.PriorityQueue[tuple[bool, int, JobId]] = asyncio.PriorityQueue()
        self._places = itertools.count()
        self._running: dict[JobId, asyncio.Task[Result | Again]] = {}
        self._stopped: dict[str, datetime] = {}
        self._unwanted: set[JobId] = set()

    @property
    def known(self) -> frozenset[JobId]:
        """Every job that was ever put."""
        return frozenset(self._records)

    async def put(self, job: Job, *, urgent: bool = True, asked: datetime | None = None) -> bool:
        stopped = self._stopped.get(thread_of(job.repo, job.number))
        if job.id in self._records or (asked and stopped and asked < stopped):
            return False
        self._records[job.id] = Record(job=job, urgent=urgent, asked=asked)
        self._line_up(job.id)
        return True

    async def settle(self, job: Job, result: Result) -> None:
        self._records[job.id] = self._records.get(job.id, Record(job=job)).after(result)

    async def open(self, repo: Repo, number: int) -> tuple[Record, ...]:
        thread = thread_of(repo, number)
        return in_order(
            one
            for one in self._records.values()
            if one.state != "ended" and thread_of(one.job.repo, one.job.number) == thread
        )

    async def stop(self, repo: Repo, number: int, at: datetime) -> tuple[Record, ...]:
        thread = thread_of(repo, number)
        self._stopped[thread] = max(at, self._stopped.get(thread, at))
        meant = tuple(one for one in await self.open(repo, number) if one.is_before(at))
        for one in meant:
            await self.cancel(one.job.id)
        return meant

    def _line_up(self, job: JobId) -> None:
        self._waiting.put_nowait((not self._records[job].urgent, next(self._places), job))

    async def cancel(self, job: JobId) -> bool:
        known = self._records.get(job)
        if known is None or known.state == "ended":
            return False
        if known.state == "queued" and known.tries:  # its next try, now, puts its work away
            self._unwanted.add(job)
            self._line_up(job)
            return True
        self._records[job] = known.after(Cancelled())
        if job in self._running:
            self._running[job].cancel(STOPPED)
        return True

    async def state(self, job: JobId) -> Record | None:
        return self._records.get(job)

    async def work(self, handler: Handler) -> None:
        while True:
            _, _, job = await self._waiting.get()
            if self._records[job].state != "ended":
                await self._perform(handler, self._records[job].begun())

    async def _perform(self, handler: Handler, record: Record) -> None:
        job = record.job.id
        self._records[job] = record
        task = self._running[job] = asyncio.create_task(handler(record.job, record.tries))
        if job in self._unwanted:
            await asyncio.sleep(0)  # it has to begin before it can be told
            self._records[job] = record.after(Cancelled())
            task.cancel(STOPPED)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            result = Again(seconds=0, counts=False) if task.cancelled() else ending(job, task)
            self._records[job] = record.after(result)
            self._line_up(job)
            raise
        finally:
            del self._running[job]
        if self._records[job].state == "ended":
            return  # cancelled meanwhile
        result = ending(job, task)
        self._records[job] = record.after(result)
        if isinstance(result, Again):
            asyncio.get_running_loop().call_later(result.seconds, self._line_up, job)

    async def healthy(self) -> bool:
        return True


def thread_of(repo: Repo, number: int) -> str:
    """The name of an issue or pull request, however its repository is spelled."""
    return f"{repo}#{number}".lower()


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
