"""`run-ci`: a writer has seen the change, and continuous integration starts on it, by an empty commit on top.

Nothing is ever pushed over: the commits that are held stay as they are, below one that is not.
"""

from typing import Literal

from resolver import prose
from resolver.ci.hold import MARK, WORKFLOW_ACCOUNT, is_held
from resolver.deliver import AUTHOR, tell
from resolver.delivery.keeping import signature
from resolver.domain import Commented, Job, Patch, PullRequest, Verdict
from resolver.errors import BranchMoved, ForgeError, Unauthorized, WorkspaceError
from resolver.forge import Forge, RepoFacts
from resolver.kit import Kit

Said = Literal["started", "nothing", "silent", "moved", "refused", "fork", "gone", "default"]


async def run_ci(job: Job, pull: PullRequest, facts: RepoFacts, kit: Kit, forge: Forge) -> Commented:
    """Start it on an admitted pull request, and say what was done; the same job again does nothing more."""
    commits = await forge.commits(job.repo, job.number)
    if commits and commits[-1].is_of(job):  # an earlier try was killed before it could say so
        return await _said(job, forge, "started", pull, commits[-1].sha)
    us = await forge.identity(job.repo)
    if us is not None and us.login == WORKFLOW_ACCOUNT:
        return await _said(job, forge, "silent")
    if not commits or not is_held(commits[-1].message):
        return await _said(job, forge, "nothing", pull)
    if pull.same_repository and pull.head == facts.default_branch:
        return await _said(job, forge, "default")
    if pull.head_repo is None:
        return await _said(job, forge, "gone")
    if not (pull.same_repository or pull.maintainer_can_modify):
        return await _said(job, forge, "fork")
    try:
        sha = await _commit(job, pull, facts, kit, forge)
    except BranchMoved:
        return await _said(job, forge, "moved", pull)
    except (ForgeError, WorkspaceError) as exc:
        if exc.retryable or isinstance(exc, Unauthorized):
            raise
        return await _said(job, forge, "refused", pull, str(exc))
    return await _said(job, forge, "started", pull, sha)


async def _commit(job: Job, pull: PullRequest, facts: RepoFacts, kit: Kit, forge: Forge) -> str:
    """The id of a commit that changes nothing, on the pull request's branch."""
    credentials = await forge.credentials(job.repo)
    kit.secrets.add(credentials.token)
    us = await forge.identity(job.repo)
    server = kit.settings.github_server_url
    asked = "{} <{}>".format(*signature(job.requester, server)) if job.requester else ""
    message = prose.render("replies/commit_run_ci.txt.j2", job=job, author=asked)
    async with kit.workspaces.clone(facts.clone_url, pull.head_sha, credentials) as workspace:
        git_dir, head = workspace.git_dir, workspace.base
        nothing = Patch(base=head, diff=b"")
        commit = await workspace.commit(nothing, message, author=signature(us, server) if us else AUTHOR)
        into = None if pull.same_repository else pull.head_repo
        return (await forge.publish(job.repo, git_dir, commit, pull.head, head, into)).sha


async def _said(
    job: Job, forge: Forge, what: Said, pull: PullRequest | None = None, detail: str = ""
) -> Commented:
    text = prose.reply("run_ci.md.j2", what=what, pull=pull, detail=detail, mark=MARK).strip()
    url = await tell(job, forge, text)
    verdict = Verdict(kind="empty", reason="Nothing was to be changed.")
    branch = pull.head if pull and what == "started" else None
    return Commented(url=url, branch=branch, reason=text, verdict=verdict)
