"""The `run-ci` command starts continuous integration (CI) on a pull request whose CI waits for a person. To do
so, it pushes an empty commit.

It never force-pushes: the earlier commits stay unchanged, and the empty commit comes after them.
"""

from typing import Literal

from patchwright.resolver.ci.ci_hold import ACTIONS_BOT_LOGIN, SKIP_CI, is_held
from patchwright.resolver.domain import Job, Patch, PullRequest, Reported
from patchwright.resolver.errors import BranchMoved, ForgeError, Unauthorized, WorkspaceError
from patchwright.resolver.forge import Forge, RepoFacts
from patchwright.resolver.pipeline.publish import DEFAULT_AUTHOR, post_comment
from patchwright.resolver.publishing.publish_branch import commit_author
from patchwright.resolver.rendering.template_renderer import render, render_reply
from patchwright.resolver.run.dependencies import RunDependencies

RunCiResult = Literal["started", "not_held", "silent", "moved", "refused", "fork", "gone", "default"]


async def run_ci(
    job: Job, pull: PullRequest, facts: RepoFacts, deps: RunDependencies, forge: Forge
) -> Reported:
    """Starts CI on a pull request and posts the result. If the job runs again, no second commit is
    pushed.
    """
    commits = await forge.list_commits(job.repo, job.number)
    if commits and commits[-1].is_from_job(job):  # An earlier attempt was killed before it could report.
        return await _report_result(job, forge, "started", pull, commits[-1].sha)
    bot_user = await forge.get_bot_user(job.repo)
    if bot_user is not None and bot_user.login == ACTIONS_BOT_LOGIN:
        return await _report_result(job, forge, "silent")
    if not commits or not is_held(commits[-1].message):
        return await _report_result(job, forge, "not_held", pull)
    if pull.is_same_repository and pull.head_branch == facts.default_branch:
        return await _report_result(job, forge, "default")
    if pull.head_repo is None:
        return await _report_result(job, forge, "gone")
    if not (pull.is_same_repository or pull.maintainer_can_modify):
        return await _report_result(job, forge, "fork")
    try:
        sha = await _push_empty_commit(job, pull, facts, deps, forge)
    except BranchMoved:
        return await _report_result(job, forge, "moved", pull)
    except (ForgeError, WorkspaceError) as exc:
        if exc.retryable or isinstance(exc, Unauthorized):
            raise
        return await _report_result(job, forge, "refused", pull, str(exc))
    return await _report_result(job, forge, "started", pull, sha)


async def _push_empty_commit(
    job: Job, pull: PullRequest, facts: RepoFacts, deps: RunDependencies, forge: Forge
) -> str:
    """Pushes an empty commit to the pull request's branch and returns its ID."""
    credentials = await forge.get_credentials(job.repo)
    deps.secrets.add(credentials.token)
    bot_user = await forge.get_bot_user(job.repo)
    server = deps.settings.github_server_url
    requester = "{} <{}>".format(*commit_author(job.requester, server)) if job.requester else ""
    message = render("replies/commit_run_ci.txt.j2", job=job, author=requester)
    async with deps.workspaces.clone(facts.clone_url, pull.head_sha, credentials) as workspace:
        git_dir, head = workspace.git_dir, workspace.base
        empty_patch = Patch(base_sha=head, diff=b"")
        commit = await workspace.commit(
            empty_patch, message, author=commit_author(bot_user, server) if bot_user else DEFAULT_AUTHOR
        )
        head_repo = None if pull.is_same_repository else pull.head_repo
        return (await forge.push_commit(job.repo, git_dir, commit, pull.head_branch, head, head_repo)).sha


async def _report_result(
    job: Job, forge: Forge, result: RunCiResult, pull: PullRequest | None = None, detail: str = ""
) -> Reported:
    text = render_reply("run_ci.md.j2", result=result, pull=pull, detail=detail, skip_ci=SKIP_CI).strip()
    url = await post_comment(job, forge, text)
    branch = pull.head_branch if pull and result == "started" else None
    return Reported(url=url, branch=branch, reason=text)
