"""Decides whether a job may run, and whether it repeats an earlier request."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Literal

from patchwright.resolver.authorization import authorize
from patchwright.resolver.branch_names import make_branch_names
from patchwright.resolver.command_parser import Request, RunOptions
from patchwright.resolver.domain import Job, JobId, PullRequest, Rejected, Thread
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import JobCompleted, Message, Trajectory
from patchwright.resolver.forge import Forge, RepoFacts
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.pipeline.call_decisions import only_continues
from patchwright.resolver.pipeline.publish import post_comment
from patchwright.resolver.pipeline.resumption import find_run_to_resume, iter_runs, iter_started_runs
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.request import plan_texts
from patchwright.resolver.request.option_limits import check_options
from patchwright.resolver.review_threads import list_open_threads
from patchwright.resolver.run.repo_config import read_repo_config
from patchwright.resolver.run_limits import was_stopped
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.resolver.run_task import get_task, is_question
from patchwright.resolver.settings.settings import Settings

logger = logging.getLogger(__name__)

MAX_CLOCK_SKEW = timedelta(seconds=5)  # Maximum difference between GitHub's clock and this machine's clock.


async def check_admission(
    job: Job, thread: Thread, facts: RepoFacts, forge: Forge, logs: LogStore, settings: Settings
) -> Rejected | None:
    """Returns why the job must not run, or None if it may run.

    The requester's permission is looked up by numeric user ID. A label alone proves no write access, because
    people with triage permission can add labels, too.
    """
    if facts.archived or thread.locked:  # In this case, no reply can be posted.
        return Rejected(
            explanation=reply_texts.render_rejection_reason("archived" if facts.archived else "locked", job)
        )
    if not thread.open:
        return Rejected(explanation=_render_closed(job, thread))
    if job.label is not None and thread.labels is not None and not has_label(thread.labels, job.label):
        return Rejected(explanation=reply_texts.render_rejection_reason("unlabeled", job))
    if not await authorize(forge, job.repo, job.requester):
        explanation = reply_texts.render_rejection_reason(
            "permission", job, settings.label, is_workflow=settings.workflow_url is not None
        )
        return Rejected(explanation=explanation)
    # A job from the command line has no requester; its operator gets the error from the clone.
    if facts.empty and job.requester is not None:
        return Rejected(explanation=reply_texts.render_rejection_reason("empty", job))
    problem = _find_command_problem(job, thread, settings) or await _find_retry_problem(
        job, thread, forge, logs, settings
    )
    return Rejected(explanation=problem) if problem else None


def _render_closed(job: Job, thread: Thread) -> str:
    is_pull = isinstance(thread, PullRequest)
    return reply_texts.render_rejection_reason("closed_pull" if is_pull else "closed", job)


async def _find_retry_problem(
    job: Job, thread: Thread, forge: Forge, logs: LogStore, settings: Settings
) -> str | None:
    """Returns why `retry` has nothing to repeat on an issue, or None if it has. On a pull request, the open review
    threads are the request.
    """
    if job.request.verb != "retry" or isinstance(thread, PullRequest) or job.retry_of is not None:
        return None
    if await _find_retried_request(job, thread, forge, logs, settings):
        return None
    return _render_no_run(job, settings)


def _render_no_run(job: Job, settings: Settings) -> str:
    is_workflow, mention = settings.workflow_url is not None, settings.mention
    return reply_texts.render_rejection_reason(
        "no_run", job, settings.label, mention=mention, is_workflow=is_workflow
    )


def _find_command_problem(job: Job, thread: Thread, settings: Settings) -> str | None:
    """Returns why the command makes no sense in this thread, or None if it may run."""
    request = job.request
    if request.error:
        return plan_texts.render_invalid_command(request.error)
    if problem := check_options(request.options, settings):
        return problem
    if request.command.threads == "pull_requests" and not isinstance(thread, PullRequest):
        return reply_texts.render_rejection_reason("pull_only", job)
    if request.command.threads == "issues" and isinstance(thread, PullRequest):
        return reply_texts.render_rejection_reason("issue_only", job)
    is_empty_request = request.verb == "retry" or (request.verb == "work" and not request.text)
    if isinstance(thread, PullRequest) and is_empty_request and not list_open_threads(thread):
        return reply_texts.render_rejection_reason("nothing_asked", job)
    return None


async def find_early_rejection(
    job: Job, forge: Forge, logs: LogStore, settings: Settings, *, has_active_run: bool
) -> str | None:
    """Checks whether a command can be rejected before a worker takes the job. Returns the reason, or None if
    the command is not rejected yet.

    `has_active_run` is True if the thread has queued or running jobs. In that case, commands that need an
    earlier run are not rejected yet, because they refer to the run that ends last. Reads the thread, or the
    branch that the command names, only if the command depends on it. May raise ForgeError.
    """
    request, base = job.request, job.request.options.base
    if problem := check_options(request.options, settings):
        return problem
    if base:
        # A branch contains its own latest commit, so only a branch that does not exist lacks it.
        state = await forge.get_thread_state(job.repo, job.number, base, base)
        if state.is_open and not state.is_locked and not state.has_base:
            return render_reply("unknown_branch.md.j2", name=base).strip()
    # On an issue, a mention without text asks for work. On a pull request, it may ask for nothing.
    is_bare_mention = request.verb == "work" and not request.text and job.label is None
    depends_on_run = (request.command.needs_earlier_run or is_bare_mention) and not has_active_run
    if request.command.threads == "all" and not depends_on_run:
        return None
    thread = await forge.get_thread(job)
    if thread.locked:
        return None
    if not thread.open:
        return _render_closed(job, thread)
    if request.verb == "retry":
        retried = await _find_retried_request(job, thread, forge, logs, settings)
        if retried is None and not isinstance(thread, PullRequest):
            return _render_no_run(job, settings)
        job = _repeat_request(job, retried)
    if problem := _find_command_problem(job, thread, settings):
        return problem
    found = await find_run_to_resume(job, thread, Trajectory(), logs, settings)
    return found.explanation if isinstance(found, Rejected) else None


async def find_open_pull_request(
    job: Job, workspace: Workspace, forge: Forge, settings: Settings, title: str
) -> PullRequest | None:
    """Returns our open pull request for the issue with this title if a comment requests more work on the issue.

    A new run would start without that pull request, and open another one with the same change. A label, or a
    comment that names a base branch, starts such a run on purpose.
    """
    request = job.request
    # The command is still `retry` if the run to repeat was started by a label, or if its log is gone.
    is_comment = request.verb in ("work", "retry") and bool(job.command) and job.label is None
    if not is_comment or request.options.base:
        return None
    template = (await read_repo_config(workspace.config_source)).config.branch
    branch, _ = make_branch_names(template, settings.branch_prefix, job.number, title, job.id)
    pull = await forge.find_pull_request(job.repo, branch)
    return pull if pull and pull.trusted else None


def has_label(labels: Iterable[str], name: str) -> bool:
    """Returns True if the name is among the labels. Ignores letter case, as GitHub does."""
    return name.casefold() in map(str.casefold, labels)


async def reject_job(
    job: Job, explanation: str, facts: RepoFacts | None, forge: Forge, log: RunLog
) -> Rejected:
    """Posts the rejection once and completes the job. If the requester could not read the reply, the
    rejection is only logged.

    `facts` is None if the thread no longer exists or is not accessible.
    """
    comment_url = ""
    # If a call expired and somebody decided in the last moment, there is nobody to tell.
    if facts is not None and not job.expired_call and await _can_read_reply(job, facts, forge):
        comment_url = await post_comment(job, forge, reply_texts.render_rejection(explanation))
    if not comment_url:
        logger.warning("rejection not posted", extra={"job": job.id, "reason": explanation})
    await log.append(JobCompleted(outcome=(rejected := Rejected(explanation=explanation))))
    return rejected


async def _can_read_reply(job: Job, facts: RepoFacts, forge: Forge) -> bool:
    """Returns True if the requester can read a reply."""
    if job.requester is None or not facts.private:
        return True
    return await forge.get_permission(job.repo, job.requester) != "none"


async def expand_retry(
    job: Job, thread: Thread, trajectory: Trajectory, forge: Forge, logs: LogStore, settings: Settings
) -> Job:
    """Returns the job with its full command. The command `retry` is replaced with the request that it repeats. The
    work then starts again from the beginning.
    """
    if job.request.verb != "retry":
        return job
    if trajectory.run_started:
        return job.model_copy(update={"command": trajectory.run_started.job.command})
    return _repeat_request(job, await _find_retried_request(job, thread, forge, logs, settings))


def _repeat_request(job: Job, retried: Request | None) -> Job:
    if retried is None:
        return job
    options = job.request.options.override(retried.options).as_text
    return job.model_copy(update={"command": f"{options} {retried.text}".strip() or job.command})


async def _find_retried_request(
    job: Job, thread: Thread, forge: Forge, logs: LogStore, settings: Settings
) -> Request | None:
    """Returns the request that the command `retry` repeats, or None if there is none.

    The request of an earlier run is in the run's log. If the log is elsewhere, as in a workflow, the request is the
    last one of the thread that a run could work on.
    """
    if job.retry_of is not None:
        with contextlib.suppress(LogError):  # The log is on another machine or was removed.
            started = (await asyncio.to_thread(logs.read, job.retry_of)).run_started
            if started is not None and (started.job.number, started.job.repo) == (job.number, job.repo):
                return started.job.request
    # If the requester lost access during a run, the run was rejected in the end. Somebody else can repeat it.
    async for _, _, work in iter_started_runs(job, thread, logs):
        if work.run_started is not None:
            return work.run_started.job.request
    options = RunOptions()
    for command in reversed(await forge.list_commands(job, settings.label, settings.mention)):
        earlier = job.model_copy(update={"command": command})
        request = earlier.request
        if request.error or check_options(request.options, settings):
            continue
        if request.verb == "retry":
            options = options.override(request.options)
        elif _can_repeat(request) and _find_command_problem(earlier, thread, settings) is None:
            return request._replace(options=options.override(request.options))
    return None


def _can_repeat(request: Request) -> bool:
    """Returns True if the request starts a run of its own."""
    return request.command.starts_run and request.verb != "run-ci" and not only_continues(request)


async def find_duplicate(
    job: Job, thread: Thread, trajectory: Trajectory, logs: LogStore
) -> Literal["already_read", "already_done"] | None:
    """Returns how an earlier run has already handled this trigger. Returns None if no run has handled it."""
    if trajectory.entries or job.id in thread.reported_runs:
        return None
    if await _was_delivered_to_run(job, thread, logs):
        return "already_read"
    return "already_done" if await _was_covered(job, thread, logs) else None


async def _was_delivered_to_run(job: Job, thread: Thread, logs: LogStore) -> bool:
    """Returns True if a run of this thread got this trigger's comment as a message while the run was in
    progress.

    The queue also stores this fact. The logs are read because the queue may have been cleared.
    """
    if job.request.verb != "work" or not job.command:
        return False
    for run in thread.reported_runs:
        with contextlib.suppress(LogError):  # The log is on another machine or was removed.
            log = await asyncio.to_thread(logs.read, JobId(run))
            if any(isinstance(event, Message) and event.trigger_id == job.id for event in log):
                return True
    return False


async def _was_covered(job: Job, thread: Thread, logs: LogStore) -> bool:
    """Returns True if the latest run of the thread did the same work and was in progress when this request
    was made. See `Job.is_covered_by`.
    """
    if job.snapshot is None or isinstance(thread, PullRequest):
        return False
    async for _, last, work in iter_runs(job, thread, logs):
        if work.run_started and not is_question(work):
            is_covered = (
                job.is_covered_by(work.run_started.job) and get_task(work) == "work" and not was_stopped(work)
            )
            return is_covered and last.entries[-1].timestamp > job.snapshot.taken_at + MAX_CLOCK_SKEW
    return False
