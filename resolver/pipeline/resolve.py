"""Resolves a job on an issue, from the trigger to the outcome. `publish.py` publishes the result."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from patchwright.resolver import run_task
from patchwright.resolver.activity.finish_checks import find_missing_steps
from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.delegation.delegate_tool import MAX_REPORT
from patchwright.resolver.domain import (
    Job,
    Outcome,
    Patch,
    PullRequest,
    Rejected,
    TestRun,
    Thread,
    Verdict,
)
from patchwright.resolver.errors import BranchNotFound, NotFound, SettingsError, UsageError
from patchwright.resolver.events import AgentStopped, JobCompleted, Message, RunResumed, Trajectory
from patchwright.resolver.forge import Forge, RepoFacts
from patchwright.resolver.git.local_repository import commit_uncommitted_changes
from patchwright.resolver.git.merge import MergeResult
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.llm.model_check import check_endpoint
from patchwright.resolver.pipeline.admission import (
    build_resume_message,
    check_admission,
    expand_retry,
    find_duplicate,
    find_open_pull_request,
    find_run_to_resume,
    record_operator_resume,
    reject_job,
)
from patchwright.resolver.pipeline.agent_setup import build_agent
from patchwright.resolver.pipeline.base_branch import clone_at_base
from patchwright.resolver.pipeline.ci_repair import repair_failed_checks
from patchwright.resolver.pipeline.onboarding import propose_config
from patchwright.resolver.pipeline.publish import Attempt, publish_attempt
from patchwright.resolver.pipeline.resolve_pull_request import resolve_pull_request
from patchwright.resolver.pipeline.run_ci import run_ci
from patchwright.resolver.pipeline.run_start import (
    build_run_started,
    compose_initial_message,
    mask_visits,
    prepare_environment,
)
from patchwright.resolver.preparation.attachments import (
    NO_ATTACHMENTS,
    ThreadAttachments,
    fetch_attachments,
    write_attachments,
)
from patchwright.resolver.preparation.instructions import select_instructions
from patchwright.resolver.prompts import prompt_texts
from patchwright.resolver.proof.baseline import BaselineCache, BaselineRuns, run_alongside
from patchwright.resolver.proof.merge_verification import verify_merge
from patchwright.resolver.proof.repair_loop import verify_or_continue
from patchwright.resolver.proof.verification import verify_patch
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.pull_request.pr_context import PullRequestContext
from patchwright.resolver.request import plan_texts
from patchwright.resolver.request.option_limits import apply_options
from patchwright.resolver.run import effective_settings
from patchwright.resolver.run.dependencies import ProgressReporter, RunDependencies
from patchwright.resolver.run.repo_config import format_problems, read_repo_config, report_problems
from patchwright.resolver.run_events import NetworkAccess
from patchwright.resolver.run_limits import is_complete
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.sandbox.session import SandboxSession, run_in_sandbox
from patchwright.resolver.sandbox.worktree_reset import reset_worktree
from patchwright.resolver.security.patch_policy import FilteredPatch, build_patch_limits, filter_patch
from patchwright.resolver.skills.skills import load_skills
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.missing_program import is_runner_missing

UNTESTED_VERDICT = Verdict(
    kind="untested", reason="The run asked or answered a question, so nothing was tested."
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
        try:
            thread = (
                log.trajectory.run_started.thread
                if log.trajectory.run_started
                else await forge.get_thread(job)
            )
            job = await expand_retry(job, thread, log.trajectory, deps.logs)
        except NotFound:
            if job.requester is None:
                raise  # The operator started the job and sees the reason in the terminal.
            await forge.get_repo_facts(job.repo)  # Raises NotFound if the whole repository is unreachable.
            return await reject_job(job, reply_texts.render_rejection_reason("gone", job), None, forge, log)
        facts = await forge.get_repo_facts(job.repo)
        if job.failed_checks_commit:
            return await repair_failed_checks(job, thread, facts, log, deps, forge, reporter, attempt_patch)
        if rejection := await check_admission(job, thread, facts, forge, deps.settings):
            return await reject_job(job, rejection.explanation, facts, forge, log)
        if duplicate := await find_duplicate(job, thread, log.trajectory, deps.logs):
            outcome: Outcome = Rejected(explanation=reply_texts.render_rejection_reason(duplicate, job))
            await log.append(JobCompleted(outcome=outcome))
            return outcome
        if job.request.verb == "setup":
            return await propose_config(job, thread, facts, log, deps, forge, reporter)
        if job.request.verb == "run-ci" and isinstance(thread, PullRequest):
            outcome = await run_ci(job, thread, facts, deps, forge)
            await log.append(JobCompleted(outcome=outcome))
            return outcome
        run_to_resume = await find_run_to_resume(
            job, thread, log.trajectory, deps.logs, deps.settings.plan_expiry_days
        )
        if isinstance(run_to_resume, Rejected):
            return await reject_job(job, run_to_resume.explanation, facts, forge, log)
        if run_to_resume is None:
            try:
                run_deps = apply_options(
                    deps, run_task.get_options(log.trajectory, job.id, job.request.options)
                )
                return await complete_job(job, thread, facts, log, run_deps, forge, reporter)
            except BranchNotFound as exc:
                return await reject_job(job, reply_texts.render_unknown_branch(exc.branch), facts, forge, log)
        if log.trajectory.run_resumed is None:
            await log.append(RunResumed(run=run_to_resume))
        async with deps.logs.open(run_to_resume, deps.listeners) as resumed_log:
            run_deps = apply_options(
                deps, run_task.get_options(resumed_log.trajectory, job.id, job.request.options)
            )
            outcome = await continue_run(job, thread, facts, resumed_log, run_deps, forge, reporter)
        await log.append(JobCompleted(outcome=outcome))
        return outcome


async def complete_job(
    job: Job,
    thread: Thread,
    facts: RepoFacts,
    log: RunLog,
    deps: RunDependencies,
    forge: Forge,
    reporter: ProgressReporter,
) -> Outcome:
    """Works on an admitted job and publishes the result."""
    if isinstance(thread, PullRequest):
        return await resolve_pull_request(job, thread, facts, log, deps, forge, reporter, attempt_patch)
    async with reporter(job, log):
        credentials = await forge.get_credentials(job.repo)
        deps.secrets.add(credentials.token)
        async with clone_at_base(
            job, thread, log.trajectory, facts, deps.workspaces, credentials
        ) as workspace:
            if log.trajectory.run_started is None:
                if pull := await find_open_pull_request(job, workspace, forge, deps.settings, thread.title):
                    explanation = reply_texts.render_open_pull_request(pull, deps.settings.mention)
                    return await reject_job(job, explanation, facts, forge, log)
                branch = workspace.base_branch or facts.default_branch
                await log.append(build_run_started(job, thread, workspace, facts.clone_url, branch, deps))
            assert log.trajectory.run_started is not None
            await report_problems(job, workspace, forge)
            attachments = await fetch_attachments(log.trajectory.run_started.thread, job.repo, forge)
            attempt = await attempt_patch(job, workspace, log, deps, attachments)
            outcome = await publish_attempt(
                job, attempt, workspace, log.trajectory, forge, deps.settings, deps.secrets
            )
    await log.append(JobCompleted(outcome=outcome))
    return outcome


async def continue_run(
    job: Job,
    thread: Thread,
    facts: RepoFacts,
    log: RunLog,
    deps: RunDependencies,
    forge: Forge,
    reporter: ProgressReporter,
) -> Outcome:
    """Continues an earlier run that asked a question or was stopped. The work is recorded in the log of the
    earlier run. Each trigger continues the run only once.
    """
    is_delivered = any(isinstance(event, Message) and event.trigger_id == job.id for event in log.trajectory)
    message = None if is_delivered else build_resume_message(job, log.trajectory, job.request)
    if message is None and (completed := log.trajectory.job_completed):
        return completed.outcome
    if message is not None:
        await log.append(message)
    return await complete_job(job, thread, facts, log, deps, forge, reporter)


async def attempt_patch(
    job: Job,
    workspace: Workspace,
    log: RunLog,
    deps: RunDependencies,
    attachments: ThreadAttachments = NO_ATTACHMENTS,
    pull_context: PullRequestContext | None = None,
    merge: MergeResult | None = None,
) -> Attempt:
    """Works on a started run until its patch is verified. Does not use the forge.

    `pull_context` is the pull request's context for the agent, or None for an issue. `merge` is set if the
    base commit is the result of a merge.
    """
    trajectory = log.trajectory
    assert trajectory.run_started is not None, "the log does not begin with RunStarted"
    config = (await read_repo_config(workspace.config_source)).config
    seconds = config.test_timeout or deps.settings.test_timeout
    suites = await find_suites(workspace.config_source, config)
    suite = suites.primary

    def missing_steps(current: Trajectory, baseline: TestRun | None) -> tuple[str, ...]:
        can_run_tests = suite is not None and not is_runner_missing(baseline)
        return find_missing_steps(current, suite.command if suite else None, can_run_tests=can_run_tests)

    async def filter_current_patch() -> FilteredPatch:
        return await filter_patch(
            workspace, _current_patch(log, workspace), build_patch_limits(deps.settings)
        )

    async def make_attempt(stopped: AgentStopped, verdict: Verdict) -> Attempt:
        open_points = missing_steps(log.trajectory, verdict.before)
        filtered = await filter_current_patch()
        return Attempt(stopped, filtered.patch, verdict, open_points, filtered.removed)

    if (verdict := trajectory.verdict) and not verdict.partial and (stopped := trajectory.agent_stopped):
        return await make_attempt(stopped, verdict)  # An earlier process was killed after the verification.
    # A run that answers a question changes nothing, so nothing is verified.
    is_question = run_task.is_question(log.trajectory)
    if (stopped := trajectory.agent_stopped) and (stopped.reason == "input_required" or is_question):
        # An earlier process was killed before it posted the result.
        return await make_attempt(stopped, UNTESTED_VERDICT)

    if log.trajectory.agent_stopped is None:
        await check_endpoint(deps.settings)
    await effective_settings.record_settings(log, deps, config)
    sandboxes = await prepare_environment(job, workspace, config, suites, log, deps)

    async def run_baseline() -> TestRun | None:
        return await baseline_runs.start(suite) if suite and not is_question else None

    name = f"{job.id}-agent"

    skills = await load_skills(workspace.config_source)
    instructions = select_instructions(
        skills, trajectory.run_started.thread, job.request.text, deps.settings.max_instruction_tokens
    )

    async def work_in_session(session: SandboxSession) -> Attempt:
        async with build_agent(
            job,
            workspace,
            log,
            deps,
            session,
            sandboxes=sandboxes,
            skills=skills,
            can_read_skills=instructions.has_more_to_read,
            finish_checks=lambda current: missing_steps(current, get_baseline()),
            get_new_messages=get_new_messages,
        ) as setup:
            has_started = bool(log.trajectory.replies())
            local_attachments = (
                attachments
                if has_started and session.is_adopted
                else await write_attachments(attachments, setup.sandbox)
            )
            if not has_started:
                text = await compose_initial_message(
                    job,
                    workspace,
                    setup.sandbox,
                    log,
                    suite,
                    baseline_task,
                    instructions,
                    local_attachments,
                    pull_context,
                    sandboxes.features,
                )
                root, scratch = setup.sandbox.root, setup.sandbox.scratch
                place = (root, scratch, sandboxes.kind, sandboxes.network)
                system = prompt_texts.render_system_prompt(
                    *place,
                    sandboxes.features,
                    setup.secret_names,
                    tools=[spec.name for spec in setup.agent.tools.specs],
                    max_steps=deps.settings.max_steps,
                    max_repairs=deps.settings.max_repairs,
                    is_pull_request=pull_context is not None,
                    has_vision=deps.models.vision.supports_vision,
                )
                if is_question:
                    system = plan_texts.render_explain_system(
                        *place, MAX_REPORT, is_pull_request=pull_context is not None
                    )
                await record_prompts(log, system, text, setup.agent.tools, local_attachments.images)
            start_over = partial(reset_worktree, setup.sandbox, workspace, log)
            return await run_and_verify(setup.agent, start_over)

    async def get_new_messages() -> tuple[Message, ...]:
        baseline_message = get_baseline_message()
        return (
            *((baseline_message,) if baseline_message else ()),
            *await deps.get_new_messages(job, log.trajectory),
        )

    def get_baseline_message() -> Message | None:
        """Returns a message with the test results at base. Returns None if the tests are still running,
        or if the initial prompt already contained the results.
        """
        if not log.trajectory.is_baseline_pending or (run := get_baseline()) is None:
            return None
        return Message(text=prompt_texts.render_baseline(run), source="baseline")

    def get_baseline() -> TestRun | None:
        ended = baseline_task.done() and not baseline_task.cancelled() and not baseline_task.exception()
        return baseline_task.result() if ended else None

    async def run_and_verify(agent: Agent, start_over: Callable[[], Awaitable[bool]]) -> Attempt:
        while True:
            try:
                stopped = await agent.run(log)
            finally:  # The connections are recorded even if the sandbox is lost.
                if visits := sandboxes.take_connections(name):
                    await log.append(NetworkAccess(visits=mask_visits(visits, deps.secrets)))
            if stopped.reason == "input_required" or is_question:
                return await make_attempt(stopped, UNTESTED_VERDICT)
            # The filtered patch is verified, because only this patch can be published.
            filtered = await filter_current_patch()
            verify = partial(verify_merge, merge, baseline_cache) if merge else verify_patch
            verify_current = partial(
                verify, workspace, filtered.patch, suites, sandboxes, job.id, seconds, baseline_runs
            )
            verdict = await verify_or_continue(log, deps, stopped, filtered.patch, verify_current, start_over)
            if verdict is not None:
                return await make_attempt(stopped, verdict)

    baseline_workspace = workspace.with_base(merge.head) if merge else workspace
    baseline_cache = BaselineCache(deps.settings.data / "cache" / "baselines")
    async with (
        BaselineRuns(baseline_workspace, sandboxes, job.id, seconds, baseline_cache) as baseline_runs,
        run_alongside(run_baseline()) as baseline_task,
    ):
        return await run_in_sandbox(sandboxes, name, work_in_session, resumed=bool(trajectory.replies()))


def _current_patch(log: RunLog, workspace: Workspace) -> Patch:
    return log.trajectory.last_checkpoint() or Patch(base_sha=workspace.base, diff=b"")


async def resolve_local(
    job: Job,
    thread: Thread,
    path: Path,
    deps: RunDependencies,
    answer: str = "",
    uncommitted_changes: Patch | None = None,
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
                started = build_run_started(job, thread, workspace, str(path), branch, deps)
                await log.append(started.model_copy(update={"uncommitted_changes": uncommitted_changes}))
            return await attempt_patch(job, workspace, log, deps), log.trajectory
