"""Implements `Forge` for GitHub. To avoid writing something twice, checks before each write whether an earlier
attempt succeeded. Checks again if the response to a write is lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from patchwright.bot.errors import ForgeUnavailable, UnprocessableRequest
from patchwright.bot.github.attachments import AttachmentDownloader, is_attachment
from patchwright.bot.github.auth import AppAuth, GitHubServer, RequestPolicy, TokenAuth
from patchwright.bot.github.check_reader import CheckReader
from patchwright.bot.github.check_runs import CheckRuns
from patchwright.bot.github.comments import Comments, truncate_body
from patchwright.bot.github.commit_publisher import CommitPublisher
from patchwright.bot.github.graphql import GraphQLClient
from patchwright.bot.github.identity import Identity
from patchwright.bot.github.linked_code import LinkedCodeDownloader
from patchwright.bot.github.rest import MAX_ATTEMPTS, PER_PAGE, RestClient, repo_path
from patchwright.bot.github.reviews import Reviews
from patchwright.bot.github.schemas import (
    BranchResponse,
    ClosedPullRequestResponse,
    GitHubResponse,
    IssueResponse,
    PullRequestResponse,
    RepositoryResponse,
)
from patchwright.bot.github.threads import Threads, as_pull_request, is_by
from patchwright.bot.github.write_check import WriteCheck
from patchwright.bot.write_limiter import WriteLimiter
from patchwright.resolver.authorization import Permission
from patchwright.resolver.checks import Check, PullCommit
from patchwright.resolver.domain import Credentials, Job, PullRequest, Repo, ReviewThread, Thread, User
from patchwright.resolver.errors import ForgeError, NotFound
from patchwright.resolver.forge import MAX_BODY, HeadState, PublishedCommit, RepoFacts, ThreadState
from patchwright.resolver.forge_writes import CheckRunReport, PullRequestSpec

if TYPE_CHECKING:
    from patchwright.bot.redis.comment_outbox import CommentOutbox

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_PULLS = 300  # maximum number of open pull requests that are searched for those of the bot
MAX_TITLE = 256  # characters; GitHub returns 422 for longer ones

CONVERT_TO_DRAFT = """mutation ToDraft($input: ConvertPullRequestToDraftInput!) {
  convertPullRequestToDraft(input: $input) { pullRequest { isDraft } }
}"""
MARK_READY = """mutation ToReady($input: MarkPullRequestReadyForReviewInput!) {
  markPullRequestReadyForReview(input: $input) { pullRequest { isDraft } }
}"""


class GitHubForge:
    """A forge for GitHub that uses a token or a GitHub App. Use it as a context manager, or close it."""

    def __init__(
        self,
        auth: TokenAuth | AppAuth,
        server: GitHubServer,
        *,
        ca_bundle: Path | None = None,
        policy: RequestPolicy | None = None,
        write_limiter: WriteLimiter | None = None,
    ) -> None:
        """`write_limiter` enforces a minimum time between writes. If it is None, creates a limiter for this
        process only.
        """
        self._rest = RestClient(
            auth, server.github_api_url, ca_bundle, policy or RequestPolicy(), write_limiter
        )
        self._server_url = server.github_server_url
        self._graphql = GraphQLClient(self._rest, server.graphql_url)
        self.identity = Identity(self._rest, self._graphql)
        """Returns the bot's own account."""
        self._pull_cache: dict[tuple[Repo, str], tuple[str, tuple[PullRequest, ...]]] = {}
        """The bot's open pull requests for each repository and branch prefix, with the ETag of GitHub's list.
        """
        self._attachments = AttachmentDownloader(self._server_url, ca_bundle)
        self._linked_code = LinkedCodeDownloader(server, ca_bundle)
        self._commit_publisher = CommitPublisher(self._rest, self._graphql, self._server_url, ca_bundle)
        self._reviews = Reviews(self._rest, self._graphql, self.identity, self._create_once)
        self._threads = Threads(self._rest, self._reviews, self.identity)
        self._findings = CheckReader(self._rest, server.github_api_url, ca_bundle, self.identity)
        self.write_check = WriteCheck(self._rest, self._server_url, ca_bundle)
        self._check_runs = CheckRuns(self._rest, self._create_once)
        self._comments = Comments(self._rest, self._threads, self.identity, self._create_once)
        self.outbox: CommentOutbox | None = None
        """Stores the final text of each job until GitHub accepts it. If the outbox is None, a text that GitHub
        rejects is lost.
        """

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
    def rest(self) -> RestClient:
        """The REST client, for requests that the `Forge` protocol does not include."""
        return self._rest

    async def verify_credentials(self) -> None:
        """Checks the credentials. Raises Unauthorized if GitHub rejects them, and ForgeError if GitHub is
        unavailable.
        """
        await self._rest.verify_credentials()

    # --- reading --------------------------------------------------------------------------------------------

    async def get_repo_facts(self, repo: Repo) -> RepoFacts:
        repository = await self._rest.get(RepositoryResponse, repo, *repo_path(repo))
        try:
            await self._rest.get(
                BranchResponse, repo, *repo_path(repo), "branches", repository.default_branch
            )
            empty = False
        except NotFound:
            empty = True
        return RepoFacts(
            default_branch=repository.default_branch,
            clone_url=self._commit_publisher.clone_url(repo),
            private=repository.private,
            empty=empty,
            archived=repository.archived,
        )

    async def get_thread(self, job: Job) -> Thread:
        return await self._threads.read(job)

    async def list_commands(self, job: Job, label: str, mention: str) -> tuple[str, ...]:
        return await self._threads.list_commands(job, label, mention)

    async def download_attachment(self, repo: Repo, url: str) -> bytes | None:
        if not is_attachment(url, self._server_url):
            return await self._linked_code.fetch(url, partial(self.get_credentials, repo))
        return await self._attachments.fetch(url, await self.get_credentials(repo))

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        return await self._threads.get_permission(repo, user)

    async def get_credentials(self, repo: Repo) -> Credentials:
        """Returns a token for this repository that is valid for at least 15 minutes. If the operator
        configured a token, returns that token.
        """
        return await self._rest.get_credentials(repo)

    async def get_thread_state(self, repo: Repo, number: int, branch: str, base: str) -> ThreadState:
        has_base = await self._commit_publisher.has_commit(repo, branch, base)
        try:
            thread = await self._rest.get(IssueResponse, repo, *repo_path(repo), "issues", str(number))
        except NotFound:  # the issue was deleted
            return ThreadState(is_open=False, is_locked=False, has_base=has_base)
        return ThreadState(is_open=thread.state == "open", is_locked=thread.locked, has_base=has_base)

    async def get_head_state(self, repo: Repo, number: int) -> HeadState:
        pull = await self._rest.get(PullRequestResponse, repo, *repo_path(repo), "pulls", str(number))
        return HeadState(
            is_open=pull.state == "open",
            is_locked=pull.locked,
            head_sha=pull.head.sha,
            can_push=pull.is_same_repository or pull.maintainer_can_modify,
        )

    async def get_bot_user(self, repo: Repo) -> User | None:
        account = await self.identity(repo)
        return account.as_user() if account else None

    async def find_pull_request(self, repo: Repo, branch: str) -> PullRequest | None:
        pull = await self._find_open_pull(repo, branch)
        return None if pull is None else as_pull_request(pull, trusted=is_by(pull, await self.identity(repo)))

    async def find_declined_pull_request(self, repo: Repo, branch: str) -> PullRequest | None:
        query = {"state": "closed", "head": f"{repo.owner}:{branch}"}
        path, identity = (*repo_path(repo), "pulls"), await self.identity(repo)
        closed = await self._rest.get(list[ClosedPullRequestResponse], repo, *path, **query)
        # GitHub ignores a `head` filter that it does not understand, and returns all pull requests.
        own = [one for one in closed if one.head.ref == branch and one.is_same_repository]
        # After a repeated setup, the earlier pull request is by the App of the first setup.
        own = [one for one in own if is_by(one, identity) or (one.user and one.user.login.endswith("[bot]"))]
        latest = max(own, key=lambda one: one.number, default=None)
        return as_pull_request(latest, trusted=True) if latest and not latest.merged_at else None

    async def list_own_pull_requests(
        self, repo: Repo, prefix: str, credentials: Credentials
    ) -> tuple[PullRequest, ...]:
        """Returns the bot's open pull requests whose branch names start with `prefix`. Searches only the newest
        MAX_PULLS pull requests. The `credentials` need only read access.
        """
        identity = await self.identity(credentials)
        etag, cached = self._pull_cache.get((repo, prefix), ("", ()))
        query = {"state": "open", "sort": "created", "direction": "desc", "per_page": str(PER_PAGE)}
        path = (*repo_path(repo), "pulls")
        page = await self._rest.get_page(list[PullRequestResponse], credentials, *path, etag=etag, **query)
        if page is None:
            return cached
        found, next_query = page.data, page.next_query
        while next_query and len(found) < MAX_PULLS:
            another = await self._rest.get_page(list[PullRequestResponse], credentials, *path, **next_query)
            assert another is not None, "requested without an etag"
            found, next_query = found + another.data, another.next_query
        candidates = (one for one in found if one.is_same_repository and one.head.ref.startswith(prefix))
        own = tuple(as_pull_request(one, trusted=True) for one in candidates if is_by(one, identity))
        # The list is cached only if it has one page, because an ETag identifies a single page.
        if identity is None or page.next_query:
            self._pull_cache.pop((repo, prefix), None)
        else:
            self._pull_cache[repo, prefix] = page.etag, own
        return own

    async def list_checks(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        return await self._findings.list_checks(repo, commit)

    async def get_check_log(self, repo: Repo, check: Check) -> str:
        return await self._findings.get_check_log(repo, check)

    async def list_commits(self, repo: Repo, number: int) -> tuple[PullCommit, ...]:
        return await self._findings.list_commits(repo, number)

    # --- writing --------------------------------------------------------------------------------------------

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        if self.outbox and not in_progress:
            await self.outbox.store(repo, number, tag, body)
        comment = await self._comments.upsert(repo, number, tag, body, in_progress=in_progress)
        self.identity.cache_account(comment.user)
        if self.outbox and in_progress:
            await self.outbox.store(repo, number, tag, None)
        elif self.outbox:
            await self.outbox.remove(repo, number, tag)
        return comment.html_url

    async def is_comment_in_progress(self, repo: Repo, number: int, tag: str) -> bool:
        """Returns whether the bot's comment with this tag still shows its job as in progress."""
        return await self._comments.is_in_progress(repo, number, tag)

    async def list_comments_in_progress(self, repo: Repo, number: int) -> tuple[str, ...]:
        """Returns the tags of the bot's comments that still show their jobs as in progress."""
        return await self._comments.list_in_progress(repo, number)

    async def push_commit(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        target_repo: Repo | None = None,
    ) -> PublishedCommit:
        if target_repo is not None:
            return await self._commit_publisher.push_to_fork(
                target_repo, repo, git_dir, commit, branch, parent
            )
        return await self._commit_publisher.publish(repo, git_dir, commit, branch, parent)

    async def open_pull_request(self, spec: PullRequestSpec) -> PullRequest:
        repo, path = spec.repo, (*repo_path(spec.repo), "pulls")
        texts = {"title": spec.title[:MAX_TITLE], "body": truncate_body(spec.body, MAX_BODY)}

        async def find() -> PullRequestResponse | None:
            return await self._find_open_pull(repo, spec.branch)

        async def create() -> PullRequestResponse:
            branches = {"head": spec.branch, "base": spec.base_branch, "draft": spec.draft}
            return await self._rest.post(PullRequestResponse, repo, *path, body=texts | branches)

        pull = await find()
        if pull is None:
            pull = await self._create_once(create, find)
            await self._request_review(spec, pull.number)
        if (pull.title, pull.body, pull.base.ref) != (texts["title"], texts["body"], spec.base_branch):
            change = texts | {"base": spec.base_branch}
            await self._rest.patch(PullRequestResponse, repo, *path, str(pull.number), body=change)
        if pull.draft != spec.draft:
            await self._set_draft(repo, pull, spec.draft)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            current = await self._rest.get(PullRequestResponse, repo, *path, str(pull.number))
            if current.head.sha == spec.head_sha:
                break
            await asyncio.sleep(self._rest.backoff(attempt))  # a push becomes visible here with a delay
        return as_pull_request(current, trusted=True)

    async def _request_review(self, spec: PullRequestSpec, number: int) -> None:
        """Requests a review from the reviewer that the spec names. Failures are only logged, because GitHub
        rejects some people, such as the pull request's own author.
        """
        if spec.reviewer is None or spec.reviewer.login.endswith("[bot]"):
            return
        path = (*repo_path(spec.repo), "pulls", str(number), "requested_reviewers")
        try:
            await self._rest.post(
                dict[str, object], spec.repo, *path, body={"reviewers": [spec.reviewer.login]}
            )
        except ForgeError as exc:
            log.warning("review not requested", extra={"pull_request": number, "error": str(exc)})

    async def reply_to_thread(
        self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str
    ) -> str:
        return await self._reviews.reply(repo, number, thread, tag, body)

    async def resolve_thread(self, repo: Repo, thread: ReviewThread) -> None:
        await self._reviews.resolve_thread(repo, thread)

    async def create_check_run(self, repo: Repo, report: CheckRunReport) -> str:
        return await self._check_runs.upsert(repo, report)

    async def react(self, repo: Repo, resource_path: tuple[str, ...]) -> None:
        """Adds an "eyes" reaction to a comment or an issue. GitHub stores at most one such reaction
        per user.
        """
        path = (*repo_path(repo), *resource_path, "reactions")
        await self._rest.post(dict[str, object], repo, *path, body={"content": "eyes"})

    async def _create_once(
        self, create: Callable[[], Awaitable[T]], find: Callable[[], Awaitable[T | None]]
    ) -> T:
        """Creates something on GitHub with `create`. If the response is lost or GitHub rejects the request,
        looks for the result with `find` before the next attempt.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return await create()
            except (ForgeUnavailable, UnprocessableRequest) as exc:
                # GitHub may reject a request because an earlier one succeeded and its response was lost.
                if (found := await find()) is not None:
                    return found
                # GitHub rejects a new pull request if its base branch changes at the same moment.
                is_race = attempt == 1 and "base branch was modified" in str(exc).lower()
                if attempt == MAX_ATTEMPTS or (isinstance(exc, UnprocessableRequest) and not is_race):
                    raise
            await asyncio.sleep(self._rest.backoff(attempt))
        raise AssertionError("the last attempt returns or raises")

    async def _set_draft(self, repo: Repo, pull: PullRequestResponse, draft: bool) -> None:
        """Converts a pull request to a draft, or marks it as ready for review. Uses GraphQL, because REST
        cannot do this.

        Source: docs.github.com/graphql/reference/mutations#markpullrequestreadyforreview
        """
        request = CONVERT_TO_DRAFT if draft else MARK_READY
        await self._graphql.execute(GitHubResponse, repo, request, {"input": {"pullRequestId": pull.node_id}})

    # --- helpers --------------------------------------------------------------------------------------------

    async def _find_open_pull(self, repo: Repo, branch: str) -> PullRequestResponse | None:
        query = {"state": "open", "head": f"{repo.owner}:{branch}"}
        found = await self._rest.get(list[PullRequestResponse], repo, *repo_path(repo), "pulls", **query)
        # GitHub ignores a `head` filter that it does not understand, and returns all pull requests.
        return next((pull for pull in found if pull.head.ref == branch and pull.is_same_repository), None)
