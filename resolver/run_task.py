"""Determines from the log of a run what its task is: to work, to plan, to explain or to propose a configuration."""

from patchwright.resolver.actions import Action
from patchwright.resolver.branch_names import DEFAULT_TEMPLATE, validate_template
from patchwright.resolver.command_parser import RunOptions
from patchwright.resolver.comment_commands import WORK, Task
from patchwright.resolver.domain import JobId, StopReason
from patchwright.resolver.events import Message, Trajectory
from patchwright.resolver.tool_actions.control_actions import ProposePlan, Report


def get_task(trajectory: Trajectory) -> Task:
    """Returns the current task. When a plan is approved, the task changes from "plan" to "work"."""
    command = trajectory.run_started.job.request.command if trajectory.run_started else WORK
    is_approved = any(isinstance(event, Message) and event.approves_plan for event in trajectory)
    return "work" if command.task == "plan" and is_approved else command.task


def is_question(trajectory: Trajectory) -> bool:
    """Returns True if the run only answers a question."""
    return get_task(trajectory) == "explain"


def began_with_plan(trajectory: Trajectory) -> bool:
    """Returns True if the run started with a plan."""
    return trajectory.run_started is not None and trajectory.run_started.job.request.verb == "plan"


def get_proposed_plan(trajectory: Trajectory) -> ProposePlan | None:
    """Returns the plan that the run ended with; None if the run did not end with a plan."""
    return next(
        (
            action
            for action in _final_actions(trajectory, "input_required")
            if isinstance(action, ProposePlan)
        ),
        None,
    )


def get_answer(trajectory: Trajectory) -> str | None:
    """Returns the answer that the run ended with; None if the run did not end with an answer."""
    return next(
        (action.text for action in _final_actions(trajectory, "finished") if isinstance(action, Report)), None
    )


def _final_actions(trajectory: Trajectory, reason: StopReason) -> tuple[Action, ...]:
    """Returns the actions of the last reply if the run ended for `reason`. Otherwise, returns no actions."""
    ended = trajectory.agent_stopped
    last = trajectory.replies()[-1:] if ended and ended.reason == reason else ()
    return tuple(call.action for reply in last for call in reply.calls)


def get_options(
    trajectory: Trajectory, trigger_id: JobId | None = None, latest: RunOptions | None = None
) -> RunOptions:
    """Returns the options that people set for the run. Later requests override earlier ones.

    `latest` contains the options of the trigger `trigger_id`, which continues the run and may not be in the
    log yet.
    """
    options = trajectory.run_started.job.request.options if trajectory.run_started else RunOptions()
    for event in trajectory:
        if isinstance(event, Message) and event.trigger_id != trigger_id:
            options = event.options.override(options)
    return latest.override(options) if latest else options


def get_branch_template(trajectory: Trajectory) -> str:
    """Returns the repository's template for the name of the run's branch; the default if the log has no valid one."""
    repository = trajectory.run_configured.repository if trajectory.run_configured else {}
    try:
        return validate_template(str(repository.get("branch", DEFAULT_TEMPLATE)))
    except ValueError:  # In a workflow, the log comes from a job that is not trusted.
        return DEFAULT_TEMPLATE
