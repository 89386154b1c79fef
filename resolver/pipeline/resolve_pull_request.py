"""Resolves a job on a pull request. A review, a mention or a label starts the job, and the result is a commit
on the pull request's branch.
"""

import re
from typing import Literal

from patchwright.resolver.checks import FailedChecks
from patchwright.resolver.domain import Issue, Job, Outcome, Patch, PullRequest, Reported, Verdict
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.events import AgentStopped, JobCompleted, VerificationCompleted
from patchwright.resolver.forge import Forge
from patchwright.resolver.git.merge import MergeResult, merge_commit
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.pipeline.agent_choice import choose_agent
from patchwright.resolver.pipeline.attempt import AgentTask, attempt_patch
from patchwright.resolver.pipeline.publish import Attempt
from patchwright.resolver.pipeline.push import VerifiedChange, publish_follow_up
from patchwright.resolver.pipeline.run_start import build_run_started, prepare_environment
from patchwright.resolver.preparation.attachments import fetch_attachments
from patchwright.resolver.proof.baseline import BaselineCache, BaselineRuns
from patchwright.resolver.proof.merge_verification import verify_merge
from patchwright.resolver.proof.verification import verify_patch
from patchwright.resolver.pull_request.pr_context import (
    CLOSING_REFERENCE,
    PullRequestContext,
    build_pr_context,
    list_runs,
    load_earlier_runs,
)
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run import effective_settings
from patchwright.resolver.run.dependencies import Run, RunDependencies
from patchwright.resolver.run.repo_config import read_repo_config, report_problems
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.execution import TestSetup

MERGED_BY_GIT = "Git merged the base branch without conflicts, so no agent was needed."

# Matches typical requests: "@agent rebase", "resolve the merge conflicts", "bring this up to date with main".
MERGE_REQUEST = re.compile(
    r"\brebase\b|\b(resolve|fix|solve|mend)\b[^.\n]{0,40}\bconflicts?\b|\bmerge (in )?(the )?(base|main|master)\b"
    r"|\bupdate (the|this|my) branch\b|\bbring\b[^.\n]{0,40}\bup to date\b",
    re.IGNORECASE,
)


_FILLER_WORDS = re.compile(
    r"@[\w-]+|\b(please|can|could|would|you|to|this|it|the|on|onto|with|into|in|and|our|latest|current|changes|from"
    r"|main|master|base|branch|merge|pull request|pr|now|again|thanks?)\b|\W",
    re.IGNORECASE,
)
"""Words that may accompany a request to merge. They do not request other work."""


async def resolve_pull_request(run: Run, failing_checks: FailedChecks | None = None) -> Outcome:
    """Resolves a job on a pull request and publishes the result. The job has passed the admission checks.

    The run works on the commit that was the pull request's head when the run started. Settings come from the
    base branch. `failing_checks` are the failed checks that the job must repair; None for other jobs. Can be
    repeated: each step reads in the log or on the forge what is done already.
    """
    job, log, deps, forge = run.job, run.log, run.deps, run.forge
    async with run.reporter(job, log):
        credentials = await forge.get_credentials(job.repo)
        deps.secrets.add(credentials.token)
        thread = log.trajectory.run_started.thread if log.trajectory.run_started else run.thread
        assert isinstance(thread, PullRequest)
        config_ref = thread.base_sha or thread.base_branch
        async with deps.workspaces.clone(
            run.facts.clone_url, thread.head_sha, credentials, config_ref
        ) as workspace:
            if log.trajectory.run_started is None:
                thread = _take_snapshot(job, thread, workspace)
                agent = await choose_agent(job, workspace, deps)
                branch = thread.base_branch
                await log.append(
                    build_run_started(job, thread, workspace, run.facts.clone_url, branch, deps, agent)
                )
            await report_problems(job, workspace, forge)
            outcome = await _work_on_pull_request(run, thread, workspace, failing_checks)
    await log.append(JobCompleted(outcome=outcome))
    return outcome


async def _work_on_pull_request(
    run: Run, thread: PullRequest, workspace: Workspace, failing_checks: FailedChecks | None
) -> Outcome:
    job, log, deps = run.job, run.log, run.deps
    assert log.trajectory.run_started is not None
    merge_request = requested_merge(log.trajectory.run_started.job, thread)
    merge = await merge_commit(workspace, workspace.config_source.base) if merge_request else None
    if merge_request == "alone" and merge is None:
        return await _report_up_to_date(job, thread, run.forge)
    if merge_request == "alone" and merge is not None and not merge.conflicts:
        result = await _attempt_clean_merge(job, workspace, merge, log, deps)
    else:
        result = await _attempt_with_agent(run, thread, workspace, merge, failing_checks)
    head = workspace.with_base(merge.commit) if merge else workspace
    change = VerifiedChange(head, result.patch, result.verdict, merge)

    async def verify_again(head: Workspace, patch: Patch) -> Verdict:
        return await _verify_again(job, head, patch, log, deps)

    return await publish_follow_up(run, thread, result, change, verify_again)


def requested_merge(job: Job, pull: PullRequest) -> Literal["", "too", "alone"]:
    """Returns whether the command or the triggering review requests a merge of the base branch.

    "alone" means that only a merge is requested. "too" means that a merge and other work are requested. An
    empty string means that no merge is requested.
    """
    review_text = pull.review.body if pull.review and pull.review.trusted else ""
    request = job.request
    text = f"{request.text}\n{review_text}"
    if request.command.task in ("plan", "explain") or not MERGE_REQUEST.search(text):
        return ""
    has_more = _FILLER_WORDS.sub("", MERGE_REQUEST.sub("", text)) or any(
        thread.is_trigger for thread in pull.threads
    )
    return "too" if has_more else "alone"


def _take_snapshot(job: Job, pull: PullRequest, workspace: Workspace) -> PullRequest:
    """Returns the pull request without the comments and review threads that the job does not need. Sets
    `base_sha` to the commit that the settings are read from.
    """
    changes: dict[str, object] = {"base_sha": workspace.config_source.base}
    if requested_merge(job, pull) == "alone":
        changes["threads"] = ()  # The review threads are not part of the request.
    if job.failed_checks_commit:
        changes["threads"], changes["comments"] = (
            (),
            tuple(comment for comment in pull.comments if comment.trusted),
        )
    return pull.model_copy(update=changes)


async def _attempt_with_agent(
    run: Run,
    pull: PullRequest,
    workspace: Workspace,
    merge: MergeResult | None,
    failing_checks: FailedChecks | None,
) -> Attempt:
    head = workspace.with_base(merge.commit) if merge else workspace
    attachments = await fetch_attachments(pull, run.job.repo, run.forge)
    context = None
    if not run.log.trajectory.replies():
        context = await _build_context(run, pull, workspace, merge, failing_checks)
    return await attempt_patch(AgentTask(run.job, head, run.log, run.deps, attachments, context, merge))


async def _build_context(
    run: Run,
    pull: PullRequest,
    workspace: Workspace,
    merge: MergeResult | None,
    failing_checks: FailedChecks | None,
) -> PullRequestContext:
    """Collects the context for the agent: the pull request, its issue and the earlier runs on it."""
    issue: Issue | None = None
    if references := CLOSING_REFERENCE.findall(pull.body):
        try:
            thread = await run.forge.get_thread(run.job.model_copy(update={"number": int(references[-1])}))
            issue = thread if isinstance(thread, Issue) else None
        except ForgeError as exc:
            if exc.retryable:
                raise
    reported = list_runs(pull, issue.reported_runs if issue else ())
    earlier = await load_earlier_runs(run.job, reported, run.deps.logs)
    return await build_pr_context(pull, workspace, earlier, merge, failing_checks, issue)


async def _report_up_to_date(job: Job, pull: PullRequest, forge: Forge) -> Reported:
    reason = render_reply("up_to_date.md.j2", pull=pull).strip()
    url = await forge.upsert_comment(job.repo, job.number, job.id, reason)
    return Reported(url=url, branch=None, reason=reason, verdict=Verdict(kind="empty", reason=reason))


# --- work without an agent ----------------------------------------------------------------------------------


async def _prepare_tests(
    job: Job, workspace: Workspace, log: RunLog, deps: RunDependencies, name: str
) -> tuple[TestSetup, BaselineCache]:
    """Returns what the tests need. The test suites are those of the base branch."""
    config = (await read_repo_config(workspace.config_source)).config
    await effective_settings.record_settings(log, deps, config)
    suites = await find_suites(workspace.config_source, config)
    sandboxes = await prepare_environment(job, workspace, config, suites, log, deps)
    seconds = config.test_timeout or deps.settings.test_timeout
    cache = BaselineCache(deps.settings.data / "cache" / "baselines")
    return TestSetup(suites, sandboxes, name, seconds), cache


async def _attempt_clean_merge(
    job: Job, workspace: Workspace, merge: MergeResult, log: RunLog, deps: RunDependencies
) -> Attempt:
    """Verifies a merge without conflicts. No agent is needed."""
    empty_patch = Patch(base_sha=merge.commit, diff=b"")
    if log.trajectory.agent_stopped is None:
        await log.append(AgentStopped(reason="finished", detail=MERGED_BY_GIT))
    stopped = log.trajectory.agent_stopped
    assert stopped is not None
    if verdict := log.trajectory.verdict:
        return Attempt(stopped, empty_patch, verdict)
    merged = workspace.with_base(merge.commit)
    tests, cache = await _prepare_tests(job, merged, log, deps, job.id)
    async with BaselineRuns(workspace, tests.sandboxes, job.id, tests.seconds, cache) as head_runs:
        verdict = await verify_merge(merge, cache, merged, empty_patch, tests, head_runs)
    await log.append(VerificationCompleted(verdict=verdict))
    return Attempt(stopped, empty_patch, verdict)


async def _verify_again(
    job: Job, workspace: Workspace, patch: Patch, log: RunLog, deps: RunDependencies
) -> Verdict:
    """Verifies a patch again after it was applied to a new head."""
    tests, cache = await _prepare_tests(job, workspace, log, deps, f"{job.id}-moved")
    async with BaselineRuns(workspace, tests.sandboxes, tests.name, tests.seconds, cache) as base_runs:
        return await verify_patch(workspace, patch, tests, base_runs)
