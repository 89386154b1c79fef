"""What the one comment of a run says until the run ends."""

from resolver.domain import JobId
from resolver.events import Trajectory
from resolver.prose import reply
from resolver.settings.settings import Settings
from resolver.summary import summarize
from resolver.words.doing import doing


def progress(job: JobId, trajectory: Trajectory, settings: Settings) -> str:
    """How far the run is that works on this job, and how to stop it; its first sentence is that of `prose.working`."""
    begun = trajectory.started
    return reply(
        "progress.md.j2",
        story=summarize(trajectory) if begun and trajectory.decisions() else None,
        checks=begun.job.checks if begun else "",
        now=doing(trajectory),
        mention=settings.mention,
        workflow=settings.workflow_url,
        page=settings.page_of(begun.job.id if begun else job),
    )
