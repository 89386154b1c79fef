"""What people say to a run while it goes on: told to its agent before its next step.

A comment that asks for work waits in the queue like any other job, behind the run that its thread has now. When the
run's agent has read it, there is nothing left for it to do; when the run ends before that, it is begun as a job of
its own. So it is told once, whoever dies meanwhile. What asks for just that run, such as a label behind a mention, is
answered by it, too.
"""

import asyncio
import logging

from bot.errors import QueueDown
from bot.jobs import Answered, Queue, Record
from bot.pacing import Urgency, writing
from resolver import prose
from resolver.brief import COMMENT_LIMIT
from resolver.deliver import tell
from resolver.domain import Issue, Job, Refused
from resolver.errors import ForgeError
from resolver.events import Told, Trajectory
from resolver.forge import MAY_TRIGGER, Forge, Permission
from resolver.request.planning import task
from resolver.request.request import Options, Verb
from resolver.words.quotation import quote

log = logging.getLogger(__name__)

WORK: tuple[Verb, ...] = ("work", "go", "retry", "resume")
PATIENCE = 10.0  # seconds that an agent waits; what was not read then is read before a later step


class Mail:
    """Messages to the runs of a queue."""

    def __init__(self, queue: Queue, forge: Forge) -> None:
        self._queue = queue
        self._forge = forge

    async def news(self, job: Job, trajectory: Trajectory) -> tuple[Told, ...]:
        """What was said to this job since it was begun and is not in its log, the oldest first; never raises."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._read(job, trajectory)
        except (QueueDown, ForgeError, TimeoutError) as exc:
            log.warning("messages not read", extra={"job": job.id, "reason": str(exc)})
            return ()

    async def _read(self, job: Job, trajectory: Trajectory) -> tuple[Told, ...]:
        told = {event.by for event in trajectory if isinstance(event, Told) and event.by}
        on_issue = trajectory.started is not None and isinstance(trajectory.started.thread, Issue)
        does, news = on_issue and task(trajectory) == "work", list[Told]()
        for record in await self._queue.open(job.repo, job.number):
            said = record.job
            done = does and record.tries == 0 and said.is_done_by(job)
            if said.id == job.id or not (done or is_message(record, job)):
                continue
            known = said.id in told
            if not known and (permission := await self._permission(said)) not in MAY_TRIGGER:
                await self._refuse(said, permission)
            elif not await self._queue.is_wanted(job.id):
                return ()  # what is said behind a stop is for the next run
            elif known or done:
                await self._queue.settle(said, Answered(run=job.id))
            else:
                text = prose.message(said, quote(said.command, COMMENT_LIMIT))
                news.append(Told(text=text, source="comment", by=said.id))
        return tuple(news)

    async def _refuse(self, said: Job, permission: Permission) -> None:
        refusal = prose.refusal("permission", said)
        if permission != "none":  # else they cannot see it
            with writing(Urgency.ACKNOWLEDGEMENT):
                await tell(said, self._forge, prose.refused(refusal))
        await self._queue.settle(said, Refused(explanation=refusal))

    async def _permission(self, said: Job) -> Permission:
        if said.requester is None:  # the operator
            return "admin"
        return await self._forge.permission(said.repo, said.requester)


def has_heard(run: Job, record: Record) -> bool:
    """Whether a job that was not begun yet is for this run of its thread, unless that ends before it has read it."""
    does = run.asked.verb in WORK and record.job.is_done_by(run)
    return is_message(record, run) or (record.tries == 0 and does)


def is_message(record: Record, run: Job) -> bool:
    """Whether a job that was not begun yet is words to the run that is at work.

    No command, which is for later; no options, which are for a run of its own; no review, which has threads to answer.
    Nothing is for a run that only explains: it could not do what they ask.
    """
    job, asked = record.job, record.job.asked
    if run.asked.verb == "explain":
        return False
    says = asked.verb == "work" and bool(asked.text) and asked.options == Options() and not asked.unclear
    return record.tries == 0 and says and job.review is None and job.inline is None
