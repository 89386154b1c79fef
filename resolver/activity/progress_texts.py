"""Renders the status comment of a run in progress."""

from patchwright.resolver.activity.activity import Activity, get_activity
from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import JobId
from patchwright.resolver.events import Trajectory
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.settings.settings import Settings


def render_progress(
    job: JobId, trajectory: Trajectory, settings: Settings, activity: Activity | None = None
) -> str:
    """Renders the progress of a run and how to stop it. The text starts with the same sentence as the text of
    `render_working`. `activity` is shown instead of the activity that the log implies.
    """
    run_started = trajectory.run_started
    return render_reply(
        "progress.md.j2",
        summary=summarize_run(trajectory) if run_started and trajectory.replies() else None,
        failed_checks_commit=run_started.job.failed_checks_commit if run_started else "",
        activity=activity or get_activity(trajectory),
        mention=settings.mention,
        workflow_url=settings.workflow_url,
        run_url=settings.run_url(run_started.job.id if run_started else job),
    )
