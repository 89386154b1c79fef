"""Finds the earlier run that a job continues, and writes the message with which its agent goes on."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial

from patchwright.resolver.command_parser import Request, parse_request
from patchwright.resolver.domain import InputRequired, Job, JobId, Rejected, Reported, Thread
from patchwright.resolver.errors import ForgeError, LogError
from patchwright.resolver.events import JobCompleted, Message, Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.pipeline.call_decisions import (
    build_decision_message,
    only_continues,
    reject_decision,
)
from patchwright.resolver.prompts.initial_prompt import COMMENT_LIMIT
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_prompt, render_reply
from patchwright.resolver.request import plan_texts
from patchwright.resolver.run_calls import get_confirmation
from patchwright.resolver.run_limits import was_stopped
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.resolver.run_task import get_proposed_plan, get_task
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.text.untrusted import quote

logger = logging.getLogger(__name__)

NOTHING_TO_CONTINUE: dict[str, reply_texts.AdmissionProblem] = {
    "go": "no_plan", "resume": "not_stopped", "approve": "no_call", "reject": "no_call"
}  # fmt: skip


async def find_run_to_resume(
    job: Job, thread: Thread, trajectory: Trajectory, logs: LogStore, settings: Settings
) -> JobId | Rejected | None:
    """Returns the earlier run that this trigger continues, or None if the trigger starts a new run. The earlier
    run is the last run in the thread, if it waits for an answer or for the approval of its plan.

    The command `resume` also continues a run that was stopped. Returns Rejected in these cases:

    - The command approves a plan that is older than `plan_texts.PLAN_DAYS`.
    - The run waits for the approval of a call, and the command does not decide about this call.
    - The command is only `go`, `resume`, `approve` or `reject`, and there is no run to continue.
    """
    if trajectory.run_resumed:
        return trajectory.run_resumed.run
    request = job.request
    can_continue = request.verb in NOTHING_TO_CONTINUE or request.verb in ("plan", "work")
    if trajectory.run_started or not can_continue or not request.text:
        return None
    async for name, last, work in iter_runs(job, thread, logs):
        if not work.replies():
            continue  # It failed before the agent's first step, for example because of a wrong key.
        outcome = last.job_completed.outcome if last.job_completed else None
        waiting = get_confirmation(work) if isinstance(outcome, InputRequired) else None
        if waiting and request.verb != "plan":
            return reject_decision(job, waiting, work, settings.mention) or name
        if get_task(work) in ("explain", "setup") and request.verb != "resume":
            continue  # There may be other commands between a plan and its approval.
        if isinstance(outcome, InputRequired) and get_task(work) == "plan":
            if datetime.now(UTC) - last.entries[-1].timestamp <= timedelta(days=plan_texts.PLAN_DAYS):
                return name
            return (
                Rejected(explanation=reply_texts.render_rejection_reason("old_plan", job))
                if request.verb in ("go", "approve")
                else None
            )
        is_answer = isinstance(outcome, InputRequired) and request.verb != "plan"
        if is_answer or (request.verb == "resume" and was_stopped(work)):
            return name
        break
    if job.expired_call or only_continues(request):
        return Rejected(
            explanation=reply_texts.render_rejection_reason(
                NOTHING_TO_CONTINUE[request.verb],
                job,
                is_workflow=settings.workflow_url is not None,
            )
        )
    return None


async def iter_runs(
    job: Job, thread: Thread, logs: LogStore
) -> AsyncIterator[tuple[JobId, Trajectory, Trajectory]]:
    """Yields what `iter_started_runs` does, without the jobs that were rejected in the end."""
    async for name, last, work in iter_started_runs(job, thread, logs):
        if not (last.job_completed and isinstance(last.job_completed.outcome, Rejected)):
            yield name, last, work


async def iter_started_runs(
    job: Job, thread: Thread, logs: LogStore
) -> AsyncIterator[tuple[JobId, Trajectory, Trajectory]]:
    """Yields a tuple for each job that worked in the thread, latest first. The tuple contains the ID of the run,
    the log of the job, and the log of the run.

    Usually, the run is the job's own. If the job continued an earlier run, it is the earlier run.
    """
    for run in reversed(thread.reported_runs):
        try:
            last = await asyncio.to_thread(logs.read, JobId(run))
            # If the job resumed an earlier run, the log of the earlier run contains the work.
            name = last.run_resumed.run if last.run_resumed else JobId(run)
            work = await asyncio.to_thread(logs.read, name) if last.run_resumed else last
        except LogError:
            continue  # The log is on another machine or was removed.
        if work.run_started is None:
            continue  # A command without a run, or a queued job, such as this one: its comment is in the thread.
        if (work.run_started.job.number, work.run_started.job.repo) != (job.number, job.repo):
            return
        yield name, last, work


async def find_stopped_job(job: Job, run: JobId, thread: Thread, logs: LogStore) -> JobId | None:
    """Returns the latest job before this one that worked on the run, if the job was stopped. Its comment offers to
    continue the run.
    """
    for reported in map(JobId, reversed(thread.reported_runs)):
        if reported == job.id:
            continue
        try:
            last = await asyncio.to_thread(logs.read, reported)
        except LogError:
            continue
        if reported == run or (last.run_resumed and last.run_resumed.run == run):
            # After the run's own outcome, its log may contain the work that this job has done before a crash.
            completed = next(
                (event for event in reversed(list(last)) if isinstance(event, JobCompleted)), None
            )
            is_stopped = completed is None or isinstance(completed.outcome, Reported)
            return reported if is_stopped else None
    return None


async def replace_stopped_comment(forge: Forge, job: Job, stopped_job: str | None, url: str) -> None:
    """Links the result at `url` in the comment of the earlier job that worked on this run and was stopped. Otherwise,
    that comment would still offer to continue the run.
    """
    if stopped_job is None or stopped_job == job.id or not url:
        return
    try:
        if stopped_job in (await forge.get_thread(job)).reported_runs:
            text = render_reply("continued.md.j2", url=url)
            await forge.upsert_comment(job.repo, job.number, stopped_job, text)
    except ForgeError as exc:
        logger.warning("stopped comment not replaced", extra={"job": job.id, "error": str(exc)})


async def record_operator_resume(job: Job, log: RunLog, answer: str = "") -> None:
    """Logs the message of an operator who continues a run on the command line. The message contains the
    answer to the agent's question, if there is one. If the run was stopped, its limits count only the work
    after this message.

    Logs nothing if the agent has stopped but its patch must still be verified.
    """
    last = log.trajectory
    is_stopped = was_stopped(last) and (last.agent_stopped is None or last.verdict is not None)
    if (answer or is_stopped) and (
        message := build_resume_message(
            job, last, parse_request(answer) if get_confirmation(last) else Request("work", answer, answer)
        )
    ):
        await log.append(message)


def build_resume_message(job: Job, trajectory: Trajectory, request: Request) -> Message | None:
    """Returns the message with which the agent of an earlier run continues its work.

    Returns None if the agent has nothing more to do, even if the work must still be verified and published.
    """
    stopped = trajectory.agent_stopped
    author = job.requester.login if job.requester else ""
    make_message = partial(Message, author=author, trigger_id=job.id, options=request.options)
    if stopped and stopped.confirmation:
        return build_decision_message(job, request, stopped.confirmation)
    if stopped and stopped.reason == "input_required":
        if get_task(trajectory) == "plan" and request.verb in ("go", "approve"):
            comment = quote(request.remainder, COMMENT_LIMIT)
            text = render_prompt(
                "plan_approval.md.j2", requester=plan_texts.describe_requester(job), comment=comment
            )
            return make_message(text=text, source="comment", approves_plan=True)
        comment = quote((request.verb == "plan" and request.remainder) or request.text, COMMENT_LIMIT)
        if get_proposed_plan(trajectory):
            text = render_prompt(
                "plan_feedback.md.j2", requester=plan_texts.describe_requester(job), comment=comment
            )
        else:
            text = render_prompt("answer.md.j2", job=job, answer=comment)
        return make_message(text=text, source="comment")
    if not was_stopped(trajectory) or (stopped and stopped.reason == "finished"):
        return None
    stop_reason = stopped.detail if stopped else "The program was stopped before the work was complete."
    comment = quote(request.remainder if request.verb == "resume" else request.text, COMMENT_LIMIT)
    text = render_prompt("resume_message.md.j2", job=job, stop_reason=stop_reason, comment=comment)
    return make_message(text=text, source="resume")
