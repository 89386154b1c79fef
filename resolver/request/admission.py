"""What a job has to pass before it is worked on: who may ask, for what; and whether it answers an earlier run."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from resolver import prose, salvage_prose
from resolver.brief import COMMENT_LIMIT
from resolver.deliver import tell
from resolver.domain import Asked, Job, JobId, PullRequest, Refused, Thread
from resolver.errors import LogError
from resolver.events import Settled, Told, Trajectory
from resolver.forge import Forge, RepoFacts, may_trigger
from resolver.log import Log, Logs
from resolver.pull.threads import open_threads
from resolver.request import planning_prose
from resolver.request.allowance import refused_options
from resolver.request.planning import is_question, proposed, task
from resolver.request.request import Request
from resolver.rules import was_stopped
from resolver.settings.settings import Settings
from resolver.words.quotation import quote

logger = logging.getLogger(__name__)

CLOCKS = timedelta(seconds=5)  # the forge's and ours are so far apart, at most


async def admit(
    job: Job, thread: Thread, facts: RepoFacts, forge: Forge, settings: Settings
) -> Refused | None:
    """Why this job is not done, if it is not.

    The requester's permission is asked of the forge by numeric id: a label proves no more than triage rights.
    """
    is_pull = isinstance(thread, PullRequest)
    if facts.archived or thread.locked:  # nothing that we say would get there
        return Refused(explanation=prose.refusal("archived" if facts.archived else "locked", job))
    if not thread.open:
        return Refused(explanation=prose.refusal("closed_pull" if is_pull else "closed", job))
    if not await may_trigger(job, forge):
        return Refused(explanation=prose.refusal("permission", job))
    if facts.empty and job.requester is not None:  # the operator hears it from the clone
        return Refused(explanation=prose.refusal("empty", job))
    asked = job.asked
    if asked.unclear:
        return Refused(explanation=planning_prose.unclear(asked.unclear))
    if wrong := refused_options(asked.options, settings):
        return Refused(explanation=wrong)
    if asked.verb in ("rebase", "run-ci") and not isinstance(thread, PullRequest):
        return Refused(explanation=prose.refusal("pull_only", job))
    says_nothing = asked.verb == "retry" or (asked.verb == "work" and not asked.text)
    if isinstance(thread, PullRequest) and says_nothing and not open_threads(thread):
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


async def meant(job: Job, thread: Thread, trajectory: Trajectory, logs: Logs) -> Job:
    """The job with all that is asked for: `retry` asks for what an earlier run was asked there, from scratch."""
    if job.asked.verb != "retry":
        return job
    if trajectory.started:
        return job.model_copy(update={"command": trajectory.started.job.command})
    before = await _before(job, thread, logs)
    if before is None:
        return job
    chosen = job.asked.options.over(before.options).written
    return job.model_copy(update={"command": f"{chosen} {before.text}".strip() or job.command})


async def _before(job: Job, thread: Thread, logs: Logs) -> Request | None:
    """What the run was asked that a `retry` means."""
    if job.again is not None:
        with contextlib.suppress(LogError):  # of another machine, or removed
            named = (await asyncio.to_thread(logs.read, job.again)).started
            if named is not None and (named.job.number, named.job.repo) == (job.number, job.repo):
                return named.job.asked
    async for _, _, work in _runs(job, thread, logs):
        if work.started is not None:
            return work.started.job.asked
    return None


async def waiting(
    job: Job, thread: Thread, trajectory: Trajectory, logs: Logs, days: float
) -> JobId | Refused | None:
    """The run that goes on with what this trigger says: the last one that reported in the thread, if it asked.

    Or if it was stopped, and the trigger says `resume`. A plan waits for so many days. Refused: `go` or `resume` was
    all that was said, and there is nothing that it can mean. None: the trigger asks for work of its own.
    """
    if trajectory.resumed:
        return trajectory.resumed.run
    asked = job.asked
    if trajectory.started or asked.verb not in ("go", "resume", "plan", "work") or not asked.text:
        return None
    async for name, last, work in _runs(job, thread, logs):
        if is_question(work) and asked.verb != "resume":
            continue  # it stands between a plan and its go
        outcome = last.settled.outcome if last.settled else None
        if isinstance(outcome, Asked) and task(work) == "plan":
            if datetime.now(UTC) - last.entries[-1].at <= timedelta(days=days):
                return name
            return Refused(explanation=prose.refusal("old_plan", job)) if asked.verb == "go" else None
        answers = isinstance(outcome, Asked) and asked.verb != "plan"
        if answers or (asked.verb == "resume" and was_stopped(work)):
            return name
        break
    if asked.verb in ("go", "resume") and not asked.words:
        return Refused(explanation=prose.refusal("no_plan" if asked.verb == "go" else "not_stopped", job))
    return None


async def _runs(job: Job, thread: Thread, logs: Logs) -> AsyncIterator[tuple[JobId, Trajectory, Trajectory]]:
    """The runs that worked in the thread, the last one first: its name, the log of who had it go on last, its own."""
    for run in reversed(thread.reports):
        try:
            last = await asyncio.to_thread(logs.read, JobId(run))
            name = last.resumed.run if last.resumed else JobId(run)  # an answer, behind which it asked again
            work = await asyncio.to_thread(logs.read, name) if last.resumed else last
        except LogError:
            continue  # of another machine, or removed
        if last.settled and isinstance(last.settled.outcome, Refused):
            continue
        if work.started and (work.started.job.number, work.started.job.repo) != (job.number, job.repo):
            return
        yield name, last, work


async def dealt_with(
    job: Job, thread: Thread, trajectory: Trajectory, logs: Logs
) -> Literal["told", "done"] | None:
    """How another run has dealt with what this trigger asks for, so that nothing is left to do; None: none has."""
    if trajectory.entries or job.id in thread.reports:
        return None
    if await _was_told(job, thread, logs):
        return "told"
    return "done" if await _was_done(job, thread, logs) else None


async def _was_told(job: Job, thread: Thread, logs: Logs) -> bool:
    """Whether a run of this thread has read this trigger's words while it was at work, so that nothing is left to do.

    The queue knows it too; where that was wiped, only the runs do.
    """
    if job.asked.verb != "work" or not job.command:
        return False
    for run in thread.reports:
        with contextlib.suppress(LogError):  # of another machine, or removed
            read = await asyncio.to_thread(logs.read, JobId(run))
            if any(isinstance(event, Told) and event.by == job.id for event in read):
                return True
    return False


async def _was_done(job: Job, thread: Thread, logs: Logs) -> bool:
    """Whether a run that was at work on this issue when this was asked for has done it: see `Job.is_done_by`."""
    if job.pinned is None or isinstance(thread, PullRequest):
        return False
    async for _, last, work in _runs(job, thread, logs):
        if work.started and not is_question(work):
            does = job.is_done_by(work.started.job) and task(work) == "work" and not was_stopped(work)
            return does and last.entries[-1].at > job.pinned.at + CLOCKS
    return False


def going_on(job: Job, trajectory: Trajectory, asked: Request) -> Told | None:
    """What the agent of an earlier run is told when somebody has it go on.

    None: it has nothing more to do; proof and delivery may be left, or nothing.
    """
    ended = trajectory.ended
    told = partial(Told, by=job.id, options=asked.options)
    if ended and ended.reason == "asked":
        if task(trajectory) == "plan" and asked.verb == "go":
            words = quote(asked.words, COMMENT_LIMIT)
            return told(text=planning_prose.go(job, words), source="comment", approves=True)
        words = quote((asked.verb == "plan" and asked.words) or asked.text, COMMENT_LIMIT)
        answer = planning_prose.plan_answered if proposed(trajectory) else prose.answer
        return told(text=answer(job, words), source="comment")
    if not was_stopped(trajectory) or (ended and ended.reason == "finished"):
        return None
    stopped = ended.detail if ended else "The program could not go on then."
    more = quote(asked.words if asked.verb == "resume" else asked.text, COMMENT_LIMIT)
    return told(text=salvage_prose.resumed_by(job, stopped, more), source="resume")
