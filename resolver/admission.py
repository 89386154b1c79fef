"""What a job has to pass before it is worked on: who may ask, for what; and whether it answers an earlier run."""

import asyncio
import contextlib
import logging
import re

from resolver import prose, salvage_prose
from resolver.brief import COMMENT_LIMIT
from resolver.deliver import tell
from resolver.domain import Asked, Job, JobId, PullRequest, Refused, Thread
from resolver.errors import LogError
from resolver.events import Settled, Told, Trajectory
from resolver.forge import MAY_TRIGGER, Forge, RepoFacts
from resolver.log import Log, Logs
from resolver.quotation import quote
from resolver.rules import was_stopped
from resolver.threads import open_threads

logger = logging.getLogger(__name__)

RESUME = re.compile(r"\s*resume\b[\s:,.!]*", re.IGNORECASE)
"""How a comment begins that has a stopped run go on."""


async def admit(job: Job, thread: Thread, facts: RepoFacts, forge: Forge) -> Refused | None:
    """Why this job is not done, if it is not.

    The requester's permission is asked of the forge by numeric id: a label proves no more than triage rights.
    """
    is_pull = isinstance(thread, PullRequest)
    if facts.archived or thread.locked:  # nothing that we say would get there
        return Refused(explanation=prose.refusal("archived" if facts.archived else "locked", job))
    if not thread.open:
        return Refused(explanation=prose.refusal("closed_pull" if is_pull else "closed", job))
    if job.requester is not None and await forge.permission(job.repo, job.requester) not in MAY_TRIGGER:
        return Refused(explanation=prose.refusal("permission", job))
    if facts.empty and job.requester is not None:  # the operator hears it from the clone
        return Refused(explanation=prose.refusal("empty", job))
    if isinstance(thread, PullRequest) and not job.command and not open_threads(thread):
        return Refused(explanation=prose.refusal("nothing_asked", job))
    return None


async def refuse(job: Job, explanation: str, facts: RepoFacts | None, forge: Forge, log: Log) -> Refused:
    """Answer a trigger that is not worked on, once, and end its run; where nobody could read that, it is logged alone.

    `facts` None: there is no thread any more, or none that we may see.
    """
    said = ""
    if facts is not None and await _sees(job, facts, forge):
        said = await tell(job, forge, prose.refused(explanation))
    if not said:
        logger.warning("refused without a word", extra={"job": job.id, "reason": explanation})
    await log.append(Settled(outcome=(refused := Refused(explanation=explanation))))
    return refused


async def _sees(job: Job, facts: RepoFacts, forge: Forge) -> bool:
    """Whether whoever asked can read an answer."""
    if job.requester is None or not facts.private:
        return True
    return await forge.permission(job.repo, job.requester) != "none"


async def waiting(job: Job, thread: Thread, trajectory: Trajectory, logs: Logs) -> JobId | None:
    """The run that goes on with what this trigger says: the last one that reported in the thread, if it asked.

    Or if it was stopped, and the trigger says `resume`.
    """
    if trajectory.resumed:
        return trajectory.resumed.run
    if trajectory.started or not job.command:
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
        goes_on = isinstance(outcome, Asked) or (RESUME.match(job.command) and was_stopped(work))
        return asked if same and goes_on else None
    return None


async def was_told(job: Job, thread: Thread, trajectory: Trajectory, logs: Logs) -> bool:
    """Whether a run of this thread has read this trigger's words while it was at work, so that nothing is left to do.

    The queue knows it too; where that was wiped, only the runs do.
    """
    if trajectory.entries or not job.command or job.id in thread.reports:
        return False
    for run in thread.reports:
        with contextlib.suppress(LogError):  # of another machine, or removed
            read = await asyncio.to_thread(logs.read, JobId(run))
            if any(isinstance(event, Told) and event.by == job.id for event in read):
                return True
    return False


def going_on(job: Job, trajectory: Trajectory, words: str) -> Told | None:
    """What the agent of an earlier run is told when somebody has it go on.

    None: it has nothing more to do; proof and delivery may be left, or nothing.
    """
    ended = trajectory.ended
    if ended and ended.reason == "asked":
        return Told(text=prose.answer(job, quote(words, COMMENT_LIMIT)), source="comment", by=job.id)
    if not was_stopped(trajectory) or (ended and ended.reason == "finished"):
        return None
    stopped = ended.detail if ended else "The program could not go on then."
    more = quote(RESUME.sub("", words, count=1), COMMENT_LIMIT)
    return Told(text=salvage_prose.resumed_by(job, stopped, more), source="resume", by=job.id)
