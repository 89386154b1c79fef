"""`Forge` on GitHub. Every effect is looked up before it is made, and again when its answer was lost."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from bot.ci.reading import Findings
from bot.errors import Rejected, Unanswered
from bot.github.answers import (
    BranchAnswer,
    DraftAnswer,
    IssueAnswer,
    PullAnswer,
    RepositoryAnswer,
)
from bot.github.attachments import Attachments, is_attachment
from bot.github.checks import Checks
from bot.github.comments import Comments, clipped
from bot.github.graphql import GraphQL
from bot.github.identity import Identity
from bot.github.publishing import Publishing
from bot.github.rest import ATTEMPTS, PER_PAGE, AppAccess, Pace, Rest, TokenAccess, path_of
from bot.github.reviews import Reviews
from bot.github.threads import Threads, as_pull_request, is_by
from bot.pacing import Line
from resolver.ci.checks import Check, Pushed
from resolver.delivery.finding import Finding
from resolver.domain import (
    Credentials,
    Job,
    Proposal,
    PullRequest,
    Repo,
    ReviewThread,
    Thread,
    User,
)
from resolver.errors import NotFound
from resolver.forge import MAX_BODY, Meanwhile, Permission, Published, RepoFacts

T = TypeVar("T")

MOST_PULLS = 300  # open ones of a repository that are looked at for ours
MAX_TITLE = 256  # characters; GitHub answers 422 to a longer one

TO_DRAFT = """mutation ToDraft($input: ConvertPullRequestToDraftInput!) {
  convertPullRequestToDraft(input: $input) { pullRequest { isDraft } }
}"""
TO_READY = """mutation ToReady($input: MarkPullRequestReadyForReviewInput!) {
  markPullRequestReadyForReview(input: $input) { pullRequest { isDraft } }
}"""


class GitHubForge:
    """Acts for a token, or for a GitHub App where it is installed. Enter it, or close it."""

    def __init__(
        self,
        access: TokenAccess | AppAccess,
        *,
        api_url: str = "https://api.github.com",
        graphql_url: str = "https://api.github.com/graphql",
        server_url: str = "https://github.com",
        ca_bundle: Path | None = None,
        pace: Pace | None = None,
        line: Line | None = None,
    ) -> None:
        """`line`: where writes wait for their turn; None: one of its own."""
        self._rest = Rest(access, api_url, ca_bundle, pace or Pace(), line)
        self._server_url = server_url.rstrip("/")
        self._graphql = GraphQL(self._rest, graphql_url)
        self._ourselves = Identity(self._rest, self._graphql)
        self._pulls: dict[tuple[Repo, str], tuple[str, tuple[PullRequest, ...]]] = {}
        """Our open ones of a repository, by their prefix, as they were at that etag."""
        self._attachments = Attachments(self._server_url, ca_bundle)
        self._publishing = Publishing(self._rest, self._graphql, self._server_url, ca_bundle)
        self._reviews = Reviews(self._rest, self._graphql, self._ourselves, self._made)
        self._threads = Threads(self._rest, self._reviews, self._ourselves)
        self._findings = Findings(self._rest, api_url, ca_bundle, self._ourselves)
        self._checks = Checks(self._rest, self._made)
        self._comments = Comments(self._rest, self._threads, self._ourselves, self._made)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._rest.aclose()

    @property
    def is_app(self) -> bool:
        return self._rest.is_app

    @property
    def rest(self) -> Rest:
        """For what is asked of GitHub beyond the seam, in the same name."""
        return self._rest

    async def greet(self) -> None:
        """Ask GitHub whether it knows us. Raises Unauthorized when it does not, ForgeError when it is away."""
        await self._rest.greet()

    # --- reading --------------------------------------------------------------------------------------------

    async def facts(self, repo: Repo) -> RepoFacts:
        seen = await self._rest.get(RepositoryAnswer, repo, *path_of(repo))
        try:
            await self._rest.get(BranchAnswer, repo, *path_of(repo), "branches", seen.default_branch)
            empty = False
        except NotFound:
            empty = True
        return RepoFacts(
            default_branch=seen.default_branch,
            clone_url=self._publishing.clone_url(repo),
            private=seen.private,
            empty=empty,
            archived=seen.archived,
        )

    async def thread(self, job: Job) -> Thread:
        return await self._threads.read(job)

    async def attachment(self, repo: Repo, url: str) -> bytes | None:
        if not is_attachment(url, self._server_url):
            return None
        return await self._attachments.fetch(url, await self.credentials(repo))

    async def permission(self, repo: Repo, user: User) -> Permission:
        return await self._threads.permission(repo, user)

    async def credentials(self, repo: Repo) -> Credentials:
        """A token for this one repository, good for 15 minutes at least; a personal token is what it is."""
        return await self._rest.credentials(repo)

    async def meanwhile(self, repo: Repo, number: int, branch: str, base: str) -> Meanwhile:
        has_base = await self._publishing.holds(repo, branch, base)
        try:
            thread = await self._rest.get(IssueAnswer, repo, *path_of(repo), "issues", str(number))
        except NotFound:  # deleted
            return Meanwhile(is_open=False, has_base=has_base)
        return Meanwhile(is_open=thread.state == "open", has_base=has_base)

    async def identity(self, repo: Repo) -> User | None:
        account = await self._ourselves(repo)
        return account.as_user() if account else None

    async def find_pull(self, repo: Repo, branch: str) -> PullRequest | None:
        pull = await self._open_pull(repo, branch)
        return (
            None if pull is None else as_pull_request(pull, trusted=is_by(pull, await self._ourselves(repo)))
        )

    async def our_pulls(self, repo: Repo, prefix: str) -> tuple[PullRequest, ...]:
        """The open pull requests that we have opened from branches with this prefix, among the newest ones there."""
        us = await self._ourselves(repo)
        etag, known = self._pulls.get((repo, prefix), ("", ()))
        query = {"state": "open", "sort": "created", "direction": "desc", "per_page": str(PER_PAGE)}
        path = (*path_of(repo), "pulls")
        page = await self._rest.page(list[PullAnswer], repo, *path, etag=etag, **query)
        if page is None:
            return known
        found, following = page.found, page.following
        while following and len(found) < MOST_PULLS:
            another = await self._rest.page(list[PullAnswer], repo, *path, **following)
            assert another is not None, "it was asked for without an etag"
            found, following = found + another.found, another.following
        ours = (one for one in found if one.same_repository and one.head.ref.startswith(prefix))
        told = tuple(as_pull_request(one, trusted=True) for one in ours if is_by(one, us))
        # An etag is of one page: it says nothing of what lies on others.
        if us is None or page.following:
            self._pulls.pop((repo, prefix), None)
        else:
            self._pulls[repo, prefix] = page.etag, told
        return told

    async def checks(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        return await self._findings.of(repo, commit)

    async def check_log(self, repo: Repo, check: Check) -> str:
        return await self._findings.log(repo, check)

    async def commits(self, repo: Repo, number: int) -> tuple[Pushed, ...]:
        return await self._findings.commits(repo, number)

    # --- writing --------------------------------------------------------------------------------------------

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        said = await self._comments.say(repo, number, tag, body)
        self._ourselves.learn(said.user)
        return said.html_url

    async def publish(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        into: Repo | None = None,
    ) -> Published:
        if into is not None:
            return await self._publishing.push_into(into, repo, git_dir, commit, branch, parent)
        return await self._publishing.publish(repo, git_dir, commit, branch, parent)

    async def propose(self, proposal: Proposal) -> PullRequest:
        repo, place = proposal.repo, (*path_of(proposal.repo), "pulls")
        words = {"title": proposal.title[:MAX_TITLE], "body": clipped(proposal.body, MAX_BODY)}

        async def find() -> PullAnswer | None:
            return await self._open_pull(repo, proposal.branch)

        async def make() -> PullAnswer:
            ends = {"head": proposal.branch, "base": proposal.base, "draft": proposal.draft}
            return await self._rest.post(PullAnswer, repo, *place, body=words | ends)

        pull = await find()
        if pull is None:
            pull = await self._made(make, find)
        if (pull.title, pull.body, pull.base.ref) != (words["title"], words["body"], proposal.base):
            change = words | {"base": proposal.base}
            await self._rest.patch(PullAnswer, repo, *place, str(pull.number), body=change)
        if pull.draft != proposal.draft:
            await self._set_draft(repo, pull, proposal.draft)
        for attempt in range(1, ATTEMPTS + 1):
            seen = await self._rest.get(PullAnswer, repo, *place, str(pull.number))
            if seen.head.sha == proposal.head_sha:
                break
            await asyncio.sleep(self._rest.pause(attempt))  # a push is shown here a moment later
        return as_pull_request(seen, trusted=True)

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        return await self._reviews.answer(repo, number, thread, tag, body)

    async def settle_thread(self, repo: Repo, thread: ReviewThread) -> None:
        await self._reviews.settle(repo, thread)

    async def show(self, repo: Repo, finding: Finding) -> str:
        return await self._checks.show(repo, finding)

    async def notice(self, repo: Repo, place: tuple[str, ...]) -> None:
        """Look at what somebody wrote or labelled: a pair of eyes, once however often it is given."""
        path = (*path_of(repo), *place, "reactions")
        await self._rest.post(dict[str, object], repo, *path, body={"content": "eyes"})

    async def _made(self, make: Callable[[], Awaitable[T]], find: Callable[[], Awaitable[T | None]]) -> T:
        """What `make` made. A lost answer is looked up; it is made again only if there is nothing."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await make()
            except (Unanswered, Rejected) as exc:
                # Rejected too: what was made by a request before whose answer was lost is in the way.
                if (found := await find()) is not None:
                    return found
                if isinstance(exc, Rejected) or attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(self._rest.pause(attempt))
        raise AssertionError("the last attempt returns or raises")

    async def _set_draft(self, repo: Repo, pull: PullAnswer, draft: bool) -> None:
        """REST cannot. Source: docs.github.com/graphql/reference/mutations#markpullrequestreadyforreview"""
        request = TO_DRAFT if draft else TO_READY
        await self._graphql.ask(DraftAnswer, repo, request, {"input": {"pullRequestId": pull.node_id}})

    # --- helpers --------------------------------------------------------------------------------------------

    async def _open_pull(self, repo: Repo, branch: str) -> PullAnswer | None:
        query = {"state": "open", "head": f"{repo.owner}:{branch}"}
        found = await self._rest.get(list[PullAnswer], repo, *path_of(repo), "pulls", **query)
        # GitHub answers a head that it does not understand with every pull request there is.
        return next((pull for pull in found if pull.head.ref == branch and pull.same_repository), None)
