"""Decides whether a run must end early, because it has reached a limit or is stuck."""

from decimal import Decimal

from pydantic import Field

from patchwright.resolver import stuck
from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.cost import format_usd
from patchwright.resolver.domain import Reported, StopReason, Usage
from patchwright.resolver.events import AgentStopped, Message, ModelReply, ToolResult, Trajectory
from patchwright.runtime.frozen_model import FrozenModel

EARLY_STOPS: frozenset[StopReason] = frozenset({"limit", "stuck", "interrupted", "error"})
"""The reasons for which a run stops before its agent has finished."""
NOTICE_STEPS = 5
"""The model is told when this many replies are left."""
PLANNING_INTERVAL = 10
"""Number of replies after which the model is asked to review its progress. Source: arXiv:2506.03011, appendix B."""


class Limits(FrozenModel):
    """The limits of one run."""

    steps: int = Field(default=100, ge=1)
    """Maximum number of replies of the model."""
    seconds: float = Field(default=3600.0, gt=0)
    """Maximum seconds of work since the first event. Time does not count while no process works on the run,
    or while the run waits for an answer.
    """
    usd: Decimal = Field(default=Decimal("2.00"), gt=0)
    """Maximum cost in dollars. Calls with an unknown price do not count."""
    tokens: int | None = Field(default=None, ge=1)
    """Maximum tokens of prompts (including cached ones) and completions. None means no limit."""


def was_stopped(trajectory: Trajectory) -> bool:
    """Returns True if a run stopped before it was finished, so that it can be resumed.

    A run that opened a pull request cannot be resumed, because further requests belong on the pull request.
    """
    completed, stopped = trajectory.job_completed, trajectory.agent_stopped
    if not trajectory.replies() or (completed and not isinstance(completed.outcome, Reported)):
        return False
    return completed is None or (stopped is not None and stopped.reason in EARLY_STOPS)


def is_complete(trajectory: Trajectory) -> bool:
    """Returns True if the agent finished its work and the patch was verified, so that nothing is left to do."""
    stopped, verdict = trajectory.agent_stopped, trajectory.verdict
    has_finished = stopped is not None and stopped.reason == "finished"
    return has_finished and verdict is not None and not verdict.partial


def check_limits(trajectory: Trajectory, limits: Limits) -> AgentStopped | None:
    """Returns the stop event for a run that has reached a limit or is stuck. Returns None if the run may continue."""
    usage = trajectory.usage_since_resume()
    if usage.steps >= limits.steps:
        return AgentStopped(reason="limit", detail=f"The step limit of {limits.steps} is reached.")
    if usage.usd >= limits.usd:
        spent = format_usd(usage.cost or usage.usd)
        return AgentStopped(reason="limit", detail=f"The budget of ${limits.usd} is spent ({spent}).")
    if limits.tokens is not None and usage.tokens >= limits.tokens:
        detail = f"The limit of {limits.tokens:,} tokens is reached ({usage.tokens:,})."
        return AgentStopped(reason="limit", detail=detail)
    if usage.seconds >= limits.seconds:
        return AgentStopped(reason="limit", detail=f"The time limit of {limits.seconds:g} s is reached.")
    return stuck.check_stuck(trajectory)


def subagent_limits(limits: Limits, usage: Usage, max_steps: int, count: int = 1) -> Limits | None:
    """Splits half of the remaining budget among `count` subagents. Each subagent gets at most `max_steps` steps.

    The parent run keeps the other half, so that it can use the results of its subagents. The subagents run at the same
    time, so each of them gets half of the remaining time. Returns None if the remaining budget is too small.
    """
    steps_left = limits.steps - usage.steps
    seconds, usd = limits.seconds - usage.seconds, limits.usd - usage.usd
    tokens = None if limits.tokens is None else (limits.tokens - usage.tokens) // 2 // count
    if steps_left < 2 * count or seconds <= 0 or usd <= 0 or (tokens is not None and tokens < 1):
        return None
    steps = min(max_steps, steps_left // 2 // count)
    return Limits(steps=steps, seconds=seconds / 2, usd=usd / 2 / count, tokens=tokens)


def steps_left_notice(trajectory: Trajectory, limits: Limits) -> int | None:
    """Returns the number of replies that are left, if the model must be told this number now. Otherwise, returns None.

    A run with a low limit gets no notice, because the notice would come together with the initial prompt.
    """
    steps_left = limits.steps - trajectory.usage_since_resume().steps
    is_due = 0 < steps_left <= NOTICE_STEPS < steps_left + _last_reply_steps(trajectory)
    return steps_left if is_due and limits.steps >= 3 * NOTICE_STEPS else None


def _last_reply_steps(trajectory: Trajectory) -> int:
    """Returns the number of steps that the last reply caused: one for the reply itself, and the steps of the
    subagents that it started.
    """
    steps = 0
    for entry in reversed(trajectory.entries):
        match entry.event:
            case ToolResult(observation=SubagentResult(usage=usage)):
                steps += usage.steps
            case ModelReply():
                return steps + 1
            case _:
                continue
    return steps


def is_planning_due(trajectory: Trajectory, interval: int) -> bool:
    """Returns True if the model must now be asked to review its progress and plan ahead. This is due once
    after every `interval` replies. If `interval` is 0, it is never due.

    Source: arXiv:2506.03011, section 2.2
    """
    count = len(trajectory.replies())
    if not interval or not count or count % interval:
        return False
    for entry in reversed(trajectory.entries):
        match entry.event:
            case Message(source="planning"):
                return False
            case ModelReply():
                return True
            case _:
                continue
    return False
