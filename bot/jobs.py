"""Job records, results and cancellations, and the protocol of the queue between receiver and worker."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import Field

from patchwright.bot.observe.faults import Fault
from patchwright.resolver.domain import InputRequired, Job, JobId, Published, Rejected, Repo, Reported, User
from patchwright.runtime.frozen_model import FrozenModel

log = logging.getLogger(__name__)


CancelReason = Literal["requested", "unlabeled", "closed", "access_lost"]
"""Why a job was canceled: by a command, because its label was removed, its thread closed, or access revoked.
"""


class Cancellation(FrozenModel):
    """Marks the canceled task of a handler: its job was canceled. Without this mark, the worker is shutting
    down.
    """

    reason: CancelReason


# The mark is not in the CancelledError, because code that the handler awaits may swallow that error and raise
# another one.
_CANCELLATIONS: WeakKeyDictionary[asyncio.Task[Any], Cancellation] = WeakKeyDictionary()


def cancel_handler(task: asyncio.Task[Any], cancellation: Cancellation) -> None:
    """Cancels a handler's task and stores the cancellation for it."""
    _CANCELLATIONS[task] = cancellation
    task.cancel()


def current_cancellation() -> Cancellation | None:
    """Returns the cancellation of the current handler's job; None if the job was not canceled."""
    task = asyncio.current_task()
    return None if task is None else _CANCELLATIONS.get(task)


class Failed(FrozenModel):
    """The job failed because of an error, not because of the patch."""

    kind: Literal["failed"] = "failed"
    error: str
    fault: Fault = "internal"


class Canceled(FrozenModel):
    """The job was canceled."""

    kind: Literal["canceled"] = "canceled"
    reason: CancelReason = "requested"


class Answered(FrozenModel):
    """The job needed no run of its own: it was a command, or a message to a run in progress."""

    kind: Literal["answered"] = "answered"
    run: JobId | None = None
    """The run that received the message; None for a command."""


JobResult: TypeAlias = Published | Reported | Rejected | InputRequired | Failed | Canceled | Answered


class Retry(FrozenModel):
    """This try did not complete the job, so the queue tries again."""

    kind: Literal["retry"] = "retry"
    delay_seconds: float
    """Seconds to wait before the next try."""
    counts_as_try: bool = True
    """False if the try ended without an error of the job, for example because its worker shut down."""


class JobRecord(FrozenModel):
    """A job with its state and result."""

    job: Job
    state: Literal["queued", "running", "completed"] = "queued"
    tries: int = 0
    """Number of tries, without those whose `counts_as_try` is False."""
    result: Annotated[JobResult, Field(discriminator="kind")] | None = None
    """None until the job is completed."""
    urgent: bool = True
    """True if a person waits for the job. Urgent jobs run first."""
    requested_at: datetime | None = None
    """When the job was requested; None if unknown."""

    def with_next_try(self) -> "JobRecord":
        return self.model_copy(update={"state": "running", "tries": self.tries + 1})

    def with_result(self, result: JobResult | Retry) -> "JobRecord":
        if isinstance(result, Retry):
            tries = self.tries if result.counts_as_try else self.tries - 1
            return self.model_copy(update={"state": "queued", "tries": tries})
        return self.model_copy(update={"state": "completed", "result": result})

    def is_requested_before(self, time: datetime) -> bool:
        """Returns True if the job was requested at this time or earlier, or if its time is unknown.

        Both times may be equal, because GitHub's timestamps are whole seconds.
        """
        return self.requested_at is None or self.requested_at <= time


class UnreadableJob(FrozenModel, extra="ignore"):
    """A queued job written by an incompatible version, with the fields that can be read."""

    id: JobId
    repo: Repo
    number: int
    requester: User


UnreadableJobListener: TypeAlias = Callable[[UnreadableJob], Coroutine[Any, Any, None]]
"""Function that is called for each unreadable job in the queue. It must not raise."""


JobHandler: TypeAlias = Callable[[Job, int], Coroutine[Any, Any, JobResult | Retry]]
"""Function that runs a job. The number is the current try, from 1; a try whose worker was killed counts."""


class JobQueue(Protocol):
    """Stores jobs and runs one per issue or pull request at a time, urgent ones first.

    Every method that reads or changes something may raise QueueDown.
    """

    async def put(self, job: Job, *, urgent: bool = True, requested_at: datetime | None = None) -> bool:
        """Stores the job. Returns False if it is already known (queued, running or completed).

        `urgent`: a person waits for the job. `requested_at`: when it was requested. If the jobs of its thread
        were canceled after that time, the job is not stored and the result is False.
        """

    async def mark_running(self, job: Job) -> None:
        """Records the job as running without queuing it, so that no worker takes it. The caller completes it."""

    async def complete(self, job: Job, result: JobResult) -> None:
        """Stores the result of a job that was not run. The job need not be queued."""

    async def active_jobs(self, repo: Repo, number: int) -> tuple[JobRecord, ...]:
        """Returns the queued and running jobs of this issue or pull request, in the order of their requests."""

    async def unreadable_jobs(self, repo: Repo, number: int) -> tuple[UnreadableJob, ...]:
        """Returns the active jobs of this issue or pull request that only another version can run or cancel."""

    async def all_active_jobs(self) -> tuple[JobRecord, ...]:
        """Returns the active jobs of all threads, in no particular order."""

    async def cancel_thread(
        self, repo: Repo, number: int, requested_before: datetime, reason: CancelReason = "requested"
    ) -> tuple[JobRecord, ...]:
        """Cancels the thread's jobs requested until `requested_before`, and returns those that were active.

        Jobs requested before that time are canceled even if they arrive later. The reason "unlabeled" cancels
        only jobs that a label requested.
        """

    async def cancel(self, job: JobId, reason: CancelReason = "requested") -> bool:
        """Cancels the job within seconds. Returns False if it is unknown or completed."""

    async def should_continue(self, job: JobId) -> bool:
        """Returns False once a running job is canceled. Until the job ends, it may then only save its work."""

    async def get_record(self, job: JobId) -> JobRecord | None:
        """Returns the record of a job; None if it is unknown."""

    async def process_jobs(self, handler: JobHandler) -> None:
        """Runs jobs until canceled. Running jobs are then canceled too and go back to the queue.

        An exception of a handler completes its job as Failed. While Redis is down, this method waits.
        """


def thread_key(repo: Repo, number: int) -> str:
    """Returns the key of an issue or pull request, independent of letter case."""
    return f"{repo}#{number}".lower()


CancelScope = Literal["all", "label"]
"""Which jobs of a thread a cancellation covers."""


def cancel_scope(reason: CancelReason) -> CancelScope:
    return "label" if reason == "unlabeled" else "all"


def matching_scopes(job: Job) -> tuple[CancelScope, ...]:
    """Returns the cancellation scopes that cover this job."""
    return ("all",) if job.label is None else ("all", "label")


def select_records(
    records: Iterable[JobRecord], requested_before: datetime, scope: CancelScope
) -> tuple[JobRecord, ...]:
    """Returns the records that a cancellation of this scope at this time covers."""
    return tuple(
        record
        for record in records
        if record.is_requested_before(requested_before) and scope in matching_scopes(record.job)
    )


def sort_by_request_time(records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    """Returns the records sorted by the time of their requests."""
    earliest = datetime.min.replace(tzinfo=UTC)
    return tuple(sorted(records, key=lambda record: (record.requested_at or earliest, record.job.id)))


def task_result(job: JobId, task: asyncio.Task[JobResult | Retry]) -> JobResult | Retry:
    """Returns the result of a finished task. An exception becomes Failed."""
    if task.cancelled():
        return Failed(error="canceled by its own handler")
    if (error := task.exception()) is not None:
        log.error("job handler failed", extra={"job": job}, exc_info=error)
        return Failed(error=type(error).__name__)
    return task.result()
