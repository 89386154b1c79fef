"""Reviews of a pull request on GitHub: what was written in them, answers in their threads, and what is settled.

Which threads are resolved, the name by which one is, and when a text was changed, only GraphQL tells.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from pydantic import AliasPath, Field

from bot.github.answers import GHOST, Account, Answer, CommentAnswer
from bot.github.graphql import GraphQL
from bot.github.rest import Rest
from bot.github.tags import MARK, marker
from resolver.domain import Comment, Job, PullRequest, Repo, ReviewThread
from resolver.forge import MAX_BODY

T = TypeVar("T")
N = TypeVar("N")

MOST = 500  # threads, and reviews
HUNK_LINES = 40  # the last ones; a comment is about the very last

AUTHOR = "author { __typename login ... on User { databaseId } ... on Bot { databaseId } }"
THREADS = f"""
query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  repository(owner: $owner, name: $name) {{
    pullRequest(number: $number) {{
      page: reviewThreads(first: 50, after: $after) {{
        pageInfo {{ hasNextPage endCursor }}
        nodes {{
          id isResolved path line
          comments(first: 100) {{
            nodes {{
              fullDatabaseId body diffHunk made: createdAt published: publishedAt edited: lastEditedAt
              pullRequestReview {{ fullDatabaseId }}
              {AUTHOR}
            }}
          }}
        }}
      }}
    }}
  }}
}}
"""
REVIEWS = f"""
query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  repository(owner: $owner, name: $name) {{
    pullRequest(number: $number) {{
      page: reviews(first: 100, after: $after) {{
        pageInfo {{ hasNextPage endCursor }}
        nodes {{
          fullDatabaseId body made: createdAt published: submittedAt edited: lastEditedAt
          {AUTHOR}
        }}
      }}
    }}
  }}
}}
"""
RESOLVE = """
mutation($input: ResolveReviewThreadInput!) {
  resolveReviewThread(input: $input) { thread { isResolved } }
}
"""

Ourselves = Callable[[Repo], Awaitable[Account | None]]
Made = Callable[[Callable[[], Awaitable[T]], Callable[[], Awaitable[T | None]]], Awaitable[T]]


class InlineAnswer(CommentAnswer):
    in_reply_to_id: int | None = None


class _Author(Answer):
    login: str
    type: str = Field(alias="__typename")
    id: int = Field(default=GHOST.id, alias="databaseId")
    """Some that may write have none here, such as an organization; nobody trusts those."""


class _Text(Answer):
    """What somebody wrote, and when."""

    id: int = Field(alias="fullDatabaseId")
    body: str
    author: _Author | None
    made: datetime
    published: datetime | None
    """None: it is not submitted, and only its author sees it."""
    edited: datetime | None

    @property
    def account(self) -> Account:
        if (by := self.author) is None:
            return GHOST
        suffix = "[bot]" if by.type == "Bot" else ""  # which REST has, and GraphQL has not
        return Account(id=by.id, login=by.login + suffix, type=by.type)

    @property
    def at(self) -> datetime:
        return self.published or self.made

    def stood(self, job: Job, trusted: frozenset[int]) -> bool:
        return stood(max(self.at, self.edited or self.at), self.account, job, trusted)


class _Said(_Text):
    hunk: str = Field(alias="diffHunk")
    review: int | None = Field(
        default=None, validation_alias=AliasPath("pullRequestReview", "fullDatabaseId")
    )


class _Thread(Answer):
    id: str
    resolved: bool = Field(alias="isResolved")
    path: str
    line: int | None
    said: tuple[_Said, ...] = Field(validation_alias=AliasPath("comments", "nodes"))


class _Page(Answer, Generic[N]):
    more: bool = Field(validation_alias=AliasPath("pageInfo", "hasNextPage"))
    end: str | None = Field(default=None, validation_alias=AliasPath("pageInfo", "endCursor"))
    nodes: tuple[N, ...]


class _Pull(Answer, Generic[N]):
    page: _Page[N] = Field(validation_alias=AliasPath("pullRequest", "page"))


@dataclass(frozen=True)
class Reviewed:
    """All that was written in the reviews of a pull request."""

    reviews: tuple[_Text, ...]
    threads: tuple[_Thread, ...]

    @property
    def authors(self) -> list[Account]:
        said = (one.account for thread in self.threads for one in thread.said)
        return [*said, *(review.account for review in self.reviews)]

    def told(
        self,
        job: Job,
        pull: PullRequest,
        comments: Iterable[CommentAnswer],
        trusted: frozenset[int],
        reports: tuple[str, ...],
    ) -> PullRequest:
        """The pull request with its threads, and beside them the comments and the texts of reviews, oldest first.

        What was written in the review that is the trigger stands apart. Of reviews and threads only what `stood` there.
        """
        said = [(one.created_at, one.body or "", one.user or GHOST) for one in comments]
        reviews = [one for one in self.reviews if one.body and one.stood(job, trusted)]
        said += [(one.at, one.body, one.account) for one in reviews if one.id != job.review]
        in_order = sorted(said, key=lambda one: one[0])
        asking = next((one for one in reviews if one.id == job.review), None)
        threads = (_thread(thread, job, trusted) for thread in self.threads)
        return pull.model_copy(
            update={
                "comments": tuple(_comment(body, user, trusted) for _, body, user in in_order if body),
                "threads": tuple(thread for thread in threads if thread),
                "review": _comment(asking.body, asking.account, trusted) if asking else None,
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
        reviews = await self._all(_Pull[_Text], REVIEWS, repo, number)
        threads = await self._all(_Pull[_Thread], THREADS, repo, number)
        return Reviewed(tuple(one for one in reviews if one.published), threads)

    async def _all(self, kind: type[_Pull[N]], query: str, repo: Repo, number: int) -> tuple[N, ...]:
        found: list[N] = []
        after: str | None = None
        while len(found) < MOST:
            asked = {"owner": repo.owner, "name": repo.name, "number": number, "after": after}
            page = (await self._graphql.ask(kind, repo, query, asked)).page
            found += page.nodes
            if not page.more:
                break
            after = page.end
        return tuple(found[:MOST])

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        """Say `body` in the thread, once for each tag; its URL. Raises ForgeError."""
        first = marker(tag)
        text = (first + body)[:MAX_BODY]
        place = ("repos", repo.owner, repo.name, "pulls", str(number), "comments")

        async def find() -> InlineAnswer | None:
            us = await self._ourselves(repo)
            said = await self._rest.get_all(InlineAnswer, repo, *place)
            ours = (one for one in said if us and one.user and one.user.id == us.id)
            return next(
                (
                    one
                    for one in ours
                    if one.in_reply_to_id == thread.first and (one.body or "").startswith(first)
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


def stood(at: datetime | None, author: Account | None, job: Job, trusted: frozenset[int]) -> bool:
    """Whether it was there, as it is, when the job was asked for, or is by somebody who may write.

    `at`: when it was last written; None: nobody knows.
    """
    return job.pinned is None or at is None or at <= job.pinned.at or (author or GHOST).id in trusted


def _thread(thread: _Thread, job: Job, trusted: frozenset[int]) -> ReviewThread | None:
    """The thread with what `stood` in it; None: nothing did."""
    said = [one for one in thread.said if one.stood(job, trusted)]
    if not said:
        return None
    first = thread.said[0]  # also where that is not shown: answers go to it
    asking = [one for one in said if one.id == job.inline or (job.review and one.review == job.review)]
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
        comments=tuple(_comment(one.body, one.account, trusted) for one in said),
    )


def _comment(body: str, author: Account, trusted: frozenset[int]) -> Comment:
    if body.startswith(MARK):  # an answer of ours; its tag is for us alone
        body = body.partition("\n")[2]
    return Comment(author=author.as_user(), body=body, trusted=author.id in trusted)
