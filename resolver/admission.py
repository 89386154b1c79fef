"""What a job has to pass before it is worked on: who may ask, for what; and whether it answers an earlier run."""

import asyncio

from resolver import prose
from resolver.domain import Asked, Issue, Job, JobId, PullRequest, Refused, Thread
from resolver.errors import LogError
from resolver.events import Trajectory
from resolver.forge import MAY_TRIGGER, Forge
from resolver.log import Logs


async def admit(job: Job, thread: Thread, forge: Forge) -> Refused | None:
    """Why this job is not done, if it is not.

    The requester's permission is asked of the forge by numeric id: a label proves no more than triage rights.
    """
    if isinstance(thread, PullRequest):
        return Refused(explanation=prose.refusal("pull_request", job))
    if not thread.open:
        return Refused(explanation=prose.refusal("closed", job))
    if job.requester is not None and await forge.permission(job.repo, job.requester) not in MAY_TRIGGER:
        return Refused(explanation=prose.refusal("permission", job))
    return None


async def waiting(job: Job, thread: Thread, trajectory: Trajectory, logs: Logs) -> JobId | None:
    """The run that waits for what this trigger says: the last one that reported in the thread, if it asked."""
    if trajectory.resumed:
        return trajectory.resumed.run
    if trajectory.started or not job.command or not isinstance(thread, Issue):
        return None
    for run in reversed(thread.reports):
        try:
            last = await asyncio.to_thread(logs.read, JobId(run))
            asked = last.resumed.run if last.resumed else JobId(run)  # an answer, behind which it asked again
            work = await asyncio.to_thread(logs.read, asked) if last.resumed else last
        except LogError:
            continue  # of another machine, or removed
        outcome = last.settled.outcome if last.settled else None
        if isinstance(outcome, Refused):
            continue
        same = (
            work.started is not None
            and work.started.job.number == job.number
            and work.started.job.repo == job.repo
        )
        return asked if same and isinstance(outcome, Asked) else None
    return None
