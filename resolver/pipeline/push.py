"""Publishes the result of a run on a pull request: a commit on the pull request's branch, and replies in its
review threads.

It never force-pushes. If the branch has moved, the change is applied to the new head and verified again.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from patchwright.resolver.activity.finish_checks import describe_open_points
from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.checks import RUN_TRAILER
from patchwright.resolver.ci.ci_hold import CiHold, decide_ci_hold
from patchwright.resolver.domain import Job, Outcome, Patch, Published, PullRequest, Reported, Verdict
from patchwright.resolver.errors import (
    BranchMoved,
    Forbidden,
    ForgeError,
    NotFound,
    Unauthorized,
    WorkspaceError,
)
from patchwright.resolver.events import VerificationCompleted
from patchwright.resolver.forge import Forge, PublishedCommit, RepoFacts
from patchwright.resolver.forge_writes import PullRequestSpec
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.git.merge import MergeResult
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.pipeline.commit_message import find_commit_message
from patchwright.resolver.pipeline.publish import (
    DEFAULT_AUTHOR,
    Attempt,
    find_secret_leaks,
    post_comment,
    report_without_patch,
)
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.publishing.check_run import publish_check_run
from patchwright.resolver.publishing.permalinks import link_conditions
from patchwright.resolver.publishing.publish_branch import (
    BranchLocation,
    CommentLocation,
    commit_author,
    get_run_directory,
    push_or_paste,
)
from patchwright.resolver.pull_request import follow_up_texts
from patchwright.resolver.pull_request.follow_up_texts import ThreadResult
from patchwright.resolver.rendering.filters import inline_code
from patchwright.resolver.rendering.template_renderer import render, render_reply
from patchwright.resolver.review_threads import get_replies, list_open_threads, list_waiting_threads
from patchwright.resolver.run.dependencies import Run, RunDependencies
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.secrets import mask_secrets
from patchwright.resolver.security.patch_policy import build_patch_limits, check_patch
from patchwright.runtime.errors import SandboxesDisabled

logger = logging.getLogger(__name__)

MAX_REBASES = 2  # Maximum number of times that the change is applied again because the branch has moved.

VerifyFunction = Callable[[Workspace, Patch], Awaitable[Verdict]]


@dataclass(frozen=True)
class VerifiedChange:
    """A verified change: the commit that it is based on, the patch, and the verdict."""

    workspace: Workspace
    patch: Patch
    verdict: Verdict
    merge: MergeResult | None
    """The merge of the base branch, if the commit is a merge commit."""

    @property
    def parents(self) -> tuple[str, ...]:
        return self.merge.parents if self.merge else (self.workspace.base,)


@dataclass(frozen=True)
class PushResult:
    """Where the change was published."""

    change: VerifiedChange
    location: BranchLocation | CommentLocation | None = None
    """The place where the change was published; None if it was not published."""
    reason: str = ""
    """Why the change is not on the pull request, in a sentence; empty if the change is there."""
    has_moved: bool = False
    """True if someone else pushed to the branch in the meantime."""

    @property
    def sha(self) -> str | None:
        """Id of the commit on the pull request; None if there is none."""
        return (
            self.location.commit.sha
            if isinstance(self.location, BranchLocation) and not self.reason
            else None
        )


async def publish_follow_up(
    run: Run, pull: PullRequest, attempt: Attempt, work: VerifiedChange, verify: VerifyFunction
) -> Outcome:
    """Publishes the change if its verdict and GitHub allow it. Then replies to the review threads and posts
    the status comment. `pull` is the pull request as the agent knows it.

    Each step first checks whether it was already done. Publishing can therefore be repeated after a crash.
    """
    deps = run.deps
    rejected = await report_without_patch(run, attempt.agent_stopped)
    if rejected is not None:
        return rejected
    content = await check_patch(work.workspace, work.patch, build_patch_limits(deps.settings), work.verdict)
    violations = content.violations or await find_secret_leaks(
        work.patch, content.files, work.workspace, deps.secrets
    )
    if violations:
        result = PushResult(work, reason=reply_texts.render_against_policy(violations))
    elif work.verdict.kind == "empty":
        excluded = (
            reply_texts.render_against_policy(attempt.excluded_changes) if attempt.excluded_changes else ""
        )
        result = PushResult(work, reason=excluded or follow_up_texts.render_not_pushed_reason("empty"))
    else:
        result = await _push_change(run, pull, work, verify)
    return await _report_change(run, pull, attempt, result, content.notes)


async def _report_change(
    run: Run, pull: PullRequest, attempt: Attempt, result: PushResult, notes: tuple[str, ...]
) -> Outcome:
    """Replies to the review threads, and posts the status comment and the check run."""
    job, log, deps, forge = run.job, run.log, run.deps, run.forge
    thread_results, unresolved = await _reply_to_threads(job, pull, result, log, forge)
    ci = await _get_ci_hold(job, result.change, log, deps, forge)
    started, verdict = log.trajectory.run_started, result.change.verdict
    assert started is not None
    if result.sha:
        verdict = link_conditions(verdict, started, result.sha)
    report = follow_up_texts.FollowUpReport(
        pull=pull,
        location=result.location,
        verdict=verdict,
        summary=summarize_run(log.trajectory),
        is_on_head=result.sha is not None,
        reason=result.reason,
        has_moved=result.has_moved,
        thread_results=thread_results,
        unresolved=unresolved,
        notes=notes,
        excluded_changes=attempt.excluded_changes,
        open_points=describe_open_points(attempt.open_points, verdict),
        merge=result.change.merge,
        ci=ci.render_notice(deps.settings.mention) if result.sha is not None else "",
        failed_checks_commit=job.failed_checks_commit,
    )
    url = await post_comment(job, forge, render_reply("follow_up.md.j2", **vars(report)))
    if result.sha is not None:
        await _point_to_result(job, pull, result.sha, url, forge)
        await publish_check_run(job, result.sha, verdict, report.summary, forge)
        return Published(
            url=pull.url,
            number=pull.number,
            branch=pull.head_branch,
            draft=pull.draft,
            verdict=verdict,
            ci_state=ci.state,
        )
    branch = result.location.name if isinstance(result.location, BranchLocation) else None
    return Reported(url=url, branch=branch, reason=result.reason, verdict=verdict)


async def _point_to_result(job: Job, pull: PullRequest, sha: str, url: str, forge: Forge) -> None:
    """Links the new result at the top of the description of our own pull request, which describes the first version.
    The rest of the description stays as it is, because people may have edited it.
    """
    bot_user = await forge.get_bot_user(job.repo)
    if not url or bot_user is None or pull.author.id != bot_user.id:
        return
    try:
        current = await forge.find_pull_request(job.repo, pull.head_branch)
        if current is None or current.number != pull.number:
            return
        body = follow_up_texts.link_newer_version(current.body, url)
        spec = PullRequestSpec(
            repo=job.repo, number=job.number, base_branch=current.base_branch, branch=current.head_branch,
            head_sha=sha, title=current.title, body=body, draft=current.draft,
        )  # fmt: skip
        await forge.open_pull_request(spec)
    except ForgeError as exc:
        if exc.retryable or isinstance(exc, Unauthorized):
            raise
        logger.warning("description not updated", extra={"job": job.id, "error": str(exc)})


# --- pushing -----------------------------------------------------------------------------------------------


async def _push_change(
    run: Run, pull: PullRequest, work: VerifiedChange, verify: VerifyFunction
) -> PushResult:
    """Pushes the change to the pull request's own branch. If this is not possible, publishes the change on
    one of the bot's branches or in a comment. The result contains the reason.
    """
    job, log, deps, forge = run.job, run.log, run.deps, run.forge
    result = PushResult(work)
    for rebases_left in reversed(range(MAX_REBASES + 1)):
        if reason := await _push_objection(job, pull, result.change, run.facts, forge):
            return await _push_to_own_branch(job, replace(result, reason=reason), log, deps, forge)
        commit = await _create_commit(job, pull, result.change, log, deps, forge)
        into = None if pull.is_same_repository else pull.head_repo
        git_dir, parent = result.change.workspace.git_dir, result.change.parents[0]
        try:
            published = await forge.push_commit(job.repo, git_dir, commit, pull.head_branch, parent, into)
            return replace(result, location=BranchLocation(pull.head_branch, published))
        except BranchMoved:
            result = await _rebase_change(run, pull, result, verify, last=not rebases_left)
            if result.location is not None:
                return result
        except Unauthorized:
            raise
        except (ForgeError, WorkspaceError) as exc:
            if exc.retryable:
                raise
            result = replace(result, reason=follow_up_texts.render_not_pushed_reason("refused", str(exc)))
        if result.reason:
            break
    return await _push_to_own_branch(job, result, log, deps, forge)


async def _push_objection(
    job: Job, pull: PullRequest, work: VerifiedChange, facts: RepoFacts, forge: Forge
) -> str:
    """Returns a sentence that says why the change must not be pushed to the pull request's branch. Returns an
    empty string if it may be pushed.
    """
    if work.verdict.kind == "regressed":
        return follow_up_texts.render_not_pushed_reason("regressed", work.verdict.reason)
    if work.verdict.patch_tests_failing:
        return follow_up_texts.render_not_pushed_reason(
            "failing", ", ".join(map(inline_code, work.verdict.patch_tests_failing[:3]))
        )
    if pull.head_repo is None:
        return follow_up_texts.render_not_pushed_reason("gone")
    if pull.is_same_repository and pull.head_branch == facts.default_branch:
        return follow_up_texts.render_not_pushed_reason("default")
    current = await forge.get_head_state(job.repo, job.number)
    if not current.is_open:
        return follow_up_texts.render_not_pushed_reason("closed")
    if current.is_locked:
        return follow_up_texts.render_not_pushed_reason("locked")
    if not current.can_push:
        return follow_up_texts.render_not_pushed_reason("fork")
    return ""


async def _rebase_change(
    run: Run, pull: PullRequest, result: PushResult, verify: VerifyFunction, *, last: bool
) -> PushResult:
    """Applies the change to the current head and verifies it again. If the change cannot be pushed to that
    head, the result contains the reason.
    """
    job, log, deps, forge = run.job, run.log, run.deps, run.forge
    head = (await forge.get_head_state(job.repo, job.number)).head_sha
    credentials = await forge.get_credentials(job.repo)
    deps.secrets.add(credentials.token)
    workspace = await deps.workspaces.fetch(result.change.workspace, run.facts.clone_url, head, credentials)
    if own_commit := await _find_own_commit(workspace, pull.head_sha, head, job):
        # An earlier process pushed this commit. Other people may have pushed commits before it or after it.
        return replace(
            result,
            location=BranchLocation(pull.head_branch, PublishedCommit(sha=own_commit, is_verified=True)),
            has_moved=True,
        )
    if result.change.merge:
        return replace(result, reason=follow_up_texts.render_not_pushed_reason("moved_merge"))
    if job.failed_checks_commit:
        return replace(result, reason=follow_up_texts.render_not_pushed_reason("moved_checks"))
    if last:
        return replace(result, reason=follow_up_texts.render_not_pushed_reason("moving"))
    patch = Patch(base_sha=head, diff=result.change.patch.diff)
    try:
        await workspace.build_tree(patch)
    except WorkspaceError:
        return replace(result, reason=follow_up_texts.render_not_pushed_reason("moved"))
    try:
        verdict = await verify(workspace, patch)
    except SandboxesDisabled:
        return replace(result, reason=follow_up_texts.render_not_pushed_reason("moved_unproven"))
    await log.append(VerificationCompleted(verdict=verdict))
    return replace(result, change=VerifiedChange(workspace, patch, verdict, None), has_moved=True)


async def _find_own_commit(workspace: Workspace, since: str, head: str, job: Job) -> str | None:
    """Returns this run's commit if it was pushed after the commit `since` and is in the history of `head`.
    Returns None if there is no such commit.
    """
    listed = await run_git(
        *("log", f"--format=%H %(trailers:key={RUN_TRAILER},valueonly,separator=%x20)", f"{since}..{head}"),
        git_dir=workspace.git_dir,
    )
    rows = (line.split() for line in listed.decode(errors="replace").splitlines())
    return next((row[0] for row in rows if job.id in row[1:]), None)


async def _push_to_own_branch(
    job: Job, result: PushResult, log: RunLog, deps: RunDependencies, forge: Forge
) -> PushResult:
    """Publishes the change on one of the bot's branches or in a comment."""
    started = log.trajectory.run_started
    assert started is not None and isinstance(started.thread, PullRequest)
    work, pull = result.change, started.thread
    commit = await _create_commit(job, pull, work, log, deps, forge)
    # A fork's change is not pushed to this repository; it stays in a comment.
    branch = f"{deps.settings.branch_prefix}pull-{job.number}-{job.id[-8:].strip('-.')}"
    branches = (branch,) if pull.is_same_repository else ()
    directory = get_run_directory(deps.settings, job.id)
    git_dir, parent = work.workspace.git_dir, work.parents[0]
    location = await push_or_paste(job.repo, git_dir, commit, branches, parent, forge, directory)
    return replace(result, location=location)


async def _create_commit(
    job: Job, pull: PullRequest, work: VerifiedChange, log: RunLog, deps: RunDependencies, forge: Forge
) -> str:
    """Creates the commit in the local repository. The same change always results in the same commit."""
    finish = summarize_run(log.trajectory).finish
    author = ""
    if job.requester is not None:
        author = "{} <{}>".format(*commit_author(job.requester, deps.settings.github_server_url))
    message = render(
        "replies/commit_follow_up.txt.j2",
        pull=mask_secrets(pull, deps.secrets),
        job=job,
        finish=mask_secrets(finish, deps.secrets) if finish else None,
        merge=work.merge,
        author=author,
        written=find_commit_message(log.trajectory),
    )
    when = log.trajectory.entries[0].timestamp
    bot_user = await forge.get_bot_user(job.repo)
    bot_author = commit_author(bot_user, deps.settings.github_server_url) if bot_user else DEFAULT_AUTHOR
    message = (await _get_ci_hold(job, work, log, deps, forge)).mark_message(message)
    return await work.workspace.commit(
        work.patch, message, author=bot_author, when=when, parents=work.parents
    )


async def _get_ci_hold(
    job: Job, work: VerifiedChange, log: RunLog, deps: RunDependencies, forge: Forge
) -> CiHold:
    return await decide_ci_hold(
        log.trajectory, work.workspace, work.parents[0], job.repo, forge, deps.settings
    )


# --- review threads ----------------------------------------------------------------------------------------


async def _reply_to_threads(
    job: Job, pull: PullRequest, result: PushResult, log: RunLog, forge: Forge
) -> tuple[tuple[ThreadResult, ...], bool]:
    """Posts a reply in each thread that waits for a reply or that the agent answered. Resolves the threads
    whose requested changes are done.

    Returns the result for each thread, and whether the token lacks the permission to resolve threads.
    """
    replies = get_replies(pull, summarize_run(log.trajectory).finish)
    threads = list_open_threads(pull)
    reason = "" if result.change.verdict.kind == "empty" else result.reason
    thread_results: list[ThreadResult] = []
    unresolved = False
    for number in sorted(threads.keys() & (list_waiting_threads(pull).keys() | replies.keys())):
        reply = replies.get(number)
        done = result.sha is not None and reply is not None and reply.is_done
        thread_result = ThreadResult(number=number, thread=threads[number], reply=reply, is_done=done)
        thread_results.append(thread_result)
        text = render_reply("thread_reply.md.j2", result=thread_result, sha=result.sha, reason=reason)
        try:
            await forge.reply_to_thread(job.repo, job.number, thread_result.thread, job.id, text)
        except (NotFound, Forbidden) as exc:
            # The thread was deleted or locked. The status comment contains the same text.
            logger.warning("thread reply not posted", extra={"job": job.id, "error": str(exc)})
            continue
        if done:
            try:
                await forge.resolve_thread(job.repo, thread_result.thread)
            except (NotFound, Forbidden):
                unresolved = True
    return tuple(thread_results), unresolved
