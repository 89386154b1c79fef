"""Commits on GitHub: signed by it where its API carries the change, pushed by git where not; read back either way."""

import asyncio
from base64 import b64encode
from pathlib import Path

from bot.errors import Unanswered
from bot.github.answers import CommitAnswer, CommittedAnswer, ComparisonAnswer, RefAnswer
from bot.github.commit import Made, Plain, plain, read
from bot.github.graphql import GraphQL
from bot.github.rest import ATTEMPTS, Rest, path_of
from resolver.ci.checks import run_of
from resolver.delivery.delivery_prose import by_git
from resolver.domain import Repo
from resolver.errors import (
    BranchMoved,
    Forbidden,
    ForgeError,
    NotFound,
    RateLimited,
    Unauthorized,
    WorkspaceError,
)
from resolver.forge import Published
from resolver.git.remote import push

COMMIT = """mutation Commit($input: CreateCommitOnBranchInput!) {
  createCommitOnBranch(input: $input) { commit { oid } }
}"""


class Publishing:
    """Puts commits on branches, each once, whatever is lost on the way."""

    def __init__(self, rest: Rest, graphql: GraphQL, server_url: str, ca_bundle: Path | None) -> None:
        self._rest = rest
        self._graphql = graphql
        self._server_url = server_url
        self._ca_bundle = ca_bundle

    def clone_url(self, repo: Repo) -> str:
        # Not the one that the API names: our token goes there.
        return f"{self._server_url}/{repo.owner}/{repo.name}.git"

    async def tip(self, repo: Repo, branch: str, fork: Repo | None = None) -> str | None:
        name = f"heads/{branch}"
        try:
            asked = (*path_of(fork or repo), "git", "ref", *name.split("/"))
            found = await self._rest.get(RefAnswer, repo, *asked)
        except NotFound:
            return None
        return found.object.sha

    async def holds(self, repo: Repo, branch: str, commit: str) -> bool:
        """Whether the branch has this commit in its history."""
        if await self.tip(repo, branch) == commit:
            return True
        try:
            ends = f"{commit}...{branch}"
            asked = (*path_of(repo), "compare", ends)
            seen = await self._rest.get(ComparisonAnswer, repo, *asked, per_page="1")
        except NotFound:
            return False  # no such branch any more, no such commit, or nothing in common
        return seen.status in ("identical", "ahead")

    async def publish(self, repo: Repo, git_dir: Path, commit: str, branch: str, parent: str) -> Published:
        """See Forge."""
        made = await read(git_dir, commit)
        change = await plain(git_dir, made, parent)
        tip = await self.tip(repo, branch)
        if tip not in (None, parent):
            return await self._ours(repo, branch, tip, made, change)
        if isinstance(change, Plain):
            try:
                tip = await self._by_api(repo, branch, made, change, is_new=tip is None)
                if (seen := await self._seen(repo, tip, made, "")) is not None:
                    return seen
                change = by_git("different")  # and the commit at `tip`, which is ours, gives way
            except (BranchMoved, RateLimited, Unauthorized):
                raise
            except ForgeError as exc:
                # The same token may still do it by git; if it may not, git's refusal is the last word.
                change = by_git("refused", str(exc))
                if (tip := await self.tip(repo, branch)) not in (None, parent):
                    return await self._ours(repo, branch, tip, made, change)
        return await self._by_git(repo, git_dir, branch, tip, made, change)

    async def push_into(
        self, fork: Repo, repo: Repo, git_dir: Path, commit: str, branch: str, parent: str
    ) -> Published:
        """Push to a fork in the name that we have in `repo`: its owner lets those in who may write there."""
        tip = await self.tip(repo, branch, fork)
        if tip not in (commit, parent):
            raise BranchMoved(
                f"{branch} of {fork} is at {tip[:12] if tip else 'no commit'}, not at {parent[:12]}"
            )
        if tip != commit:
            credentials = await self._rest.credentials(repo)
            await push(git_dir, self.clone_url(fork), commit, branch, credentials, parent, self._ca_bundle)
            if (now := await self.tip(repo, branch, fork)) != commit:
                raise WorkspaceError(
                    f"{branch} of {fork} was pushed, but GitHub shows {now or 'no such branch'}"
                )
        return Published(sha=commit, verified=False, note=by_git("fork"))

    # --- by the API -----------------------------------------------------------------------------------------

    async def _by_api(self, repo: Repo, branch: str, made: Made, change: Plain, *, is_new: bool) -> str:
        """The id of the commit that is at the branch's tip now. Raises ForgeError."""
        (parent,) = made.parents
        if is_new:
            await self._begin(repo, branch, parent)
        try:
            sha = await self._commit(repo, branch, made, change)
        except Forbidden as exc:
            if is_new and not isinstance(exc, BranchMoved) and await self.tip(repo, branch) == parent:
                # What was begun is of no use to anybody.
                await self._rest.delete(repo, *path_of(repo), "git", "refs", "heads", *branch.split("/"))
            raise
        if (now := await self._settled(repo, branch, sha, parent)) != sha:
            raise BranchMoved(f"{branch} of {repo} is at {now or 'no commit'}, not at our {sha[:12]}")
        return sha

    async def _begin(self, repo: Repo, branch: str, parent: str) -> None:
        """The branch, at the commit that ours goes on. Raises ForgeError."""
        body = {"ref": f"refs/heads/{branch}", "sha": parent}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._rest.post(RefAnswer, repo, *path_of(repo), "git", "refs", body=body)
                return
            except ForgeError as exc:
                if await self.tip(repo, branch) == parent:
                    return  # its answer was lost, or that of an earlier try
                if not isinstance(exc, Unanswered) or attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(self._rest.pause(attempt))

    async def _commit(self, repo: Repo, branch: str, made: Made, change: Plain) -> str:
        """The id of the commit that GitHub made. Raises ForgeError."""
        (parent,) = made.parents
        variables = {
            "input": {
                "branch": {"repositoryNameWithOwner": str(repo), "branchName": branch},
                "expectedHeadOid": parent,
                "message": {"headline": made.headline, "body": made.body},
                "fileChanges": {
                    "additions": [
                        {"path": path, "contents": b64encode(content).decode()}
                        for path, content in change.additions.items()
                    ],
                    "deletions": [{"path": path} for path in change.deletions],
                },
            }
        }
        for attempt in range(1, ATTEMPTS + 1):
            try:
                done = await self._graphql.ask(CommittedAnswer, repo, COMMIT, variables, again=False)
                return done.commit.oid
            except (Unanswered, BranchMoved, NotFound) as exc:
                # A commit may be there although its answer was lost; a second one would be refused as stale.
                tip = await self.tip(repo, branch)
                if tip not in (None, parent):
                    if made.is_in(await self._read(repo, tip)):
                        return tip
                    raise BranchMoved(f"{branch} of {repo} is at {tip[:12]}, which is not ours") from exc
                # A branch that was just made is not seen by all of GitHub at once.
                if attempt == ATTEMPTS:
                    raise Unanswered(str(exc)) from exc
            await asyncio.sleep(self._rest.pause(attempt))
        raise AssertionError("the last attempt returns or raises")

    # --- by git ---------------------------------------------------------------------------------------------

    async def _by_git(
        self, repo: Repo, git_dir: Path, branch: str, tip: str | None, made: Made, note: str
    ) -> Published:
        credentials = await self._rest.credentials(repo)
        arguments = (git_dir, self.clone_url(repo), made.sha, branch)
        try:
            await push(*arguments, credentials, tip, self._ca_bundle)
        except Unauthorized:
            # Revoked or expired before its time.
            self._rest.forget(repo, credentials)
            renewed = await self._rest.credentials(repo)
            if renewed == credentials:
                raise
            await push(*arguments, renewed, tip, self._ca_bundle)
        if (now := await self._settled(repo, branch, made.sha, tip)) != made.sha:
            raise WorkspaceError(f"{branch} of {repo} was pushed, but GitHub shows {now or 'no such branch'}")
        if (seen := await self._seen(repo, made.sha, made, note)) is None:
            raise WorkspaceError(f"GitHub shows another tree for {made.sha[:12]} of {repo} than was pushed")
        return seen

    # --- reading back ---------------------------------------------------------------------------------------

    async def _settled(self, repo: Repo, branch: str, wanted: str, before: str | None) -> str | None:
        """The branch's tip once it is not the one `before` any more: what was written is shown a moment later."""
        for attempt in range(1, ATTEMPTS + 1):
            if (now := await self.tip(repo, branch)) == wanted or now not in (None, before):
                break
            await asyncio.sleep(self._rest.pause(attempt))
        return now

    async def _ours(
        self, repo: Repo, branch: str, tip: str | None, made: Made, change: Plain | str
    ) -> Published:
        """What an earlier try has left, if it is just this. Raises BranchMoved."""
        assert tip is not None
        note = change if isinstance(change, str) else ""
        if (seen := await self._seen(repo, tip, made, note)) is None:
            raise BranchMoved(f"{branch} of {repo} is at {tip[:12]}, which is not ours to move")
        return seen

    async def _seen(self, repo: Repo, sha: str, made: Made, note: str) -> Published | None:
        """The commit as GitHub shows it; None when its tree or its parents are others than those of ours."""
        seen = await self._read(repo, sha)
        if not made.is_in(seen):
            return None
        verified = seen.verification.verified
        if not verified and not note:
            note = by_git("unsigned", seen.verification.reason)
        earlier = run_of(seen.message) != run_of(made.body)
        return Published(sha=sha, verified=verified, note="" if verified else note, earlier=earlier)

    async def _read(self, repo: Repo, sha: str) -> CommitAnswer:
        return await self._rest.get(CommitAnswer, repo, *path_of(repo), "git", "commits", sha)
