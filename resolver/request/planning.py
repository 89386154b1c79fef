"""What a run is for: to do the work, to plan it first, or to answer a question. Read from its log."""

from typing import Literal

from resolver.actions import Action, Propose, Report
from resolver.domain import EndingReason, JobId
from resolver.events import Told, Trajectory
from resolver.request.request import Options

Task = Literal["work", "plan", "explain"]


def task(trajectory: Trajectory) -> Task:
    """What is to be done now: a plan becomes work when somebody has said go to it."""
    asked = trajectory.started.job.asked.verb if trajectory.started else "work"
    if asked == "plan" and not any(isinstance(event, Told) and event.approves for event in trajectory):
        return "plan"
    return "explain" if asked == "explain" else "work"


def is_question(trajectory: Trajectory) -> bool:
    """Whether the run is for an answer alone."""
    return task(trajectory) == "explain"


def is_of_a_plan(trajectory: Trajectory) -> bool:
    """Whether the run began with a plan."""
    return trajectory.started is not None and trajectory.started.job.asked.verb == "plan"


def proposed(trajectory: Trajectory) -> Propose | None:
    """The plan that a run has ended with; None: with something else."""
    return next((action for action in _last(trajectory, "asked") if isinstance(action, Propose)), None)


def reported(trajectory: Trajectory) -> str | None:
    """The answer that a run has ended with; None: with something else."""
    return next((action.text for action in _last(trajectory, "finished") if isinstance(action, Report)), None)


def _last(trajectory: Trajectory, reason: EndingReason) -> tuple[Action, ...]:
    """The calls of the last reply, where the run has ended for this reason."""
    ended = trajectory.ended
    last = trajectory.decisions()[-1:] if ended and ended.reason == reason else ()
    return tuple(call.action for reply in last for call in reply.calls)


def options(trajectory: Trajectory, by: JobId | None = None, said: Options | None = None) -> Options:
    """What people have set for the run, what was said last first.

    `said`: by the trigger `by`, which goes on with the run and need not be in its log yet.
    """
    found = trajectory.started.job.asked.options if trajectory.started else Options()
    for event in trajectory:
        if isinstance(event, Told) and event.by != by:
            found = event.options.over(found)
    return said.over(found) if said else found
