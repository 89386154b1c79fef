"""Publishes an attempt as a pull request, or posts a comment that explains why there is no pull request.
After each write, the result is read back from the forge.
"""

import logging
from dataclasses import dataclass

from patchwright.resolver.activity.summary import Summary, summarize_run
from patchwright.resolver.branch_names import make_branch_names
from patchwright.resolver.ci.ci_hold import ACTIONS_BOT_LOGIN, CiHold, decide_ci_hold
from patchwright.resolver.domain import (
    InputRequired,
    Job,
    Outcome,
    Patch,
    Published,
    PullRequest,
    Rejected,
    Reported,
    Verdict,
)
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound, Unauthorized
from patchwright.resolver.events import AgentStopped, Trajectory
from patchwright.resolver.forge import Forge, can_trigger
from patchwright.resolver.forge_writes import PullRequestSpec
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.publishing import publishing_texts, reply_texts
from patchwright.resolver.publishing.check_run import publish_check_run
from patchwright.resolver.publishing.permalinks import add_permalinks, link_conditions
from patchwright.resolver.publishing.publish_branch import (
    BranchLocation,
    CommentLocation,
    commit_author,
    get_run_directory,
    push_or_paste,
)
from patchwright.resolver.publishing.publishing_texts import NoPullRequestReason
from patchwright.resolver.pull_request.pr_template import fill_pr_template, load_pr_template
from patchwright.resolver.request import plan_texts
from patchwright.resolver.run.repo_config import read_repo_config
from patchwright.resolver.run_task import get_answer, get_proposed_plan, is_question
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets, mask_secrets
from patchwright.resolver.security.patch_policy import build_patch_limits, check_patch
from patchwright.resolver.settings.run_settings import PullRequestState
from patchwright.resolver.settings.settings import Settings

logger = logging.getLogger(__name__)

DEFAULT_AUTHOR = ("Patchwright", "patchwright@noreply.invalid")
"""Author of commits if the bot's account is unknown."""
ACTIONS_NOT_PERMITTED = "GitHub Actions is not permitted"
"""Start of GitHub's message if the settings of a repository or organization do not allow workflows to open pull
requests.
"""


@dataclass(frozen=True)
class Attempt:
    """The result of the agent's work."""

    agent_stopped: AgentStopped
    patch: Patch
    verdict: Verdict
    open_points: tuple[str, ...] = ()
    """One sentence for each requirement that the run did not meet, as its log shows."""
    excluded_changes: tuple[str, ...] = ()
    """One sentence for each change that the patch policy forbids. These changes are not in the patch."""


async def publish_attempt(
    job: Job,
    attempt: Attempt,
    workspace: Workspace,
    trajectory: Trajectory,
    forge: Forge,
    settings: Settings,
    secrets: Secrets,
) -> Outcome:
    """Publishes what the verdict allows: a pull request for `fixed`, or a draft pull request for
    `conditional`, `unproven` or `untested`.

    Each step first checks whether it was already done. Publishing can therefore be repeated after a crash.
    """
    started = trajectory.run_started
    assert started is not None, "cannot publish the result of a run that has not started"
    summary = summarize_run(trajectory)
    verdict = attempt.verdict

    if (outcome := await report_without_patch(job, attempt.agent_stopped, trajectory, forge)) is not None:
        return outcome
    if verdict.kind == "empty":
        reason = (
            reply_texts.render_against_policy(attempt.excluded_changes)
            if attempt.excluded_changes
            else reply_texts.render_nothing_changed(attempt.agent_stopped)
        )
        is_answer = job.command and not attempt.excluded_changes
        advice = reply_texts.render_question_advice(settings.mention) if is_answer else ""
        return await report_no_pull_request(job, reason, None, verdict, summary, forge, advice)
    content = await check_patch(workspace, attempt.patch, build_patch_limits(settings), verdict.conditions)
    violations = content.violations or await find_secret_leaks(
        attempt.patch, content.files, workspace, secrets
    )
    if violations:
        return await report_no_pull_request(
            job, reply_texts.render_against_policy(violations), None, verdict, summary, forge
        )

    ci = await decide_ci_hold(trajectory, workspace, workspace.base, job.repo, forge, settings)
    commit = await create_commit(
        job, attempt.patch, content.files, workspace, trajectory, forge, settings, secrets, ci
    )
    config = (await read_repo_config(workspace.config_source)).config
    branches = make_branch_names(
        config.branch or settings.branch,
        settings.branch_prefix,
        job.number,
        mask_secrets(started.thread, secrets).title,
        job.id,
    )
    run_directory = get_run_directory(settings, started.job.id)
    location = await push_or_paste(
        job.repo, workspace.git_dir, commit, branches, workspace.base, forge, run_directory
    )
    if verdict.kind == "regressed":
        return await report_no_pull_request(job, verdict.reason, location, verdict, summary, forge)
    if isinstance(location, CommentLocation):
        return await report_no_pull_request(
            job,
            publishing_texts.render_no_pull_request_reason("nowhere", location.push_error),
            location,
            verdict,
            summary,
            forge,
        )
    thread_state = await forge.get_thread_state(job.repo, job.number, started.base_branch, started.base_sha)
    if not thread_state.is_open or thread_state.is_locked or not thread_state.has_base:
        problem: NoPullRequestReason = "locked" if thread_state.is_locked else "rewritten"
        problem = problem if thread_state.is_open else "closed"
        reason = publishing_texts.render_no_pull_request_reason(problem, started.base_branch)
        return await report_no_pull_request(job, reason, location, verdict, summary, forge)
    verdict = link_conditions(verdict, started, location.commit.sha)
    draft = should_be_draft(verdict, config.conditional_pull_requests or settings.conditional_pull_requests)
    spec = PullRequestSpec(
        repo=job.repo,
        number=job.number,
        base_branch=started.base_branch,
        branch=location.name,
        head_sha=location.commit.sha,
        title=reply_texts.render_pull_request_title(started.thread, content.files),
        body=reply_texts.render_pull_request_body(
            started.thread,
            verdict,
            summary,
            content.notes,
            attempt.open_points,
            attempt.excluded_changes,
            location.commit.note,
            fill_pr_template(await load_pr_template(workspace), summary.finish),
            ci.render_notice(settings.mention),
            settings.mention,
            content.files,
            is_draft=draft,
        ),
        draft=draft,
        reviewer=job.requester,
    )
    was_open = False
    try:
        if location.commit.already_existed:
            was_open = await forge.find_pull_request(job.repo, location.name) is not None
        pull = await forge.open_pull_request(spec)
    except ForgeError as exc:
        if exc.retryable or isinstance(exc, Unauthorized):
            raise
        is_forbidden = isinstance(exc, Forbidden)
        reason = publishing_texts.render_no_pull_request_reason(
            "forbidden" if is_forbidden else "refused", str(exc)
        )
        advice = await explain_how_to_open(spec, forge, settings, str(exc)) if is_forbidden else ""
        return await report_no_pull_request(job, reason, location, verdict, summary, forge, advice)
    check_published(pull, location.commit.sha)
    await post_comment(
        job, forge, reply_texts.render_published(pull, verdict, summary, already_open=was_open)
    )
    await publish_check_run(job, pull.head_sha, verdict, summary, forge)
    return Published(
        url=pull.url,
        number=pull.number,
        branch=location.name,
        draft=pull.draft,
        verdict=verdict,
        ci_state=ci.state,
    )


def should_be_draft(verdict: Verdict, conditional_state: PullRequestState) -> bool:
    """Returns True if the pull request has to wait for a person. `conditional_state` is the state of a pull
    request whose verdict is `conditional`.
    """
    return verdict.kind != "fixed" and not (verdict.kind == "conditional" and conditional_state == "ready")


async def explain_how_to_open(spec: PullRequestSpec, forge: Forge, settings: Settings, error: str) -> str:
    """Explains what to do if GitHub does not let us open a pull request. `error` contains GitHub's message."""
    bot_user = await forge.get_bot_user(spec.repo)
    return publishing_texts.render_pull_request_forbidden(
        f"{settings.github_server_url.rstrip('/')}/{spec.repo}",
        spec.base_branch,
        spec.branch,
        settings.mention,
        is_actions=ACTIONS_NOT_PERMITTED in error
        or (bot_user is not None and bot_user.login == ACTIONS_BOT_LOGIN),
    )


async def report_without_patch(
    job: Job, agent_stopped: AgentStopped, trajectory: Trajectory, forge: Forge
) -> Rejected | InputRequired | Reported | None:
    """Completes the job and returns its outcome if there is nothing to publish. Otherwise, returns None.

    Nothing is published if the requester has lost write access, or if the job only asked for an answer. The same
    applies if the agent has a question or proposes a plan.
    """
    if not await can_trigger(job, forge):
        return await report_lost_permission(job, trajectory, forge)
    summary, plan = summarize_run(trajectory), get_proposed_plan(trajectory)
    assert trajectory.run_started is not None
    if agent_stopped.reason == "input_required":
        body = (
            plan_texts.render_plan(plan, summary)
            if plan
            else reply_texts.render_question(agent_stopped.detail, summary)
        )
        body = add_permalinks(body, trajectory.run_started)
        return InputRequired(
            url=await forge.upsert_comment(job.repo, job.number, job.id, body), question=agent_stopped.detail
        )
    if is_question(trajectory):
        answer = get_answer(trajectory)
        body = add_permalinks(plan_texts.render_explanation(answer, summary), trajectory.run_started)
        url = await post_comment(job, forge, body)
        reason = "The question is answered." if answer else agent_stopped.detail
        return Reported(url=url, branch=None, reason=reason, verdict=Verdict(kind="empty", reason=reason))
    return None


async def report_lost_permission(job: Job, trajectory: Trajectory, forge: Forge) -> Rejected:
    """Posts a comment: nothing is published, because the requester no longer has write access."""
    explanation = reply_texts.render_rejection_reason("withdrawn", job)
    await post_comment(job, forge, reply_texts.render_withdrawn(explanation, summarize_run(trajectory)))
    return Rejected(explanation=explanation)


async def create_commit(
    job: Job,
    patch: Patch,
    files: tuple[str, ...],
    workspace: Workspace,
    trajectory: Trajectory,
    forge: Forge,
    settings: Settings,
    secrets: Secrets,
    ci: CiHold,
) -> str:
    """Commits the patch to the local repository and returns the commit id. The author is the bot's account,
    and the requester is the co-author.
    """
    started = trajectory.run_started
    assert started is not None
    # MaskingForge masks secrets in API calls, but not in pushed commits, so this function masks them. It does
    # so before the message is wrapped, because wrapping could split a secret.
    finish = summarize_run(trajectory).finish
    masked_finish = mask_secrets(finish, secrets) if finish else None
    co_author = commit_author(job.requester, settings.github_server_url) if job.requester else None
    message = reply_texts.render_commit_message(
        mask_secrets(started.thread, secrets),
        masked_finish,
        "{} <{}>".format(*co_author) if co_author else "",
        started.job.id,
        files,
    )
    bot_user = await forge.get_bot_user(job.repo)
    return await workspace.commit(
        patch,
        ci.mark_message(message),
        author=commit_author(bot_user, settings.github_server_url) if bot_user else DEFAULT_AUTHOR,
        when=trajectory.entries[0].timestamp,
    )


async def find_secret_leaks(
    patch: Patch, files: tuple[str, ...], workspace: Workspace, secrets: Secrets
) -> tuple[str, ...]:
    """Returns one sentence for each file to which the patch adds one of our secrets. Also finds secrets in the
    known encodings, such as Base64.
    """
    found: list[str] = []
    for path, (before, after) in (await workspace.read_changed_files(patch)).items():
        # The sandbox's output is masked, so a file may already contain the placeholder.
        masked_before = before.count(SECRET_PLACEHOLDER.encode())
        if path in files and secrets.mask(after).count(SECRET_PLACEHOLDER.encode()) > masked_before:
            found.append(f"{path} contains a secret of this installation.")
    return tuple(found)


async def report_no_pull_request(
    job: Job,
    reason: str,
    location: BranchLocation | CommentLocation | None,
    verdict: Verdict,
    summary: Summary,
    forge: Forge,
    advice: str = "",
) -> Reported:
    """Posts a comment that explains why there is no pull request and where the work is. `location` is None if
    there is no work. `advice` says what to do, in Markdown.
    """
    branch = location.name if isinstance(location, BranchLocation) else None
    pasted_patch = location.text if isinstance(location, CommentLocation) else ""
    url = await post_comment(
        job, forge, reply_texts.render_no_pull_request(reason, branch, verdict, summary, pasted_patch, advice)
    )
    return Reported(url=url, branch=branch, reason=reason, verdict=verdict)


async def post_comment(job: Job, forge: Forge, body: str) -> str:
    """Creates or updates the job's comment. Returns the URL of the comment, or an empty string if the thread
    was locked or deleted.
    """
    try:
        return await forge.upsert_comment(job.repo, job.number, job.id, body)
    except (Forbidden, NotFound) as exc:
        logger.warning("comment not posted", extra={"job": job.id, "error": str(exc)})
        return ""


def check_published(pull: PullRequest, commit: str) -> None:
    """Raises ForgeError if the head of the pull request is not the commit that we published."""
    if pull.head_sha != commit:
        raise ForgeError(
            f"the head of pull request {pull.url} is {pull.head_sha[:12]}, but {commit[:12]} was pushed"
        )
