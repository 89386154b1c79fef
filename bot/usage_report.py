"""Summarizes a run's log: how much each model was used, and how the run ended."""

from collections import Counter
from collections.abc import Callable, Mapping

from patchwright.resolver.activity.failure import FailureKind, classify_failure
from patchwright.resolver.domain import RunId, Usage
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Message,
    ModelReply,
    ReplyUsage,
    RunStarted,
    Trajectory,
)
from patchwright.resolver.run_events import RunResumed
from patchwright.runtime.frozen_model import FrozenModel

MAX_NAME_LENGTH = 100  # maximum characters of a model name


class UsageReport(FrozenModel):
    """The usage of a job and of its subagents."""

    usage: Usage = Usage()
    tokens: Mapping[tuple[str, str], int] = {}
    """Number of tokens by model and kind (`prompt`, `cached`, `completion`). The `prompt` tokens include the
    `cached` ones.
    """
    repairs: int = 0
    """The number of times that the patch was returned to the agent for repair."""
    fixes_checks: bool = False
    """True if failed checks on one of Patchwright's commits started the job."""
    failure: FailureKind | None = None
    """How the run failed; None if it solved the issue or had no code to change."""
    provider_failed: bool = False
    """True if the run ended because its model gave no usable reply."""


def read_job_work(job: RunId, read: Callable[[RunId], Trajectory]) -> Trajectory:
    """Returns the events of a job's work; none if the job did not start. Blocks.

    If the job resumed an earlier run, the work is in that run's log, after the message of the job. What happened
    before is the work of an earlier job. `read` returns a run's log, and may raise LogError.
    """
    own = _read_or_empty(job, read)
    if own.run_resumed is None:
        return own
    work = _read_or_empty(own.run_resumed.run, read)
    return select_job_work(job, work) if job in _list_owners(work) else Trajectory()


def select_job_work(job: RunId, trajectory: Trajectory) -> Trajectory:
    """Returns the part of a run's log that is the work of this job: the work after its message, or the beginning, if
    the job did not resume the run.
    """
    owners = _list_owners(trajectory)
    is_first = job not in owners or (trajectory.run_started and trajectory.run_started.job.id == job)
    wanted = {job, None} if is_first else {job}
    entries = (entry for entry, owner in zip(trajectory.entries, owners, strict=True) if owner in wanted)
    return Trajectory(tuple(entries))


def has_resumed(job: RunId, trajectory: Trajectory) -> bool:
    """Returns True if this job resumed the run of the log, which another job started."""
    is_first = trajectory.run_started is not None and trajectory.run_started.job.id == job
    return not is_first and job in _list_owners(trajectory)


def join_resumed_work(job: RunId, own: Trajectory, earlier: Trajectory) -> Trajectory:
    """Returns the start of an earlier run, the work that this job added to the run's log, and the job's outcome."""
    start = tuple(entry for entry in earlier.entries if isinstance(entry.event, RunStarted))[:1]
    work = select_job_work(job, earlier).entries if job in _list_owners(earlier) else ()
    # The time of the entry `RunResumed` is before the work, so it would reduce the working time.
    outcome = tuple(entry for entry in own.entries if not isinstance(entry.event, RunResumed))
    return Trajectory((*start, *work, *outcome))


def get_last_job(trajectory: Trajectory) -> RunId | None:
    """Returns the job that resumed the run last, or None if no job has resumed it."""
    return next(reversed(_list_owners(trajectory)), None)


def _list_owners(trajectory: Trajectory) -> list[RunId | None]:
    """Returns for each entry the job that resumed the run before it; None before the run was first resumed.

    A comment that the agent read during its work resumes nothing.
    """
    owners: list[RunId | None] = []
    owner, has_stopped = None, False
    for entry in trajectory.entries:
        event = entry.event
        if isinstance(event, AgentStopped | ModelReply):
            has_stopped = isinstance(event, AgentStopped)
        elif isinstance(event, Message) and event.trigger_id and (event.source == "resume" or has_stopped):
            owner = event.trigger_id
        owners.append(owner)
    return owners


def build_usage_report(run: RunId, read: Callable[[RunId], Trajectory]) -> UsageReport:
    """Returns the usage report of a job. The report is empty if the job did not start. Blocks.

    `read` returns a run's log, and may raise LogError.
    """
    trajectory = read_job_work(run, read)
    tokens: Counter[tuple[str, str]] = Counter()
    for usage in _reply_usages(trajectory, read, {run}):
        name = usage.model[:MAX_NAME_LENGTH]
        tokens["prompt", name] += usage.prompt_tokens
        tokens["cached", name] += usage.cached_tokens
        tokens["completion", name] += usage.completion_tokens
    stopped = trajectory.agent_stopped
    return UsageReport(
        usage=trajectory.usage(),
        tokens=+tokens,
        repairs=sum(isinstance(event, Message) and event.source == "verification" for event in trajectory),
        fixes_checks=trajectory.run_started is not None
        and bool(trajectory.run_started.job.failed_checks_commit),
        failure=classify_failure(trajectory),
        provider_failed=stopped is not None and stopped.reason == "error",
    )


def _reply_usages(
    trajectory: Trajectory, read: Callable[[RunId], Trajectory], seen_runs: set[RunId]
) -> list[ReplyUsage]:
    usages = [event.usage for event in trajectory if isinstance(event, ModelReply | AuxiliaryModelCall)]
    for spawned, _ in trajectory.subagents():
        if spawned.run not in seen_runs:
            seen_runs.add(spawned.run)
            usages += _reply_usages(_read_or_empty(spawned.run, read), read, seen_runs)
    return usages


def _read_or_empty(run: RunId, read: Callable[[RunId], Trajectory]) -> Trajectory:
    try:
        return read(run)
    except LogError:  # the run has not started, or its log is gone
        return Trajectory()
