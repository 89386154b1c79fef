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
"""Why a job was canceled: a command, the removal of its label, the closing of its thread, or the loss of
access.
"""


class Cancellation(FrozenModel):
    """Shows that a handler's task was canceled because its job was canceled. Without it, the worker is
    shutting down.
    """

    reason: CancelReason


# The reason is not stored in the CancelledError, because code that the handler awaits may replace that error
# by another one.
_CANCELLATIONS: WeakKeyDictionary[asyncio.Task[Any], Cancellation] = WeakKeyDictionary()


def cancel_handler(task: asyncio.Task[Any], cancellation: Cancellation) -> None:
    """Cancels a handler's task and stores the cancellation for it."""
    _CANCELLATIONS[task] = cancellation
    task.cancel()


def current_cancellation() -> Cancellation | None:
    """Returns the cancellation of the job that the current task handles; None if the job was not canceled."""
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
    """The job needed no run of its own, because it was a command or a message to a run in progress."""

    kind: Literal["answered"] = "answered"
    run: JobId | None = None
    """The run that received the message; None for a command."""


JobResult: TypeAlias = Published | Reported | Rejected | InputRequired | Failed | Canceled | Answered


class Retry(FrozenModel):
    """This try did not complete the job, so the queue must retry it."""

    kind: Literal["retry"] = "retry"
    delay_seconds: float
    """Seconds to wait before the next try."""
    counts_as_try: bool = True
    """False if the job did not cause the end of the try, for example because its worker shut down."""


class JobRecord(FrozenModel):
    """A job with its state and result."""

    job: Job
    state: Literal["queued", "running", "completed"] = "queued"
    tries: int = 0
    """Number of tries, not counting those whose `counts_as_try` is False."""
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
        """Returns True if the job was requested at this time or earlier, or if the time of its request is
        unknown.

        Equal times count as before, because GitHub's timestamps are whole seconds.
        """
        return self.requested_at is None or self.requested_at <= time


class UnreadableJob(FrozenModel, extra="ignore"):
    """A queued job written by an incompatible version, with the fields that can be read."""

    id: JobId
    repo: Repo
    number: int
    requester: User


UnreadableJobListener: TypeAlias = Callable[[UnreadableJob], Coroutine[Any, Any, None]]
"""Function that is called with each unreadable job in the queue. It must not raise."""


JobHandler: TypeAlias = Callable[[Job, int], Coroutine[Any, Any, JobResult | Retry]]
"""Function that runs a job. The second argument is the number of the try, from 1. Tries whose worker was
killed count.
"""


class JobQueue(Protocol):
    """Stores jobs and runs them, urgent ones first, and only one per issue or pull request at a time.

    Every method that reads or changes something may raise QueueDown.
    """

    async def put(self, job: Job, *, urgent: bool = True, requested_at: datetime | None = None) -> bool:
        """Stores the job. Returns False if it is already known (queued, running or completed).

        `urgent`: a person waits for the job. `requested_at`: when it was requested. If the jobs of the same
        thread were canceled after that time, does not store the job and returns False.
        """

    async def mark_running(self, job: Job) -> None:
        """Records the job as running without queuing it, so that no worker takes it. The caller must complete
        it.
        """

    async def complete(self, job: Job, result: JobResult) -> None:
        """Stores the result of a job that no worker ran. The job need not be in the queue."""

    async def active_jobs(self, repo: Repo, number: int) -> tuple[JobRecord, ...]:
        """Returns the queued and running jobs of this issue or pull request, in the order of their requests."""

    async def unreadable_jobs(self, repo: Repo, number: int) -> tuple[UnreadableJob, ...]:
        """Returns the active jobs of this issue or pull request that only another version of Patchwright can
        run or cancel.
        """

    async def all_active_jobs(self) -> tuple[JobRecord, ...]:
        """Returns the active jobs of all threads, in no particular order."""

    async def cancel_thread(
        self, repo: Repo, number: int, requested_before: datetime, reason: CancelReason = "requested"
    ) -> tuple[JobRecord, ...]:
        """Cancels the thread's jobs that were requested until `requested_before`. Returns those that were
        active.

        Jobs requested before that time are canceled even if they arrive later. The reason "unlabeled" cancels
        only jobs that a label requested.
        """

    async def cancel(self, job: JobId, reason: CancelReason = "requested") -> bool:
        """Cancels the job, which takes up to a few seconds. Returns False if the job is unknown or completed."""

    async def should_continue(self, job: JobId) -> bool:
        """Returns False once a running job is canceled. The job may then only save its work."""

    async def get_record(self, job: JobId) -> JobRecord | None:
        """Returns the record of a job; None if it is unknown."""

    async def process_jobs(self, handler: JobHandler) -> None:
        """Runs jobs until canceled. Then the running jobs are canceled, too, and return to the queue.

        If a handler raises an exception, its job is completed as Failed. While Redis is down, this method
        waits.
        """


def thread_key(repo: Repo, number: int) -> str:
    """Returns the key of an issue or pull request. The key ignores letter case."""
    return f"{repo}#{number}".lower()


CancelScope = Literal["all", "label"]
"""The jobs of a thread that a cancellation covers: all jobs, or those that a label requested."""


def cancel_scope(reason: CancelReason) -> CancelScope:
    return "label" if reason == "unlabeled" else "all"


def matching_scopes(job: Job) -> tuple[CancelScope, ...]:
    """Returns the cancellation scopes that cover this job."""
    return ("all",) if job.label is None else ("all", "label")


def select_records(
    records: Iterable[JobRecord], requested_before: datetime, scope: CancelScope
) -> tuple[JobRecord, ...]:
    """Returns the records of the jobs in this scope that were requested at `requested_before` or earlier."""
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
