"""Threads on GitHub, read: who wrote what, and which of them may write."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar, get_args

from bot.github.answers import GHOST, Account, CommentAnswer, IssueAnswer, PermissionAnswer, PullAnswer
from bot.github.rest import Rest, path_of
from bot.github.reviews import Ourselves, Reviews, stood
from bot.github.tags import MARK, parted
from resolver.domain import Comment, Issue, Job, PullRequest, Repo, Thread, User
from resolver.errors import ForgeError, NotFound
from resolver.forge import MAY_TRIGGER, Permission

T = TypeVar("T", Issue, PullRequest)

ROLES: dict[str, Permission] = {role: role for role in get_args(Permission)}
ASKING_AT_ONCE = 8  # requests; GitHub allows 100


class Threads:
    """Reads threads in the name of whoever `rest` speaks for."""

    def __init__(self, rest: Rest, reviews: Reviews, ourselves: Ourselves) -> None:
        self._rest = rest
        self._reviews = reviews
        self._ourselves = ourselves

    async def read(self, job: Job) -> Thread:
        """The thread as it is now, with its comments, oldest first; our own reports are left out.

        What people who may not write have changed since the job was asked for is as it was, or left out: whoever
        asked has not read it.
        """
        repo, number = job.repo, str(job.number)
        issue = await self._rest.get(IssueAnswer, repo, *path_of(repo), "issues", number)
        if issue.number != job.number:  # GitHub leads on to where it was moved, which nobody asked us about
            raise NotFound(f"{repo}#{number} was moved to {issue.html_url}")
        said = await self.comments(repo, job.number)
        us = await self._ourselves(repo)
        ours = [comment for comment in said if _is_report(comment) and is_by(comment, us)]
        said = [comment for comment in said if comment not in ours]
        authors = [issue.user, *(comment.user for comment in said)]
        if issue.pull_request is not None:
            pull = await self._rest.get(PullAnswer, repo, *path_of(repo), "pulls", number)
            reviewed = await self._reviews.read(repo, job.number)
            trusted = await self._trusted(repo, [*authors, *reviewed.authors])
            found = as_pull_request(pull, trusted=_id(pull.user) in trusted, locked=issue.locked)
            seen = [one for one in said if stood(one.updated_at, one.user, job, trusted)]
            return reviewed.told(job, pinned(found, job), seen, trusted, tuple(map(_tag, ours)))
        trusted = await self._trusted(repo, authors)
        comments = tuple(
            Comment(author=_user(one.user), body=one.body or "", trusted=_id(one.user) in trusted)
            for one in said
            if stood(one.updated_at, one.user, job, trusted)
        )
        made = Issue(
            number=issue.number,
            title=issue.title,
            body=issue.body or "",
            author=_user(issue.user),
            trusted=_id(issue.user) in trusted,
            open=issue.state == "open",
            url=issue.html_url,
            comments=comments,
            reports=tuple(map(_tag, ours)),
            locked=issue.locked,
        )
        return pinned(made, job)

    async def comments(self, repo: Repo, number: int) -> list[CommentAnswer]:
        """All that stands below it, oldest first. Raises ForgeError."""
        return await self._rest.get_all(
            CommentAnswer, repo, *path_of(repo), "issues", str(number), "comments"
        )

    async def permission(self, repo: Repo, user: User) -> Permission:
        """What this user may do; "none" for anything unknown.

        Asked by id: the login of a webhook may belong to somebody else by now. Raises ForgeError when it
        could not be asked: then nothing is done, but nobody is told that they may not.
        """
        try:
            account = await self._rest.get(Account, repo, "user", str(user.id))
            asked = (*path_of(repo), "collaborators", account.login, "permission")
            found = await self._rest.get(PermissionAnswer, repo, *asked)
        except NotFound:
            return "none"
        if found.user is None or found.user.id != user.id or account.id != user.id:
            return "none"  # renamed between the two questions
        return ROLES.get(found.role_name) or ROLES.get(found.permission, "none")

    async def _trusted(self, repo: Repo, authors: Sequence[Account | None]) -> frozenset[int]:
        """The ids of those who may write. A bot is never trusted, nor whoever could not be asked for."""
        gate = asyncio.Semaphore(ASKING_AT_ONCE)

        async def ask(account: Account) -> int | None:
            async with gate:
                try:
                    may = await self.permission(repo, account.as_user()) in MAY_TRIGGER
                except ForgeError:
                    return None
            return account.id if may else None

        people = {one.id: one for one in authors if one is not None and one.type == "User"}
        return frozenset(
            found for found in await asyncio.gather(*map(ask, people.values())) if found is not None
        )


def pinned(thread: T, job: Job) -> T:
    """The thread of somebody who may not write as it was when the job was asked for."""
    if job.pinned is None or thread.trusted:
        return thread
    return thread.model_copy(update={"title": job.pinned.title, "body": job.pinned.body})


def _is_report(comment: CommentAnswer) -> bool:
    return (comment.body or "").startswith(MARK)


def _tag(report: CommentAnswer) -> str:
    return parted(report.body or "")[0]


def is_by(what: CommentAnswer | PullAnswer, us: Account | None) -> bool:
    """Whether this account of ours wrote it."""
    return us is not None and what.user is not None and what.user.id == us.id


def _id(account: Account | None) -> int:
    return (account or GHOST).id


def _user(account: Account | None) -> User:
    return (account or GHOST).as_user()


def as_pull_request(pull: PullAnswer, *, trusted: bool, locked: bool = False) -> PullRequest:
    """It in our words; `trusted`: its author may write."""
    return PullRequest(
        number=pull.number,
        title=pull.title,
        body=pull.body or "",
        author=_user(pull.user),
        trusted=trusted,
        open=pull.state == "open",
        url=pull.html_url,
        head=pull.head.ref,
        head_sha=pull.head.sha,
        base=pull.base.ref,
        draft=pull.draft,
        same_repository=pull.same_repository,
        head_repo=pull.head.repo.name_of() if pull.head.repo else None,
        maintainer_can_modify=pull.maintainer_can_modify,
        locked=locked,
    )
