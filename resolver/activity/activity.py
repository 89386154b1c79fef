"""Describes what a run is doing now, from its log, and renders the status comment of a run in progress."""

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import JobId
from patchwright.resolver.events import SystemPrompt, Trajectory
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run_task import get_task
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.frozen_model import FrozenModel


class Activity(FrozenModel):
    """A description of the current step."""

    verb: str
    """What the run is doing, for example "running". `target` completes the sentence."""
    target: str = ""
    """The command, path or question from the model. It is shown as code after the verb."""


def get_activity(trajectory: Trajectory) -> Activity:
    """Returns a description of what the run is doing now, according to the events in its log."""
    if trajectory.run_started is None:
        return Activity(verb="fetching the repository")
    if trajectory.agent_stopped is not None:
        is_done = trajectory.verdict is not None or get_task(trajectory) != "work"
        return Activity(verb="publishing the result" if is_done else "running the tests with the change")
    if calls := trajectory.pending_calls():
        call = calls[0].action.describe()
        more = f" (and {len(calls) - 1} more in parallel)" if len(calls) > 1 else ""
        return Activity(verb=f"{call.verb}{more}", target=call.target or call.code)
    if trajectory.replies():
        return Activity(verb="thinking about the last result")
    if any(isinstance(event, SystemPrompt) for event in trajectory):
        return Activity(verb="waiting for the model's first reply")
    is_configured = trajectory.run_configured is not None
    return Activity(
        verb="setting up the sandbox and reading the issue" if is_configured else "fetching the repository"
    )


def render_progress(
    job: JobId,
    trajectory: Trajectory,
    settings: Settings,
    activity: Activity | None = None,
    *,
    on_command_line: bool = False,
) -> str:
    """Renders the progress of a run and how to stop it. `activity` is shown instead of the activity that the log
    implies. `on_command_line` is True if an operator continues the run there.
    """
    run_started = trajectory.run_started
    return render_reply(
        "progress.md.j2",
        summary=summarize_run(trajectory) if run_started and trajectory.replies() else None,
        is_resumed=run_started is not None and run_started.job.id != job,
        on_command_line=on_command_line,
        failed_checks_commit=run_started.job.failed_checks_commit if run_started else "",
        activity=activity or get_activity(trajectory),
        mention=settings.mention,
        workflow_url=settings.workflow_url,
        run_url=settings.run_url(run_started.job.id if run_started else job),
    )
