"""Publishes commits and verifies the result. GitHub's API signs the commits that it creates, so the API is
tried first. Git push is used if the API cannot publish a commit.
"""

import asyncio
from base64 import b64encode
from pathlib import Path

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.graphql import GraphQLClient
from patchwright.bot.github.local_commit import FileChanges, LocalCommit, read_commit, read_file_changes
from patchwright.bot.github.rest import MAX_ATTEMPTS, RestClient, repo_path
from patchwright.bot.github.schemas import (
    CommitResponse,
    ComparisonResponse,
    CreateCommitResponse,
    RefResponse,
)
from patchwright.resolver.checks import parse_run_id
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import (
    BranchMoved,
    Forbidden,
    ForgeError,
    NotFound,
    RateLimited,
    Unauthorized,
    WorkspaceError,
)
from patchwright.resolver.forge import PublishedCommit
from patchwright.resolver.git.remote import push
from patchwright.resolver.publishing.publishing_texts import render_unsigned_reason

CREATE_COMMIT = """mutation Commit($input: CreateCommitOnBranchInput!) {
  createCommitOnBranch(input: $input) { commit { oid } }
}"""


class CommitPublisher:
    """Publishes each commit to its branch exactly once, even if responses are lost."""

    def __init__(
        self, rest: RestClient, graphql: GraphQLClient, server_url: str, ca_bundle: Path | None
    ) -> None:
        self._rest = rest
        self._graphql = graphql
        self._server_url = server_url
        self._ca_bundle = ca_bundle

    def clone_url(self, repo: Repo) -> str:
        # The URL is built from our settings. An API response could name another server, which would get our
        # token.
        return f"{self._server_url}/{repo.owner}/{repo.name}.git"

    async def get_tip(self, repo: Repo, branch: str, fork: Repo | None = None) -> str | None:
        name = f"heads/{branch}"
        try:
            path = (*repo_path(fork or repo), "git", "ref", *name.split("/"))
            ref = await self._rest.get(RefResponse, repo, *path)
        except NotFound:
            return None
        return ref.object.sha

    async def has_commit(self, repo: Repo, branch: str, commit: str) -> bool:
        """Returns whether the branch contains this commit."""
        if await self.get_tip(repo, branch) == commit:
            return True
        try:
            commits = f"{commit}...{branch}"
            path = (*repo_path(repo), "compare", commits)
            comparison = await self._rest.get(ComparisonResponse, repo, *path, per_page="1")
        except NotFound:
            return False  # the branch or the commit does not exist, or they have no common history
        return comparison.status in ("identical", "ahead")

    async def publish(
        self, repo: Repo, git_dir: Path, commit: str, branch: str, parent: str
    ) -> PublishedCommit:
        """Publishes a commit to a branch: see `Forge.push_commit`."""
        local = await read_commit(git_dir, commit)
        change = await read_file_changes(git_dir, local, parent)
        tip = await self.get_tip(repo, branch)
        if tip not in (None, parent):
            return await self._verify_existing(repo, branch, tip, local, change)
        if isinstance(change, FileChanges):
            try:
                tip = await self._publish_by_api(repo, branch, local, change, is_new=tip is None)
                if (published := await self._read_back(repo, tip, local, "")) is not None:
                    return published
                # git replaces the commit that the API has created at `tip`
                change = render_unsigned_reason("different")
            except (BranchMoved, RateLimited, Unauthorized):
                raise
            except ForgeError as exc:
                # The token may still be allowed to push with git. If it is not, the error of git is reported.
                change = render_unsigned_reason("refused", str(exc))
                if (tip := await self.get_tip(repo, branch)) not in (None, parent):
                    return await self._verify_existing(repo, branch, tip, local, change)
        return await self._publish_by_git(repo, git_dir, branch, tip, local, change)

    async def push_to_fork(
        self, fork: Repo, repo: Repo, git_dir: Path, commit: str, branch: str, parent: str
    ) -> PublishedCommit:
        """Pushes a commit to a branch of a fork, with the credentials for `repo`. GitHub allows this if the
        fork's owner lets the maintainers of `repo` push.
        """
        tip = await self.get_tip(repo, branch, fork)
        if tip not in (commit, parent):
            raise BranchMoved(
                f"{branch} of {fork} is at {tip[:12] if tip else 'no commit'}, not at {parent[:12]}"
            )
        if tip != commit:
            credentials = await self._rest.get_credentials(repo)
            await push(git_dir, self.clone_url(fork), commit, branch, credentials, parent, self._ca_bundle)
            if (now := await self.get_tip(repo, branch, fork)) != commit:
                raise WorkspaceError(
                    f"{branch} of {fork} was pushed, but is at {now or 'no commit'} on GitHub"
                )
        return PublishedCommit(sha=commit, is_verified=False, note=render_unsigned_reason("fork"))

    # --- by the API -----------------------------------------------------------------------------------------

    async def _publish_by_api(
        self, repo: Repo, branch: str, commit: LocalCommit, change: FileChanges, *, is_new: bool
    ) -> str:
        """Creates the commit through the API. Returns the SHA of the commit, which is then the tip of the
        branch. Raises ForgeError.
        """
        (parent,) = commit.parents
        if is_new:
            await self._create_branch(repo, branch, parent)
        try:
            sha = await self._create_commit(repo, branch, commit, change)
        except Forbidden as exc:
            if is_new and not isinstance(exc, BranchMoved) and await self.get_tip(repo, branch) == parent:
                # The new branch is useless without the commit, so it is deleted.
                await self._rest.delete(repo, *repo_path(repo), "git", "refs", "heads", *branch.split("/"))
            raise
        if (now := await self._wait_for_tip(repo, branch, sha, parent)) != sha:
            raise BranchMoved(f"{branch} of {repo} is at {now or 'no commit'}, not at our {sha[:12]}")
        return sha

    async def _create_branch(self, repo: Repo, branch: str, parent: str) -> None:
        """Creates the branch at `parent`. Raises ForgeError."""
        body = {"ref": f"refs/heads/{branch}", "sha": parent}
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                await self._rest.post(RefResponse, repo, *repo_path(repo), "git", "refs", body=body)
                return
            except ForgeError as exc:
                if await self.get_tip(repo, branch) == parent:
                    # the branch exists, because this request or an earlier one succeeded and its response was
                    # lost
                    return
                if not isinstance(exc, ForgeUnavailable) or attempt == MAX_ATTEMPTS:
                    raise
            await asyncio.sleep(self._rest.backoff(attempt))

    async def _create_commit(self, repo: Repo, branch: str, commit: LocalCommit, change: FileChanges) -> str:
        """Creates the commit on GitHub and returns its SHA. Raises ForgeError."""
        (parent,) = commit.parents
        variables = {
            "input": {
                "branch": {"repositoryNameWithOwner": str(repo), "branchName": branch},
                "expectedHeadOid": parent,
                "message": {"headline": commit.headline, "body": commit.body},
                "fileChanges": {
                    "additions": [
                        {"path": path, "contents": b64encode(content).decode()}
                        for path, content in change.additions.items()
                    ],
                    "deletions": [{"path": path} for path in change.deletions],
                },
            }
        }
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                created = await self._graphql.execute(
                    CreateCommitResponse, repo, CREATE_COMMIT, variables, idempotent=False
                )
                return created.sha
            except (ForgeUnavailable, BranchMoved, NotFound) as exc:
                # The response may have been lost although GitHub created the commit. GitHub then rejects a
                # second commit as stale.
                tip = await self.get_tip(repo, branch)
                if tip not in (None, parent):
                    if commit.matches(await self._get_commit(repo, tip)):
                        return tip
                    raise BranchMoved(
                        f"{branch} of {repo} is at {tip[:12]}, which is not our commit"
                    ) from exc
                # GitHub may not find a new branch at first, so the request is repeated.
                if attempt == MAX_ATTEMPTS:
                    raise ForgeUnavailable(str(exc)) from exc
            await asyncio.sleep(self._rest.backoff(attempt))
        raise AssertionError("the last attempt returns or raises")

    # --- by git ---------------------------------------------------------------------------------------------

    async def _publish_by_git(
        self, repo: Repo, git_dir: Path, branch: str, tip: str | None, commit: LocalCommit, note: str
    ) -> PublishedCommit:
        credentials = await self._rest.get_credentials(repo)
        arguments = (git_dir, self.clone_url(repo), commit.sha, branch)
        try:
            await push(*arguments, credentials, tip, self._ca_bundle)
        except Unauthorized:
            # The token was revoked, or expired before the announced time.
            self._rest.invalidate_credentials(repo, credentials)
            renewed = await self._rest.get_credentials(repo)
            if renewed == credentials:
                raise
            await push(*arguments, renewed, tip, self._ca_bundle)
        if (now := await self._wait_for_tip(repo, branch, commit.sha, tip)) != commit.sha:
            raise WorkspaceError(f"{branch} of {repo} was pushed, but is at {now or 'no commit'} on GitHub")
        if (published := await self._read_back(repo, commit.sha, commit, note)) is None:
            raise WorkspaceError(
                f"{commit.sha[:12]} of {repo} has a different tree on GitHub than the pushed commit"
            )
        return published

    # --- reading back ---------------------------------------------------------------------------------------

    async def _wait_for_tip(self, repo: Repo, branch: str, expected: str, previous: str | None) -> str | None:
        """Waits until the branch's tip is no longer `previous`, because GitHub shows writes with a delay.
        Returns the tip.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if (now := await self.get_tip(repo, branch)) == expected or now not in (None, previous):
                break
            await asyncio.sleep(self._rest.backoff(attempt))
        return now

    async def _verify_existing(
        self, repo: Repo, branch: str, tip: str | None, commit: LocalCommit, change: FileChanges | str
    ) -> PublishedCommit:
        """Returns the commit at the branch's tip if an earlier attempt has published it. Raises BranchMoved
        if the tip is another commit.
        """
        assert tip is not None
        note = change if isinstance(change, str) else ""
        if (published := await self._read_back(repo, tip, commit, note)) is None:
            raise BranchMoved(f"{branch} of {repo} is at {tip[:12]}, which is not our commit")
        return published

    async def _read_back(
        self, repo: Repo, sha: str, commit: LocalCommit, note: str
    ) -> PublishedCommit | None:
        """Reads the published commit from GitHub. Returns None if its tree or its parents differ from those
        of our commit.
        """
        response = await self._get_commit(repo, sha)
        if not commit.matches(response):
            return None
        verified = response.is_verified
        if not verified and not note:
            note = render_unsigned_reason("unsigned", response.verification_reason)
        already_existed = parse_run_id(response.message) != parse_run_id(commit.body)
        return PublishedCommit(
            sha=sha, is_verified=verified, note="" if verified else note, already_existed=already_existed
        )

    async def _get_commit(self, repo: Repo, sha: str) -> CommitResponse:
        return await self._rest.get(CommitResponse, repo, *repo_path(repo), "git", "commits", sha)
