"""Reviews of a pull request on GitHub: what was written in them, answers in their threads, and what is settled.

Which threads are resolved, and the name by which one is, only GraphQL tells.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from pydantic import AliasPath, Field

from bot.github.answers import GHOST, Account, Answer, CommentAnswer
from bot.github.graphql import GraphQL
from bot.github.rest import Rest
from resolver.domain import Comment, Job, PullRequest, Repo, ReviewThread
from resolver.forge import MAX_BODY

T = TypeVar("T")

MARK = "<!-- patchwright:"
MOST_THREADS = 500
HUNK_LINES = 40  # the last ones; a comment is about the very last

THREADS = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 50, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes {
          id isResolved path line
          comments(first: 100) {
            nodes {
              fullDatabaseId body diffHunk
              pullRequestReview { fullDatabaseId }
              author { __typename login ... on User { databaseId } ... on Bot { databaseId } }
            }
          }
        }
      }
    }
  }
}
"""
RESOLVE = """
mutation($input: ResolveReviewThreadInput!) {
  resolveReviewThread(input: $input) { thread { isResolved } }
}
"""

Ourselves = Callable[[Repo], Awaitable[Account | None]]
Made = Callable[[Callable[[], Awaitable[T]], Callable[[], Awaitable[T | None]]], Awaitable[T]]


class ReviewAnswer(Answer):
    id: int
    body: str | None = None
    user: Account | None
    submitted_at: str = ""
    """Empty: it is not submitted, and only its author sees it."""


class InlineAnswer(CommentAnswer):
    in_reply_to_id: int | None = None


class _Author(Answer):
    login: str
    type: str = Field(alias="__typename")
    id: int = Field(default=GHOST.id, alias="databaseId")
    """Some that may write have none here, such as an organization; nobody trusts those."""


class _Said(Answer):
    id: int = Field(alias="fullDatabaseId")
    body: str
    hunk: str = Field(alias="diffHunk")
    author: _Author | None
    review: int | None = Field(
        default=None, validation_alias=AliasPath("pullRequestReview", "fullDatabaseId")
    )

    @property
    def account(self) -> Account:
        return (
            Account(id=self.author.id, login=self.author.login, type=self.author.type)
            if self.author
            else GHOST
        )


class _Thread(Answer):
    id: str
    resolved: bool = Field(alias="isResolved")
    path: str
    line: int | None
    said: tuple[_Said, ...] = Field(validation_alias=AliasPath("comments", "nodes"))


class _Page(Answer):
    more: bool = Field(validation_alias=AliasPath("pageInfo", "hasNextPage"))
    end: str | None = Field(default=None, validation_alias=AliasPath("pageInfo", "endCursor"))
    threads: tuple[_Thread, ...] = Field(alias="nodes")


class _Pull(Answer):
    page: _Page = Field(validation_alias=AliasPath("pullRequest", "reviewThreads"))


@dataclass(frozen=True)
class Reviewed:
    """All that was written in the reviews of a pull request."""

    reviews: tuple[ReviewAnswer, ...]
    threads: tuple[_Thread, ...]

    @property
    def authors(self) -> list[Account]:
        said = (one.account for thread in self.threads for one in thread.said)
        return [*said, *(review.user or GHOST for review in self.reviews)]

    def told(
        self,
        job: Job,
        pull: PullRequest,
        comments: Iterable[CommentAnswer],
        trusted: frozenset[int],
        reports: tuple[str, ...],
    ) -> PullRequest:
        """The pull request with its threads, and beside them the comments and the texts of reviews, oldest first.

        What was written in the review that is the trigger stands apart.
        """
        said = [(one.created_at, one.body, one.user) for one in comments]
        said += [(one.submitted_at, one.body, one.user) for one in self.reviews if one.id != job.review]
        in_order = sorted(said, key=lambda one: one[0])
        asking = next((one for one in self.reviews if one.id == job.review and one.body), None)
        return pull.model_copy(
            update={
                "comments": tuple(_comment(body, user, trusted) for _, body, user in in_order if body),
                "threads": tuple(_thread(thread, job, trusted) for thread in self.threads if thread.said),
                "review": _comment(asking.body or "", asking.user, trusted) if asking else None,
                "reports": reports,
            }
        )


class Reviews:
    """Reads and answers reviews in the name of whoever `rest` speaks for."""

    def __init__(self, rest: Rest, graphql: GraphQL, ourselves: Ourselves, made: Made[InlineAnswer]) -> None:
        self._rest = rest
        self._graphql = graphql
        self._ourselves = ourselves
        self._made = made

    async def read(self, repo: Repo, number: int) -> Reviewed:
        """Everything that was submitted. Raises ForgeError."""
        place = ("repos", repo.owner, repo.name, "pulls", str(number), "reviews")
        reviews = await self._rest.get_all(ReviewAnswer, repo, *place)
        threads: list[_Thread] = []
        after: str | None = None
        while len(threads) < MOST_THREADS:
            asked = {"owner": repo.owner, "name": repo.name, "number": number, "after": after}
            page = (await self._graphql.ask(_Pull, repo, THREADS, asked)).page
            threads += page.threads
            if not page.more:
                break
            after = page.end
        return Reviewed(tuple(one for one in reviews if one.submitted_at), tuple(threads[:MOST_THREADS]))

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        """Say `body` in the thread, once for each tag; its URL. Raises ForgeError."""
        marker = f"{MARK}{quote(tag, safe='')} -->\n"
        text = (marker + body)[:MAX_BODY]
        place = ("repos", repo.owner, repo.name, "pulls", str(number), "comments")

        async def find() -> InlineAnswer | None:
            us = await self._ourselves(repo)
            said = await self._rest.get_all(InlineAnswer, repo, *place)
            ours = (one for one in said if us and one.user and one.user.id == us.id)
            return next(
                (
                    one
                    for one in ours
                    if one.in_reply_to_id == thread.first and (one.body or "").startswith(marker)
                ),
                None,
            )

        async def make() -> InlineAnswer:
            reply = (*place, str(thread.first), "replies")
            return await self._rest.post(InlineAnswer, repo, *reply, body={"body": text})

        return (await find() or await self._made(make, find)).html_url

    async def settle(self, repo: Repo, thread: ReviewThread) -> None:
        """Mark the thread as resolved. Raises Forbidden when our token may not, else ForgeError.

        Source: docs.github.com/graphql/reference/mutations#resolvereviewthread
        """
        await self._graphql.ask(dict[str, object], repo, RESOLVE, {"input": {"threadId": thread.id}})


def _thread(thread: _Thread, job: Job, trusted: frozenset[int]) -> ReviewThread:
    first = thread.said[0]
    asking = [one for one in thread.said if one.id == job.inline or (job.review and one.review == job.review)]
    # Who mentions us in a thread that is resolved opens it again, for us.
    again = bool(asking) and first not in asking
    return ReviewThread(
        id=thread.id,
        first=first.id,
        path=thread.path,
        line=thread.line,
        hunk="\n".join(first.hunk.splitlines()[-HUNK_LINES:]),
        resolved=thread.resolved and not again,
        asked=bool(asking),
        comments=tuple(_comment(one.body, one.account, trusted) for one in thread.said),
    )


def _comment(body: str, author: Account | None, trusted: frozenset[int]) -> Comment:
    if body.startswith(MARK):  # an answer of ours; its tag is for us alone
        body = body.partition("\n")[2]
    author = author or GHOST
    return Comment(author=author.as_user(), body=body, trusted=author.id in trusted)
