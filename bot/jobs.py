"""Job records, results and cancellations, and the protocol of the queue between receiver and worker."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import Field

from patchwright.bot.faults import Fault
from patchwright.resolver.domain import InputRequired, Job, JobId, Published, Rejected, Repo, Reported, User
from patchwright.runtime.frozen_model import FrozenModel

log = logging.getLogger(__name__)


CancelReason = Literal["requested", "unlabeled", "closed", "access_lost"]
"""The reason why a job was canceled: "requested" (by a command), "unlabeled" (its label was removed), "closed"
(its issue or pull request was closed), or "access_lost" (the App lost access to the repository).
"""


class Cancellation(FrozenModel):
    """Why a job was canceled, and by whom."""

    reason: CancelReason = "requested"
    by: str = ""
    """Login of the person who canceled the job. It is "" for the operator, or if the person is unknown."""

    def as_result(self) -> "Stopped":
        """Returns the result of the canceled job."""
        return Stopped(reason=self.reason, by=self.by)


OPERATOR_REQUEST = Cancellation()
"""A cancellation that the operator requested."""

# A canceled task that is missing here was stopped because its worker is shutting down. The cancellation is not
# stored in the CancelledError, because code that the handler awaits may replace it by another CancelledError.
_CANCELLATIONS: WeakKeyDictionary[asyncio.Task[Any], Cancellation] = WeakKeyDictionary()


def cancel_handler(task: asyncio.Task[Any], cancellation: Cancellation) -> None:
    """Cancels the task that handles a job. In that task, `current_cancellation` then returns `cancellation`."""
    _CANCELLATIONS[task] = cancellation
    task.cancel()


def current_cancellation() -> Cancellation | None:
    """Returns the cancellation of the job that the current task handles, or None if the job was not canceled."""
    task = asyncio.current_task()
    return None if task is None else _CANCELLATIONS.get(task)


class Failed(FrozenModel):
    """The job failed because of an error. A patch that fails verification is not an error."""

    kind: Literal["failed"] = "failed"
    error: str
    fault: Fault = "internal"


class Stopped(Cancellation):
    """The job was canceled before it had an outcome."""

    kind: Literal["stopped"] = "stopped"


class Answered(FrozenModel):
    """The job needed no run of its own: it was a command, or a message to a run in progress."""

    kind: Literal["answered"] = "answered"
    run: JobId | None = None
    """The run that received the job's message. None if the job was a command."""


JobResult: TypeAlias = Published | Reported | Rejected | InputRequired | Failed | Stopped | Answered


class GitHubWait(FrozenModel):
    """A job's wait for the end of an outage of GitHub. Times are in UTC."""

    since: datetime
    """The time of the first try that failed because of the outage."""
    next_try: datetime


class Retry(FrozenModel):
    """This try did not complete the job, so the queue must retry it."""

    kind: Literal["retry"] = "retry"
    delay_seconds: float
    """Seconds to wait before the next try."""
    counts_as_try: bool = True
    """False if the job did not cause the failure of the try, for example because the worker shut down."""
    github_wait: GitHubWait | None = None
    """Set if the job waits for the end of an outage of GitHub. Such a try does not count either."""


class JobRecord(FrozenModel):
    """A job with its state and result."""

    job: Job
    state: Literal["queued", "running", "completed"] = "queued"
    tries: int = 0
    """Number of tries. A try that ended in a Retry with `counts_as_try=False` is not included."""
    result: Annotated[JobResult, Field(discriminator="kind")] | None = None
    """The result of the job; None until the job is completed."""
    urgent: bool = True
    """True if a person is waiting for the job. Urgent jobs run before other jobs."""
    requested_at: datetime | None = None
    """The time when a person or an event requested the job; None if unknown."""
    github_wait: GitHubWait | None = None
    """Set while the last try failed because of an outage of GitHub."""
    outage_tries: int = 0
    """Number of tries that failed because of an outage of GitHub. `tries` includes them."""

    @property
    def counted_tries(self) -> int:
        """The number of tries that the limit for tries applies to."""
        return self.tries - self.outage_tries

    def with_next_try(self) -> "JobRecord":
        return self.model_copy(update={"state": "running", "tries": self.tries + 1})

    def with_result(self, result: JobResult | Retry) -> "JobRecord":
        if isinstance(result, Retry):
            if result.github_wait:
                tries = self.outage_tries + 1
                return self.model_copy(
                    update={"state": "queued", "github_wait": result.github_wait, "outage_tries": tries}
                )
            if not result.counts_as_try:  # an outage that the job waited for may continue
                return self.model_copy(update={"state": "queued", "tries": self.tries - 1})
            return self.model_copy(update={"state": "queued", "github_wait": None})
        return self.model_copy(update={"state": "completed", "result": result})

    def is_requested_before(self, time: datetime) -> bool:
        """Returns True if the job was requested at this time or earlier, or if the time of the request is unknown.

        Equal times count as earlier, because GitHub's timestamps are whole seconds.
        """
        return self.requested_at is None or self.requested_at <= time


class UnreadableJob(FrozenModel, extra="ignore"):
    """An unfinished job that an incompatible version wrote. Contains only the fields that this version can read."""

    id: JobId
    repo: Repo
    number: int
    requester: User


UnreadableJobListener: TypeAlias = Callable[[UnreadableJob], Coroutine[Any, Any, None]]
"""A function that is called with each queued job that this version cannot read. It must not raise."""


JobHandler: TypeAlias = Callable[[Job, int], Coroutine[Any, Any, JobResult | Retry]]
"""A function that runs a job. Its second argument is the number of the try, counted from 1. A try whose worker
was killed counts, too. A try that failed because of an outage of GitHub does not count.
"""


class JobQueue(Protocol):
    """Stores jobs and runs them. Runs urgent jobs first, and at most one job per issue or pull request at a time.

    Every method that accesses the queue's storage may raise QueueDown.
    """

    async def put(self, job: Job, *, urgent: bool = True, requested_at: datetime | None = None) -> bool:
        """Stores the job. Returns False if the job is already known (queued, running or completed).

        `urgent` is True if a person is waiting for the job. `requested_at` is the time of the request. If the
        jobs of the issue or pull request were canceled after that time, does not store the job and returns
        False.
        """

    async def mark_running(self, job: Job) -> None:
        """Records a job as running without queuing it, so that no worker takes it. The caller must later call
        `complete`.
        """

    async def complete(self, job: Job, result: JobResult) -> None:
        """Stores the result of a job that was not run by a worker. The job need not be in the queue."""

    async def active_jobs(self, repo: Repo, number: int) -> tuple[JobRecord, ...]:
        """Returns the queued and running jobs of this issue or pull request, the earliest request first."""

    async def unreadable_jobs(self, repo: Repo, number: int) -> tuple[UnreadableJob, ...]:
        """Returns the unfinished jobs of this issue or pull request that this version cannot read. Only another
        version can run or cancel them.
        """

    async def all_active_jobs(self) -> tuple[JobRecord, ...]:
        """Returns all queued and running jobs, in no particular order."""

    async def cancel_thread(
        self,
        repo: Repo,
        number: int,
        requested_before: datetime,
        cancellation: Cancellation = OPERATOR_REQUEST,
    ) -> tuple[JobRecord, ...]:
        """Cancels the jobs of this issue or pull request that were requested at `requested_before` or earlier.
        Returns the canceled jobs that were queued or running.

        Also cancels jobs that were requested by that time but reach the queue later. If the reason is
        "unlabeled", cancels only the jobs that a label requested.
        """

    async def cancel(self, job: JobId, cancellation: Cancellation = OPERATOR_REQUEST) -> bool:
        """Requests the cancellation of the job, which takes up to a few seconds. Returns False if the job is
        unknown or completed.
        """

    async def end_github_waits(self) -> None:
        """Starts the jobs that wait for the end of an outage of GitHub, because GitHub responds again."""

    async def should_continue(self, job: JobId) -> bool:
        """Returns False if the running job was canceled. The job may then only save its work."""

    async def get_record(self, job: JobId) -> JobRecord | None:
        """Returns the record of a job, or None if the job is unknown."""

    async def process_jobs(self, handler: JobHandler) -> None:
        """Runs jobs until the caller cancels this method. Then stops the running jobs and returns them to the queue.

        If a handler raises an exception, the result of its job is Failed. While Redis is down, this method waits.
        """


def thread_key(repo: Repo, number: int) -> str:
    """Returns the key of an issue or pull request. Names that differ only in letter case have the same key."""
    return f"{repo}#{number}".lower()


CancelScope = Literal["all", "label"]
"""Which jobs of an issue or pull request are canceled: all jobs, or only the jobs that a label requested."""


def cancel_scope(reason: CancelReason) -> CancelScope:
    return "label" if reason == "unlabeled" else "all"


def matching_scopes(job: Job) -> tuple[CancelScope, ...]:
    """Returns each CancelScope that includes this job."""
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
    """Returns the records sorted by the time of their requests. Unknown times come first."""
    earliest = datetime.min.replace(tzinfo=UTC)
    return tuple(sorted(records, key=lambda record: (record.requested_at or earliest, record.job.id)))


def task_result(job: JobId, task: asyncio.Task[JobResult | Retry]) -> JobResult | Retry:
    """Returns the result of a finished task. If the task raised an exception, returns Failed."""
    if task.cancelled():
        return Failed(error="the job was canceled by its own handler")
    if (error := task.exception()) is not None:
        log.error("job handler failed", extra={"job": job}, exc_info=error)
        return Failed(error=type(error).__name__)
    return task.result()
