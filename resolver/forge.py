"""Defines the protocol `Forge`, the interface to GitHub. The wrappers in this module mask secrets, forbid
writes, or only show what would be written.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from patchwright.resolver.authorization import Permission
from patchwright.resolver.checks import Check, PullCommit
from patchwright.resolver.domain import Credentials, Job, PullRequest, Repo, ReviewThread, Thread, User
from patchwright.resolver.errors import WriteBlocked
from patchwright.resolver.forge_writes import CheckRunReport, PullRequestSpec
from patchwright.runtime.frozen_model import FrozenModel

MAX_BODY = 65_536  # Characters; GitHub answers 422 to a longer comment or pull request body.

MAX_ATTACHMENT = 25_000_000  # Bytes; GitHub accepts no larger file, except for videos in paid plans.


class RepoFacts(FrozenModel):
    """Facts about a repository on the forge."""

    default_branch: str
    clone_url: str
    """HTTPS URL without credentials; HTTP for a local test server."""
    private: bool
    empty: bool
    """True if the repository has no commit yet."""
    archived: bool = False
    """True if the repository is archived, so that nobody can write to it."""


class PublishedCommit(FrozenModel):
    """A commit that was pushed to a branch and then read back from the forge. It has the same tree and
    parents as the local commit.
    """

    sha: str
    """Commit id on the forge, which differs from the local id if the forge signs the commit."""
    is_verified: bool
    """True if the forge shows the commit as signed."""
    note: str = ""
    """Why the commit is not signed, in a sentence; empty if it is signed."""
    already_existed: bool = False
    """True if the branch already contained this change, which another run or a person pushed."""


class ThreadState(FrozenModel):
    """The current state of a thread and of its base branch."""

    is_open: bool
    is_locked: bool
    has_base: bool
    """True if the base branch still contains the commit that the run started from."""


class HeadState(FrozenModel):
    """The current state of a pull request and of its head branch."""

    is_open: bool
    is_locked: bool
    head_sha: str
    can_push: bool
    """False if the branch is in a fork whose owner does not allow edits by maintainers."""


class Forge(Protocol):
    """Access to the issues, pull requests and branches of a forge such as GitHub.

    Every method may raise ForgeError (RateLimited, Unauthorized, Forbidden, NotFound). Before a
    write, a method reads the current state from the forge. If a response is lost, it reads the state again
    and then retries. After a write, it reads the result back from the forge and returns it.
    """

    async def get_repo_facts(self, repo: Repo) -> RepoFacts: ...

    async def get_thread(self, job: Job) -> Thread:
        """Returns the issue or pull request as it is now, with its comments, oldest first."""

    async def list_commands(self, job: Job, label: str, mention: str) -> tuple[str, ...]:
        """Returns what people with write access requested in the thread before the job was requested, oldest first.

        A command is the text after the mention, or "" if the label was added.
        """

    async def download_attachment(self, repo: Repo, url: str) -> bytes | None:
        """Downloads a file of at most MAX_ATTACHMENT bytes that is attached to a thread.

        Returns None and sends no request if the URL is not the URL of an attachment on the forge.
        """

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        """Returns the user's permission, looked up by numeric id; "none" if the forge reports an unknown permission."""

    async def get_credentials(self, repo: Repo) -> Credentials:
        """Returns a token that can clone this one repository and push to it."""

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        """Creates or updates our comment with this hidden tag. Returns its URL.

        A body longer than MAX_BODY is truncated, and a note says so. Comments by other users are ignored,
        even if they contain our tag.
        """

    async def get_thread_state(self, repo: Repo, number: int, branch: str, base: str) -> ThreadState:
        """Returns the current state of the thread, and whether `branch` still contains the commit `base`."""

    async def get_head_state(self, repo: Repo, number: int) -> HeadState:
        """Returns the current state of a pull request, without its texts."""

    async def get_bot_user(self, repo: Repo) -> User | None:
        """Returns the account that the forge shows as the author of our writes. Returns None if the account is
        unknown.
        """

    async def push_commit(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        target_repo: Repo | None = None,
    ) -> PublishedCommit:
        """Pushes `commit` from the bare repository `git_dir` to `branch`. The branch must point to `parent`
        or not exist.

        If the forge can sign commits, it creates and signs a new commit with the same tree. Otherwise, the commit is
        pushed unchanged. Does nothing if the branch already contains the commit. `target_repo` is the fork that
        contains the branch, or None if the branch is in `repo`. Raises BranchMoved if the branch points to another
        commit. Raises Forbidden or WorkspaceError if the forge accepts neither the signed nor the unchanged commit.
        """

    async def find_pull_request(self, repo: Repo, branch: str) -> PullRequest | None:
        """Returns the open pull request from this branch of this repository, or None if there is none."""

    async def find_declined_pull_request(self, repo: Repo, branch: str) -> PullRequest | None:
        """Returns the latest pull request that we or another App opened from this branch of this repository, if it was
        closed without being merged. Otherwise, returns None.
        """

    async def open_pull_request(self, spec: PullRequestSpec) -> PullRequest:
        """Opens the pull request, or updates the one that is already open for this branch."""

    async def reply_to_thread(
        self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str
    ) -> str:
        """Replies in a review thread, unless a reply with the same hidden tag exists. Returns the reply's URL."""

    async def resolve_thread(self, repo: Repo, thread: ReviewThread) -> None:
        """Marks a review thread as resolved. Does nothing if the thread is already resolved. Raises Forbidden
        if our token cannot resolve threads.
        """

    async def list_checks(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        """Returns the checks of this commit, except those that Patchwright created. `commit` is a commit ID
        or a branch name. For a branch name, the checks of the branch's latest commit are returned.
        """

    async def get_check_log(self, repo: Repo, check: Check) -> str:
        """Returns the part of a check's log or report that explains why the check failed. Returns an empty
        string if there is no log or report.
        """

    async def list_commits(self, repo: Repo, number: int) -> tuple[PullCommit, ...]:
        """Returns at most 250 commits of a pull request, oldest first."""

    async def create_check_run(self, repo: Repo, report: CheckRunReport) -> str:
        """Creates a check run with our result, once for each job. Returns its URL, or an empty string if our
        token cannot create check runs.
        """


class _WrapperForge:
    """Forwards every call to another forge. Subclasses override what they change."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge

    async def get_repo_facts(self, repo: Repo) -> RepoFacts:
        return await self._forge.get_repo_facts(repo)

    async def get_thread(self, job: Job) -> Thread:
        return await self._forge.get_thread(job)

    async def list_commands(self, job: Job, label: str, mention: str) -> tuple[str, ...]:
        return await self._forge.list_commands(job, label, mention)

    async def download_attachment(self, repo: Repo, url: str) -> bytes | None:
        return await self._forge.download_attachment(repo, url)

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        return await self._forge.get_permission(repo, user)

    async def get_credentials(self, repo: Repo) -> Credentials:
        return await self._forge.get_credentials(repo)

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        return await self._forge.upsert_comment(repo, number, tag, body, in_progress=in_progress)

    async def get_thread_state(self, repo: Repo, number: int, branch: str, base: str) -> ThreadState:
        return await self._forge.get_thread_state(repo, number, branch, base)

    async def get_head_state(self, repo: Repo, number: int) -> HeadState:
        return await self._forge.get_head_state(repo, number)

    async def get_bot_user(self, repo: Repo) -> User | None:
        return await self._forge.get_bot_user(repo)

    async def push_commit(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        target_repo: Repo | None = None,
    ) -> PublishedCommit:
        return await self._forge.push_commit(repo, git_dir, commit, branch, parent, target_repo)

    async def find_pull_request(self, repo: Repo, branch: str) -> PullRequest | None:
        return await self._forge.find_pull_request(repo, branch)

    async def find_declined_pull_request(self, repo: Repo, branch: str) -> PullRequest | None:
        return await self._forge.find_declined_pull_request(repo, branch)

    async def open_pull_request(self, spec: PullRequestSpec) -> PullRequest:
        return await self._forge.open_pull_request(spec)

    async def reply_to_thread(
        self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str
    ) -> str:
        return await self._forge.reply_to_thread(repo, number, thread, tag, body)

    async def resolve_thread(self, repo: Repo, thread: ReviewThread) -> None:
        await self._forge.resolve_thread(repo, thread)

    async def list_checks(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        return await self._forge.list_checks(repo, commit)

    async def get_check_log(self, repo: Repo, check: Check) -> str:
        return await self._forge.get_check_log(repo, check)

    async def list_commits(self, repo: Repo, number: int) -> tuple[PullCommit, ...]:
        return await self._forge.list_commits(repo, number)

    async def create_check_run(self, repo: Repo, report: CheckRunReport) -> str:
        return await self._forge.create_check_run(repo, report)


class MaskingForge(_WrapperForge):
    """Masks the run's secrets in everything that is written to the forge."""

    def __init__(self, forge: Forge, mask: Callable[[str], str]) -> None:
        super().__init__(forge)
        self._mask = mask

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        return await self._forge.upsert_comment(repo, number, tag, self._mask(body), in_progress=in_progress)

    async def open_pull_request(self, spec: PullRequestSpec) -> PullRequest:
        masked = {"title": self._mask(spec.title), "body": self._mask(spec.body)}
        return await self._forge.open_pull_request(spec.model_copy(update=masked))

    async def reply_to_thread(
        self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str
    ) -> str:
        return await self._forge.reply_to_thread(repo, number, thread, tag, self._mask(body))

    async def create_check_run(self, repo: Repo, report: CheckRunReport) -> str:
        masked = {"title": self._mask(report.title), "summary": self._mask(report.summary)}
        return await self._forge.create_check_run(repo, report.model_copy(update=masked))


class ReadOnlyForge(_WrapperForge):
    """Allows only reads, for a run whose result another job will publish.

    The first write of the run raises WriteBlocked. A job with write access then continues the run from its log, as
    after a crash. Comments of other runs are skipped without an error. The job with write access posts them later.
    """

    def __init__(self, forge: Forge, run: str) -> None:
        super().__init__(forge)
        self._run = run

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        if tag == self._run:
            raise WriteBlocked(f"a comment on {repo}#{number}")
        return ""

    async def push_commit(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        target_repo: Repo | None = None,
    ) -> PublishedCommit:
        raise WriteBlocked(f"a commit on {branch}")

    async def open_pull_request(self, spec: PullRequestSpec) -> PullRequest:
        raise WriteBlocked(f"a pull request from {spec.branch}")

    async def reply_to_thread(
        self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str
    ) -> str:
        raise WriteBlocked(f"a reply on {repo}#{number}")

    async def resolve_thread(self, repo: Repo, thread: ReviewThread) -> None:
        raise WriteBlocked(f"the resolution of a review thread in {repo}")

    async def create_check_run(self, repo: Repo, report: CheckRunReport) -> str:
        raise WriteBlocked(f"a check run on {report.commit[:12]}")


DRY_RUN_URL = "dry-run"
"""A dry run writes nothing. It returns this text instead of the URL of a comment, check run or pull request."""


class DryRunForge(_WrapperForge):
    """Reads from the forge, but does not write to it. Shows what would be written."""

    def __init__(self, forge: Forge, show: Callable[[str, str], None]) -> None:
        super().__init__(forge)
        self._show = show

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        self._show(f"comment on {repo}#{number}", body)
        return DRY_RUN_URL

    async def push_commit(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        target_repo: Repo | None = None,
    ) -> PublishedCommit:
        self._show(f"commit {commit[:12]} to {branch}{f' of {target_repo}' if target_repo else ''}", "")
        return PublishedCommit(sha=commit, is_verified=False, note="nothing was published")

    async def reply_to_thread(
        self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str
    ) -> str:
        self._show(f"reply at {thread.path} in {repo}#{number}", body)
        return DRY_RUN_URL

    async def resolve_thread(self, repo: Repo, thread: ReviewThread) -> None:
        self._show(f"resolve the thread at {thread.path}", "")

    async def create_check_run(self, repo: Repo, report: CheckRunReport) -> str:
        self._show(f"check run on {report.commit[:12]}: {report.title}", report.summary)
        return DRY_RUN_URL

    async def open_pull_request(self, spec: PullRequestSpec) -> PullRequest:
        self._show(f"pull request: {spec.title}", spec.body)
        return PullRequest(
            number=spec.number,
            title=spec.title,
            body=spec.body,
            author=User(id=0, login="patchwright"),
            trusted=True,
            open=True,
            url=DRY_RUN_URL,
            head_branch=spec.branch,
            head_sha=spec.head_sha,
            base_branch=spec.base_branch,
            draft=spec.draft,
            is_same_repository=True,
        )
