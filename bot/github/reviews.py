"""Reads the reviews of a pull request on GitHub, and replies to them.

This module uses GraphQL, because REST lacks three values: whether a thread is resolved, the ID for resolving the
thread, and the time of a comment's last edit.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import AliasPath, Field

from patchwright.bot.comment_tags import TAG_PREFIX, render_tag, tag_prefix
from patchwright.bot.github.graphql import GraphQLClient
from patchwright.bot.github.rest import RestClient
from patchwright.bot.github.schemas import GHOST, Account, CommentResponse, GitHubResponse
from patchwright.bot.github.valid_entries import ValidEntries
from patchwright.resolver.domain import Comment, Job, PullRequest, Repo, ReviewThread
from patchwright.resolver.forge import MAX_BODY

T = TypeVar("T")
N = TypeVar("N")

MAX_ITEMS = 500  # maximum number of threads, and also of reviews
# number of lines of a diff hunk that are kept, from its end; a comment refers to the last line
HUNK_LINES = 40

THREADS_QUERY = Path(__file__).with_name("review_threads.graphql").read_text()
REVIEWS_QUERY = Path(__file__).with_name("reviews.graphql").read_text()
RESOLVE_MUTATION = """
mutation($input: ResolveReviewThreadInput!) {
  resolveReviewThread(input: $input) { thread { isResolved } }
}
"""

GetIdentity = Callable[[Repo], Awaitable[Account | None]]
CreateOnce = Callable[[Callable[[], Awaitable[T]], Callable[[], Awaitable[T | None]]], Awaitable[T]]


class ReviewCommentResponse(CommentResponse):
    in_reply_to_id: int | None = None


class _Author(GitHubResponse):
    login: str
    type: str = Field(alias="__typename")
    id: int = Field(default=GHOST.id, alias="databaseId")
    """The author's user id. GraphQL returns no id for some authors, such as organizations. These authors get
    the id of GHOST, and are never trusted.
    """


class _AuthoredText(GitHubResponse):
    """A text with its author and times."""

    id: int = Field(alias="fullDatabaseId")
    body: str
    author: _Author | None
    created_at: datetime
    published_at: datetime | None
    """The time when the text was published. It is None for a draft, which only its author sees."""
    edited_at: datetime | None

    @property
    def account(self) -> Account:
        if (author := self.author) is None:
            return GHOST
        # REST includes the suffix in the login; GraphQL does not
        suffix = "[bot]" if author.type == "Bot" else ""
        return Account(id=author.id, login=author.login + suffix, type=author.type)

    @property
    def written_at(self) -> datetime:
        return self.published_at or self.created_at

    def is_in_snapshot(self, job: Job, trusted: frozenset[int]) -> bool:
        return is_in_snapshot(
            max(self.written_at, self.edited_at or self.written_at), self.account, job, trusted
        )


class _ReviewComment(_AuthoredText):
    hunk: str = Field(alias="diffHunk")
    review: int | None = Field(
        default=None, validation_alias=AliasPath("pullRequestReview", "fullDatabaseId")
    )


class _ReviewThreadNode(GitHubResponse):
    id: str
    resolved: bool = Field(alias="isResolved")
    path: str
    line: int | None
    comments: ValidEntries[_ReviewComment] = Field(validation_alias=AliasPath("comments", "nodes"))


class _GraphQLConnection(GitHubResponse, Generic[N]):
    has_next: bool = Field(validation_alias=AliasPath("pageInfo", "hasNextPage"))
    end_cursor: str | None = Field(default=None, validation_alias=AliasPath("pageInfo", "endCursor"))
    nodes: ValidEntries[N]


class _PullRequestNode(GitHubResponse, Generic[N]):
    connection: _GraphQLConnection[N] = Field(validation_alias=AliasPath("pullRequest", "page"))


@dataclass(frozen=True)
class ReviewHistory:
    """All reviews and review threads of a pull request."""

    reviews: tuple[_AuthoredText, ...]
    threads: tuple[_ReviewThreadNode, ...]

    @property
    def authors(self) -> list[Account]:
        commenters = (one.account for thread in self.threads for one in thread.comments)
        return [*commenters, *(review.account for review in self.reviews)]

    @property
    def texts(self) -> list[tuple[datetime, Account, str]]:
        """The time, author and text of every review and review comment."""
        comments = (one for thread in self.threads for one in thread.comments)
        return [(one.written_at, one.account, one.body) for one in (*self.reviews, *comments)]

    def add_to_pull_request(
        self,
        job: Job,
        pull: PullRequest,
        comments: Iterable[CommentResponse],
        trusted: frozenset[int],
        reports: tuple[str, ...],
    ) -> PullRequest:
        """Returns the pull request with its review threads, its comments and its review texts, oldest first.

        The text of the review that triggered the job is in the field `review` instead. Texts for which
        `is_in_snapshot` returns False are left out.
        """
        entries = [(one.created_at, one.body or "", one.user or GHOST) for one in comments]
        reviews = [one for one in self.reviews if one.body and one.is_in_snapshot(job, trusted)]
        entries += [(one.written_at, one.body, one.account) for one in reviews if one.id != job.review_id]
        in_order = sorted(entries, key=lambda one: one[0])
        trigger = next((one for one in reviews if one.id == job.review_id), None)
        threads = (_to_review_thread(thread, job, trusted) for thread in self.threads)
        return pull.model_copy(
            update={
                "comments": tuple(_to_comment(body, user, trusted) for _, body, user in in_order if body),
                "threads": tuple(thread for thread in threads if thread),
                "review": _to_comment(trigger.body, trigger.account, trusted) if trigger else None,
                "reported_runs": reports,
            }
        )


class Reviews:
    """Reads reviews and replies to them."""

    def __init__(
        self,
        rest: RestClient,
        graphql: GraphQLClient,
        get_identity: GetIdentity,
        create_once: CreateOnce[ReviewCommentResponse],
    ) -> None:
        self._rest = rest
        self._graphql = graphql
        self._get_identity = get_identity
        self._create_once = create_once
        self._listed: tuple[tuple[Repo, int, str], list[ReviewCommentResponse]] | None = None
        """A pull request's comments with their cache key, so that the next reply with the same tag need not list
        them again.
        """

    async def read(self, repo: Repo, number: int) -> ReviewHistory:
        """Reads the submitted reviews and the threads, at most MAX_ITEMS of each. Raises ForgeError."""
        reviews = await self._fetch_all(_PullRequestNode[_AuthoredText], REVIEWS_QUERY, repo, number)
        threads = await self._fetch_all(_PullRequestNode[_ReviewThreadNode], THREADS_QUERY, repo, number)
        return ReviewHistory(tuple(one for one in reviews if one.published_at), threads)

    async def _fetch_all(
        self, kind: type[_PullRequestNode[N]], query: str, repo: Repo, number: int
    ) -> tuple[N, ...]:
        found: list[N] = []
        after: str | None = None
        while len(found) < MAX_ITEMS:
            variables = {"owner": repo.owner, "name": repo.name, "number": number, "after": after}
            page = (await self._graphql.execute(kind, repo, query, variables)).connection
            found += page.nodes
            if not page.has_next:
                break
            after = page.end_cursor
        return tuple(found[:MAX_ITEMS])

    async def reply(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        """Replies in a thread, and returns the URL of the reply. If the thread already has a reply with this
        tag, posts nothing and returns the URL of that reply. Raises ForgeError.
        """
        first = render_tag(tag)
        text = (first + body)[:MAX_BODY]
        path, key = ("repos", repo.owner, repo.name, "pulls", str(number), "comments"), (repo, number, tag)
        # One list is enough for the replies of one job, because no other process replies for this job. After
        # an error, the comments are listed again.
        known = self._listed[1] if self._listed and self._listed[0] == key else None
        self._listed = None

        async def find(comments: list[ReviewCommentResponse] | None = None) -> ReviewCommentResponse | None:
            nonlocal known
            identity = await self._get_identity(repo)
            known = comments or await self._rest.get_all(ReviewCommentResponse, repo, *path)
            own = (one for one in known if identity and one.user and one.user.id == identity.id)
            return next(
                (
                    one
                    for one in own
                    if one.in_reply_to_id == thread.first_comment_id
                    and (one.body or "").startswith(tag_prefix(tag))
                ),
                None,
            )

        async def create() -> ReviewCommentResponse:
            reply_path = (*path, str(thread.first_comment_id), "replies")
            return await self._rest.post(ReviewCommentResponse, repo, *reply_path, body={"body": text})

        reply = await find(known) or await self._create_once(create, find)
        self._listed = key, [*(known or ()), reply]
        return reply.html_url

    async def resolve_thread(self, repo: Repo, thread: ReviewThread) -> None:
        """Marks a thread as resolved. Raises Forbidden if the token may not do this, and ForgeError for other
        failures.

        Source: docs.github.com/graphql/reference/mutations#resolvereviewthread
        """
        await self._graphql.execute(
            dict[str, object], repo, RESOLVE_MUTATION, {"input": {"threadId": thread.id}}
        )


def is_in_snapshot(
    written_at: datetime | None, author: Account | None, job: Job, trusted: frozenset[int]
) -> bool:
    """Returns True if the job may use the text. Returns False if an author without write access changed the
    text after the job was requested.

    `written_at` is the time of the last edit. If it is None, the time is unknown, and the job may use the text.
    """
    return (
        job.snapshot is None
        or written_at is None
        or written_at <= job.snapshot.taken_at
        or (author or GHOST).id in trusted
    )


def _to_review_thread(thread: _ReviewThreadNode, job: Job, trusted: frozenset[int]) -> ReviewThread | None:
    """Converts a review thread. Leaves out the texts for which `is_in_snapshot` returns False. Returns None if
    no text is left.
    """
    comments = [one for one in thread.comments if one.is_in_snapshot(job, trusted)]
    if not comments:
        return None
    first = thread.comments[0]  # replies go to this comment, even if its text was left out
    triggers = [
        one
        for one in comments
        if one.id == job.review_comment_id or (job.review_id and one.review == job.review_id)
    ]
    # If a mention of the bot in a resolved thread started the job, the job treats the thread as unresolved.
    is_reopened = bool(triggers) and first not in triggers
    return ReviewThread(
        id=thread.id,
        first_comment_id=first.id,
        path=thread.path,
        line=thread.line,
        hunk="\n".join(first.hunk.splitlines()[-HUNK_LINES:]),
        resolved=thread.resolved and not is_reopened,
        is_trigger=bool(triggers),
        comments=tuple(_to_comment(one.body, one.account, trusted) for one in comments),
    )


def _to_comment(body: str, author: Account, trusted: frozenset[int]) -> Comment:
    if body.startswith(TAG_PREFIX):  # the bot's own reply; the model does not see the tag
        body = body.partition("\n")[2]
    return Comment(author=author.as_user(), body=body, trusted=author.id in trusted)
