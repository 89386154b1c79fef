"""Summaries of runs for lists such as the dashboard."""

from datetime import UTC, datetime
from typing import Literal

from patchwright.bot.faults import Fault
from patchwright.bot.jobs import Cancellation, Failed, GitHubWait, JobRecord, JobResult, Stopped
from patchwright.bot.usage_report import has_resumed, select_job_work
from patchwright.resolver.activity.failure import FailureKind, classify_failure
from patchwright.resolver.domain import Job, JobId, Published, Reported, RunId, Verdict
from patchwright.resolver.events import Message, Trajectory, VerificationCompleted
from patchwright.resolver.forge import DRY_RUN_URL
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.output_text import clip_line

ResultState = Literal["published", "reported", "input_required", "rejected", "completed", "dry-run"]
RunState = Literal["queued", "running", ResultState, "failed", "stopped", "resumed"]
"""The state of a run. `stopped` means that the run ended without an outcome: somebody stopped it, or its worker
died. `resumed` is the state of a job that resumed an earlier run; the earlier run has the state of the work.
`completed`: the patch of a local run was verified. `dry-run`: the result was shown but not published.
"""
MAX_TITLE_CHARS = 200

PullOutcome = Literal["untouched", "merged", "closed"]
"""The outcome of a pull request. "untouched": merged, and all commits are by Patchwright. "merged": merged with
commits by other people. "closed": closed without a merge.
"""


class RunSummary(FrozenModel):
    """One run as shown in a list."""

    run: RunId
    state: RunState
    fault: Fault | None = None
    """The cause of the run's failure; None if the run did not fail or the cause is unknown."""
    error: str = ""
    """The error message of a run that failed, without secrets."""
    failed_tries: int = 0
    """How many tries of a queued job have failed. The job waits for the next one."""
    repository: str = ""
    number: int = 0
    title: str = ""
    requester: str = ""
    """Login of the user who requested the run; "" for the operator."""
    verdict: str = ""
    """The kind of the verdict on the patch; "" if there is no verdict."""
    is_documentation_only: bool = False
    """True if the patch changes only documentation, so that there is nothing to test."""
    failure: FailureKind | None = None
    """How the run failed; None if it solved the issue, is not over, or had no code to change."""
    cost_usd: float = 0.0
    """The known cost of the run in dollars."""
    is_cost_known: bool = True
    """False if the cost is incomplete, because the price of a model is unknown."""
    tokens: int = 0
    seconds: float = 0.0
    """How long the run has worked, in seconds."""
    steps: int = 0
    started_at: float
    """Seconds since 1970."""
    pull_request: int = 0
    """Number of the pull request that the run opened; 0 if it opened none."""
    url: str = ""
    """URL of the pull request or the comment that contains the result."""
    pull_outcome: PullOutcome | None = None
    """The outcome of the run's pull request. None if the pull request is open, or if the run has no pull
    request.
    """

    cancellation: Cancellation | None = None
    """Why the run was stopped, and by whom; None if nobody stopped it, or if this is unknown."""
    saved_branch: str = ""
    """The branch with the work of a run that ended without an outcome; "" if there is none."""
    resumed_run: JobId | None = None
    """The earlier run that this job resumed; None if the job did not resume a run."""
    resumed_by: JobId | None = None
    """The latest job that resumed this run; None if no job has resumed it."""
    github_wait: GitHubWait | None = None
    """Set if the run waits for the end of an outage of GitHub."""

    @property
    def working_job(self) -> JobId:
        """The job that works on this run, or did so last."""
        return self.resumed_by or JobId(self.run)

    def with_record(self, record: JobRecord) -> "RunSummary":
        """Returns a copy that shows that the job is queued because it waits for GitHub or for its next try, if this is
        so.
        """
        if record.state != "queued" or not (record.github_wait or record.counted_tries):
            return self
        tries = 0 if record.github_wait else record.counted_tries
        state = "resumed" if self.state == "resumed" else "queued"
        return self.model_copy(
            update={"state": state, "github_wait": record.github_wait, "failed_tries": tries}
        )

    def with_result(self, result: JobResult) -> "RunSummary":
        """Returns a copy that contains the result of the job. If the job failed, the verdict stays the
        same.
        """
        if result.kind == "answered":
            return self
        fault = result.fault if isinstance(result, Failed) else None
        error = result.error.partition(": ")[2] if isinstance(result, Failed) else ""
        state = "dry-run" if getattr(result, "url", "") == DRY_RUN_URL else result.kind
        changes: dict[str, object] = {"state": state, "fault": fault, "error": error}
        if isinstance(result, Published | Reported):
            changes |= _verdict_fields(result.verdict)
        if url := getattr(result, "url", None):
            changes["url"] = url
        if isinstance(result, Published):
            changes["pull_request"] = result.number
        if isinstance(result, Stopped):
            changes["cancellation"] = Cancellation(reason=result.reason, by=result.by)
        return self.model_copy(update=changes)

    def with_pull_outcome(self, outcome: str) -> "RunSummary":
        """Returns a copy that contains the outcome of the run's pull request."""
        return self.model_copy(update={"pull_outcome": outcome})


def _verdict_fields(verdict: Verdict | None) -> dict[str, object]:
    return {
        "verdict": verdict.kind if verdict else "",
        "is_documentation_only": verdict is not None and verdict.documentation_only,
    }


def summarize_job(job: Job, started_at: datetime, state: RunState = "queued") -> RunSummary:
    """Summarizes a job that has no log."""
    requester = job.requester.login if job.requester else ""
    return RunSummary(
        run=job.id,
        state=state,
        repository=str(job.repo),
        number=job.number,
        title=clip_line(job.snapshot.title, MAX_TITLE_CHARS) if job.snapshot else "",
        requester=requester,
        started_at=started_at.timestamp(),
    )


def summarize_record(record: JobRecord) -> RunSummary:
    """Summarizes a job from its record in the queue."""
    requested_at = record.requested_at or datetime.now(UTC)
    summary = summarize_job(record.job, requested_at, "running" if record.state == "running" else "queued")
    return summary.with_result(record.result) if record.result else summary.with_record(record)


def summarize_log(job: Job, trajectory: Trajectory, *, is_running: bool) -> RunSummary:
    """Summarizes a run from its log. If the job resumed the run, the usage includes only the job's own work."""
    entries = trajectory.entries
    job_summary = summarize_job(
        job,
        entries[0].timestamp if entries else datetime.now(UTC),
        "running" if is_running else find_log_state(trajectory),
    )
    usage = (select_job_work(job.id, trajectory) if has_resumed(job.id, trajectory) else trajectory).usage()
    verdict, started = trajectory.verdict, trajectory.run_started
    summary = job_summary.model_copy(
        update={
            "title": clip_line(started.thread.title, MAX_TITLE_CHARS) if started else job_summary.title,
            **_verdict_fields(verdict),
            "failure": classify_failure(trajectory),
            "cost_usd": float(usage.usd),
            "is_cost_known": not usage.unpriced,
            "tokens": usage.tokens,
            "seconds": round(usage.seconds, 1),
            "steps": usage.steps,
        }
    )
    return summary.with_result(trajectory.job_completed.outcome) if trajectory.job_completed else summary


def find_log_state(trajectory: Trajectory) -> RunState:
    """Returns the state of a run that no process works on, as its log shows it. A log does not contain an error that
    ended the work of a server, so the state is then `stopped`.
    """
    if completed := trajectory.job_completed:
        outcome = completed.outcome
        return "dry-run" if getattr(outcome, "url", None) == DRY_RUN_URL else outcome.kind
    if trajectory.run_resumed:
        return "resumed"
    started, stopped = trajectory.run_started, trajectory.agent_stopped
    if started is None or started.thread.url:
        return "stopped"
    reason = stopped.reason if stopped else None
    if reason in ("input_required", "error"):
        return "failed" if reason == "error" else "input_required"
    is_verified = trajectory.verdict and not _was_sent_back(trajectory)
    return "completed" if is_verified and reason != "stuck" else "stopped"


def _was_sent_back(trajectory: Trajectory) -> bool:
    """Returns True if the agent was to continue after the latest verdict."""
    for event in reversed(tuple(trajectory)):
        if isinstance(event, VerificationCompleted):
            return False
        if isinstance(event, Message) and event.source == "verification":
            return True
    return False


def label_state(state: str) -> str:
    """Returns the name of a state for people."""
    return state.replace("_", " ")


def summarize_work(job: Job, trajectory: Trajectory, *, is_running: bool) -> tuple[RunSummary, ...]:
    """Summarizes the run that a job works on. If the job resumed an earlier run, returns the summary of the job, and
    then the summary of that run.
    """
    first_job = trajectory.run_started.job if trajectory.run_started else job
    if first_job.id == job.id:
        return (summarize_log(job, trajectory, is_running=is_running),)
    run = summarize_log(first_job, trajectory, is_running=is_running)
    own = summarize_log(job, trajectory, is_running=is_running)
    return (
        own.model_copy(update={"state": "resumed", "resumed_run": first_job.id}),
        run.model_copy(update={"resumed_by": job.id}),
    )
