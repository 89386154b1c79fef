"""Resolves a job on an issue, from the trigger to the outcome. `publish.py` publishes the result."""

from dataclasses import replace
from pathlib import Path

from patchwright.resolver import run_task
from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.domain import Job, JobId, Outcome, Patch, PullRequest, Rejected, Thread
from patchwright.resolver.errors import BranchNotFound, NotFound, SettingsError, UnknownName, UsageError
from patchwright.resolver.events import JobCompleted, Message, Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.git.local_repository import commit_uncommitted_changes
from patchwright.resolver.pipeline.admission import (
    check_admission,
    expand_retry,
    find_duplicate,
    find_open_pull_request,
    reject_job,
)
from patchwright.resolver.pipeline.agent_choice import choose_agent
from patchwright.resolver.pipeline.attempt import AgentTask, attempt_patch
from patchwright.resolver.pipeline.base_branch import clone_at_base
from patchwright.resolver.pipeline.call_decisions import DECISION_VERBS
from patchwright.resolver.pipeline.ci_repair import repair_failed_checks
from patchwright.resolver.pipeline.onboarding import propose_config
from patchwright.resolver.pipeline.publish import Attempt, publish_attempt
from patchwright.resolver.pipeline.resolve_pull_request import resolve_pull_request
from patchwright.resolver.pipeline.resumption import (
    build_resume_message,
    find_run_to_resume,
    find_stopped_job,
    record_operator_resume,
    replace_stopped_comment,
)
from patchwright.resolver.pipeline.run_ci import run_ci
from patchwright.resolver.pipeline.run_start import build_run_started
from patchwright.resolver.preparation.attachments import NO_ATTACHMENTS, ThreadAttachments, fetch_attachments
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.request.option_limits import apply_options
from patchwright.resolver.run.dependencies import ProgressReporter, Run, RunDependencies
from patchwright.resolver.run.repo_config import format_problems, read_repo_config, report_problems
from patchwright.resolver.run_calls import get_confirmation
from patchwright.resolver.run_events import RunResumed
from patchwright.resolver.run_limits import is_complete
from patchwright.resolver.run_log import RunLog

OPEN_PULL_REQUEST = (
    "Pull request #{number} for this issue is open, so I did not work on this request. To have the pull "
    "request changed, comment `{mention}` and your request on the pull request. To start over, close it and ask "
    "me again."
)


async def resolve_job(job: Job, deps: RunDependencies, forge: Forge, reporter: ProgressReporter) -> Outcome:
    """Works on a job until there is a pull request or a comment. If the job was started before, it resumes
    from its log.

    Raises ResolverError or SandboxError on failures. After a failure, the log is kept, and no outcome is
    logged for unfinished work.
    """
    async with deps.logs.open(job.id, deps.listeners) as log:
        if completed := log.trajectory.job_completed:
            return completed.outcome
        started = log.trajectory.run_started
        try:
            thread = started.thread if started else await forge.get_thread(job)
            job = await expand_retry(job, thread, log.trajectory, forge, deps.logs, deps.settings)
        except NotFound:
            if job.requester is None:
                raise  # The operator started the job and sees the reason in the terminal.
            await forge.get_repo_facts(job.repo)  # Raises NotFound if the whole repository is unreachable.
            return await reject_job(job, reply_texts.render_rejection_reason("gone", job), None, forge, log)
        facts = await forge.get_repo_facts(job.repo)
        run = Run(job, thread, facts, log, deps, forge, reporter)
        try:
            return await (repair_failed_checks(run) if job.failed_checks_commit else _admit(run))
        except UnknownName as exc:
            return await reject_job(job, str(exc), facts, forge, log)


async def _admit(run: Run) -> Outcome:
    """Rejects the job, or works on what its command asks for. Can be repeated: it only reads."""
    job, thread, log = run.job, run.thread, run.log
    deps = run.deps
    if rejection := await check_admission(job, thread, run.facts, run.forge, deps.logs, deps.settings):
        return await reject_job(job, rejection.explanation, run.facts, run.forge, log)
    if duplicate := await find_duplicate(job, thread, log.trajectory, run.deps.logs):
        return await _complete(log, Rejected(explanation=reply_texts.render_rejection_reason(duplicate, job)))
    if job.request.verb == "setup":
        return await propose_config(run)
    if job.request.verb == "run-ci" and isinstance(thread, PullRequest):
        return await _complete(log, await run_ci(job, thread, run.facts, run.deps, run.forge))
    to_resume = await find_run_to_resume(job, thread, log.trajectory, run.deps.logs, run.deps.settings)
    if isinstance(to_resume, Rejected):
        return await reject_job(job, to_resume.explanation, run.facts, run.forge, log)
    if to_resume is not None and job.request.options.agent:
        explanation = reply_texts.render_rejection_reason("other_agent", job)
        return await reject_job(job, explanation, run.facts, run.forge, log)
    if to_resume is not None:
        return await _continue_run(run, to_resume)
    try:
        return await _work(_with_options(run))
    except BranchNotFound as exc:
        explanation = render_reply("unknown_branch.md.j2", name=exc.branch).strip()
        return await reject_job(job, explanation, run.facts, run.forge, log)


def _with_options(run: Run) -> Run:
    """Returns the run with the options of its command, such as another model."""
    options = run_task.get_options(run.log.trajectory, run.job.id, run.job.request.options)
    return replace(run, deps=apply_options(run.deps, options))


async def _complete(log: RunLog, outcome: Outcome) -> Outcome:
    await log.append(JobCompleted(outcome=outcome))
    return outcome


async def _work(run: Run) -> Outcome:
    """Works on an admitted job and publishes the result. Can be repeated: each step reads in the log or on the forge
    what is done already.
    """
    if isinstance(run.thread, PullRequest):
        return await resolve_pull_request(run)
    job, log, deps, forge = run.job, run.log, run.deps, run.forge
    async with run.reporter(job, log):
        credentials = await forge.get_credentials(job.repo)
        deps.secrets.add(credentials.token)
        async with clone_at_base(
            job, run.thread, log.trajectory, run.facts, deps.workspaces, credentials
        ) as workspace:
            if log.trajectory.run_started is None:
                if pull := await find_open_pull_request(
                    job, workspace, forge, deps.settings, run.thread.title
                ):
                    explanation = OPEN_PULL_REQUEST.format(number=pull.number, mention=deps.settings.mention)
                    return await reject_job(job, explanation, run.facts, forge, log)
                branch = workspace.base_branch or run.facts.default_branch
                agent = await choose_agent(job, workspace, deps)
                await log.append(
                    build_run_started(job, run.thread, workspace, run.facts.clone_url, branch, deps, agent)
                )
            assert log.trajectory.run_started is not None
            await report_problems(job, workspace, forge)
            attachments = await fetch_attachments(log.trajectory.run_started.thread, job.repo, forge)
            attempt = await attempt_patch(AgentTask(job, workspace, log, deps, attachments))
            outcome = await publish_attempt(run, workspace, attempt)
    return await _complete(log, outcome)


async def _continue_run(run: Run, run_to_resume: JobId) -> Outcome:
    """Continues an earlier run that asked a question or was stopped. The work is recorded in the log of the
    earlier run. Each trigger continues the run only once.
    """
    job = run.job
    if run.log.trajectory.run_resumed is None:
        await run.log.append(RunResumed(run=run_to_resume))
    stopped_job = await find_stopped_job(job, run_to_resume, run.thread, run.deps.logs)
    async with run.deps.logs.open(run_to_resume, run.deps.listeners) as log:
        resumed = _with_options(replace(run, log=log))
        is_delivered = any(
            isinstance(event, Message) and event.trigger_id == job.id for event in log.trajectory
        )
        message = None if is_delivered else build_resume_message(job, log.trajectory, job.request)
        if message is None and (completed := log.trajectory.job_completed):
            outcome = completed.outcome
        else:
            if message is not None:
                await log.append(message)
            outcome = await _work(resumed)
    await replace_stopped_comment(run.forge, job, stopped_job, getattr(outcome, "url", ""))
    return await _complete(run.log, outcome)


async def resolve_local(
    job: Job,
    thread: Thread,
    path: Path,
    deps: RunDependencies,
    answer: str = "",
    uncommitted_changes: Patch | None = None,
    attachments: ThreadAttachments = NO_ATTACHMENTS,
) -> tuple[Attempt, Trajectory]:
    """Works on a repository on this disk, without a forge. Returns the verified attempt and the log of the
    run.

    `answer` is a person's answer to the question with which the run ended. Raises UsageError if there is an
    answer but the run asked no question. A new run starts from HEAD with the `uncommitted_changes`.
    """
    async with deps.logs.open(job.id, deps.listeners) as log:
        if answer and ((stop := log.trajectory.agent_stopped) is None or stop.reason != "input_required"):
            advice = "it is complete" if is_complete(log.trajectory) else "continue it without --answer"
            raise UsageError(f"run {job.id} is not waiting for an answer: {advice}")
        is_decision = parse_request(answer).verb in DECISION_VERBS
        if answer and get_confirmation(log.trajectory) and not is_decision:
            raise UsageError(f'a call of run {job.id} waits for approval: answer "approve" or "reject"')
        await record_operator_resume(job, log, answer)
        started, ref = log.trajectory.run_started, "HEAD"
        if started is not None:
            uncommitted_changes = started.uncommitted_changes
            ref = uncommitted_changes.base_sha if uncommitted_changes else started.base_sha
        async with deps.workspaces.local(path, ref) as workspace:
            if uncommitted_changes:
                workspace = await commit_uncommitted_changes(workspace, uncommitted_changes)
            # Unlike a user on the forge, the person who reads this error can change the file.
            if problems := (await read_repo_config(workspace)).problems:
                raise SettingsError(format_problems(problems))
            if started is None:
                branch = workspace.base_branch or "HEAD"
                agent = await choose_agent(job, workspace, deps)
                started = build_run_started(job, thread, workspace, str(path), branch, deps, agent)
                await log.append(started.model_copy(update={"uncommitted_changes": uncommitted_changes}))
            task = AgentTask(job, workspace, log, deps, attachments)
            return await attempt_patch(task), log.trajectory
