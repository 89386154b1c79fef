"""Reads issues and pull requests with their comments, and finds out which authors have write access."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar, get_args

from patchwright.bot.comment_tags import TAG_PREFIX, parse_question, parse_tag
from patchwright.bot.github.cached_lists import CachedLists
from patchwright.bot.github.repositories import raise_if_unreachable
from patchwright.bot.github.rest import RestClient, repo_path
from patchwright.bot.github.reviews import GetIdentity, Reviews, is_in_snapshot
from patchwright.bot.github.schemas import (
    GHOST,
    Account,
    CommentResponse,
    IssueEventResponse,
    IssueResponse,
    PermissionResponse,
    PullRequestResponse,
)
from patchwright.bot.webhooks.mentions import find_command, is_only_thanks
from patchwright.bot.webhooks.triggers import is_same_label
from patchwright.resolver.authorization import Permission, authorize
from patchwright.resolver.domain import Comment, Issue, Job, PullRequest, Repo, Thread, User
from patchwright.resolver.errors import ForgeError, NotFound

T = TypeVar("T", Issue, PullRequest)

ROLES: dict[str, Permission] = {role: role for role in get_args(Permission)}
EARLIEST = datetime.min.replace(tzinfo=UTC)
MAX_CONCURRENT_REQUESTS = 8  # GitHub allows 100


class Threads:
    """Reads threads, which are issues or pull requests."""

    def __init__(self, rest: RestClient, reviews: Reviews, get_identity: GetIdentity) -> None:
        self._rest = rest
        self._reviews = reviews
        self._get_identity = get_identity
        self._comments = CachedLists(rest, list[CommentResponse])

    async def read(self, job: Job) -> Thread:
        """Returns the thread with its comments, oldest first. Leaves out the bot's own reports.

        An author without write access may change a text after the job was requested. Such changes are ignored,
        because the requester may not have seen them: a changed title or body is replaced by the earlier version,
        and a changed comment is left out.
        """
        repo, number = job.repo, str(job.number)
        issue = await self._rest.get(IssueResponse, repo, *repo_path(repo), "issues", number)
        # the issue was transferred, and GitHub redirected the request to its new repository
        if issue.number != job.number:
            raise NotFound(f"{repo}#{number} was moved to {issue.html_url}")
        comments = await self.list_comments(repo, job.number)
        identity = await self._get_identity(repo)
        own = [comment for comment in comments if _has_tag(comment) and is_by(comment, identity)]
        comments = [comment for comment in comments if comment not in own]
        questions = (parse_question(one.body or "") for one in reversed(own) if _tag(one) != job.id)
        question = next(filter(None, questions), "")
        authors = [issue.user, *(comment.user for comment in comments)]
        if issue.pull_request is not None:
            pull = await self._rest.get(PullRequestResponse, repo, *repo_path(repo), "pulls", number)
            reviews = await self._reviews.read(repo, job.number)
            trusted = await self._find_trusted(repo, [*authors, *reviews.authors])
            pull_request = as_pull_request(pull, trusted=_id(pull.user) in trusted, locked=issue.locked)
            pull_request = pull_request.model_copy(update={"labels": issue.label_names, "question": question})
            in_snapshot = [one for one in comments if is_in_snapshot(one.updated_at, one.user, job, trusted)]
            return reviews.add_to_pull_request(
                job, apply_snapshot(pull_request, job), in_snapshot, trusted, tuple(map(_tag, own))
            )
        trusted = await self._find_trusted(repo, authors)
        visible = tuple(
            Comment(author=_user(one.user), body=one.body or "", trusted=_id(one.user) in trusted)
            for one in comments
            if is_in_snapshot(one.updated_at, one.user, job, trusted)
        )
        result = Issue(
            number=issue.number,
            title=issue.title,
            body=issue.body or "",
            author=_user(issue.user),
            trusted=_id(issue.user) in trusted,
            open=issue.state == "open",
            url=issue.html_url,
            comments=visible,
            reported_runs=tuple(map(_tag, own)),
            question=question,
            locked=issue.locked,
            labels=issue.label_names,
        )
        return apply_snapshot(result, job)

    async def list_commands(self, job: Job, label: str, mention: str) -> tuple[str, ...]:
        """Returns the commands of people with write access, oldest first. See `Forge.list_commands`.

        The bot's own comments are no commands, even if a person's account posts them.
        """
        repo, path = job.repo, (*repo_path(job.repo), "issues", str(job.number))
        issue = await self._rest.get(IssueResponse, repo, *path)
        events = await self._rest.get_all(IssueEventResponse, repo, *path, "events")
        texts = [
            (one.created_at, one.user, one.body or "") for one in await self.list_comments(repo, job.number)
        ]
        if issue.pull_request is None:
            texts.append((EARLIEST, issue.user, issue.body or ""))
        else:  # A mention in its description starts no run.
            texts += (await self._reviews.read(repo, job.number)).texts
        found = [
            (written_at, author, command)
            for written_at, author, text in texts
            if not text.startswith(TAG_PREFIX) and not is_only_thanks(text, mention)
            if (command := find_command(text, mention)) is not None
        ]
        found += [
            (datetime.fromisoformat(event.created_at), event.actor, "")
            for event in events
            if event.event == "labeled" and event.label and is_same_label(event.label.name, label)
        ]
        # Whether the requester has write access was checked before this job was accepted.
        requester = job.requester.id if job.requester else None
        others = [author for _, author, _ in found if _id(author) != requester]
        trusted = await self._find_trusted(repo, others) | {requester}
        return tuple(
            command
            for written_at, author, command in sorted(found, key=lambda one: one[0])
            if _id(author) in trusted and (job.snapshot is None or written_at <= job.snapshot.taken_at)
        )

    async def list_comments(self, repo: Repo, number: int) -> list[CommentResponse]:
        """Returns all comments, oldest first. Raises ForgeError."""
        path = (*repo_path(repo), "issues", str(number), "comments")
        return [comment for page in await self._comments.get_pages(repo, *path) for comment in page]

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        """Returns the permission of a user; "none" for unknown users.

        Identifies the user by ID, because the login in `user` may meanwhile belong to another person. If GitHub
        cannot be queried, raises ForgeError, so that an outage is not mistaken for a missing permission.
        """
        try:
            return await self._read_permission(repo, user)
        except NotFound as exc:
            await raise_if_unreachable(self._rest, repo, exc)
        try:
            return await self._read_permission(repo, user)
        except NotFound:
            return "none"

    async def _read_permission(self, repo: Repo, user: User) -> Permission:
        with contextlib.suppress(NotFound):
            if (permission := await self._read_permission_of(repo, user.login, user.id)) is not None:
                return permission
        account = await self._rest.get(Account, repo, "user", str(user.id))
        return await self._read_permission_of(repo, account.login, user.id) or "none"

    async def _read_permission_of(self, repo: Repo, login: str, user_id: int) -> Permission | None:
        """Returns the permission of the user with this login, or None if the login belongs to another ID."""
        path = (*repo_path(repo), "collaborators", login, "permission")
        response = await self._rest.get(PermissionResponse, repo, *path)
        if response.user is None or response.user.id != user_id:
            return None
        return ROLES.get(response.role_name) or ROLES.get(response.permission, "none")

    async def _find_trusted(self, repo: Repo, authors: Sequence[Account | None]) -> frozenset[int]:
        """Returns the IDs of the authors with write access. Leaves out bots, and users whose permission could
        not be read.
        """
        slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

        async def check(account: Account) -> int | None:
            async with slots:
                try:
                    can_write = await authorize(self, repo, account.as_user())
                except ForgeError:
                    return None
            return account.id if can_write else None

        people = {one.id: one for one in authors if one is not None and one.type == "User"}
        return frozenset(
            found for found in await asyncio.gather(*map(check, people.values())) if found is not None
        )


def apply_snapshot(thread: T, job: Job) -> T:
    """Replaces the thread's title and body by those in the job's snapshot, which was taken when the job was
    requested. If the author of the thread has write access, returns the thread unchanged.
    """
    if job.snapshot is None or thread.trusted:
        return thread
    return thread.model_copy(update={"title": job.snapshot.title, "body": job.snapshot.body})


def _has_tag(comment: CommentResponse) -> bool:
    return (comment.body or "").startswith(TAG_PREFIX)


def _tag(report: CommentResponse) -> str:
    return parse_tag(report.body or "").tag


def is_by(item: CommentResponse | PullRequestResponse, account: Account | None) -> bool:
    """Returns whether this account is the author of the comment or pull request."""
    return account is not None and item.user is not None and item.user.id == account.id


def _id(account: Account | None) -> int:
    return (account or GHOST).id


def _user(account: Account | None) -> User:
    return (account or GHOST).as_user()


def as_pull_request(pull: PullRequestResponse, *, trusted: bool, locked: bool = False) -> PullRequest:
    """Converts a pull request. `trusted` is True if the author of the pull request has write access."""
    return PullRequest(
        number=pull.number,
        title=pull.title,
        body=pull.body or "",
        author=_user(pull.user),
        trusted=trusted,
        open=pull.state == "open",
        url=pull.html_url,
        head_branch=pull.head.ref,
        head_sha=pull.head.sha,
        base_branch=pull.base.ref,
        draft=pull.draft,
        is_same_repository=pull.is_same_repository,
        head_repo=pull.head.repo.as_repo() if pull.head.repo else None,
        maintainer_can_modify=pull.maintainer_can_modify,
        locked=locked,
    )
