"""Polls GitHub for labels, comments and reviews whose webhook deliveries did not arrive.

Each event is returned in the same form as an event that was parsed from a delivery.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from patchwright.bot.comment_tags import TAG_PREFIX, parse_tag
from patchwright.bot.github.error_isolation import ErrorIsolation
from patchwright.bot.github.repositories import MAX_LIST_AGE, PolledRepository, Repositories
from patchwright.bot.github.rest import PER_PAGE, RestClient
from patchwright.bot.github.schemas import Account, IssueEventResponse, RepositoryResponse
from patchwright.bot.reconcile.missed_events import (
    EARLIEST,
    IssueCommentResponse,
    MissedEvent,
    ReviewCommentResponse,
    ReviewResponse,
    ThreadResponse,
    make_comment,
    make_review,
    make_sender,
)
from patchwright.bot.webhooks.delivery import LabelAdded, LabelRemoved, ThreadClosed
from patchwright.bot.webhooks.triggers import is_same_label
from patchwright.resolver.domain import Credentials, Job, Repo
from patchwright.resolver.errors import NotFound, Unauthorized

# GitHub updates an inline comment when the review that contains it is submitted. Later updates are edits, and
# edits do not trigger runs.
PUBLISH_TOLERANCE = timedelta(seconds=5)

GetIdentity: TypeAlias = Callable[[Credentials], Awaitable[Account | None]]
"""Returns the bot's own account, or None if GitHub does not reveal it at the moment."""


@dataclass
class PollResult:
    """The result of polling one repository."""

    until: datetime
    """The time of the latest change to an issue or pull request in the repository."""
    etag: str
    events: list[MissedEvent] = field(default_factory=list)
    own_comments: dict[str, bool] = field(default_factory=dict)
    """The bot's own comments, each identified by its hidden tag. The value is True if the run that the comment
    reports on is in progress.
    """
    should_retry: bool = False
    """True if an issue or pull request could not be read and should be retried soon."""


class Poller:
    """Polls the repositories of the GitHub App's installations. If a token is used instead of an App, polls the
    configured repositories.
    """

    def __init__(
        self,
        rest: RestClient,
        get_identity: GetIdentity,
        repositories: Sequence[Repo] = (),
        max_age: timedelta = MAX_LIST_AGE,
    ) -> None:
        """`get_identity` returns the bot's account. `repositories` and `max_age` are passed to
        Repositories.
        """
        self._rest = rest
        self._get_identity = get_identity
        self.repositories = Repositories(rest, repositories, max_age)

    async def poll(
        self, repository: PolledRepository, since: datetime, etag: str, label: str
    ) -> PollResult | None:
        """Returns the events that happened after `since`, or None if nothing has changed since the response
        with this `etag`.

        For a closed issue or pull request, returns only the events after it was closed. Skips those that cannot
        be read. Raises ForgeError.
        """
        try:
            return await self._poll(repository, since, etag, label)
        except Unauthorized:
            self.repositories.forget()  # the token was revoked early; the next poll gets a new one
            raise

    async def _poll(
        self, repository: PolledRepository, since: datetime, etag: str, label: str
    ) -> PollResult | None:
        query = {"state": "all", "sort": "updated", "direction": "desc", "per_page": str(PER_PAGE)}
        query["since"] = _format_time(since)
        page = await self._rest.get_page(
            list[ThreadResponse], repository.token, *repository.path, "issues", etag=etag, **query
        )
        if page is None:
            return None
        threads = page.data
        if page.next_query:
            later_pages = self._rest.iter_pages(
                list[ThreadResponse], repository.token, *repository.path, "issues", **page.next_query
            )
            threads += [thread async for batch in later_pages for thread in batch]
        result = PollResult(max([since, *(thread.updated_at for thread in threads)]), page.etag)
        threads = [
            thread for thread in threads if thread.closed_at is None or thread.updated_at > thread.closed_at
        ]
        isolation = ErrorIsolation(Unauthorized)
        for thread in threads:
            if thread.pull_request is None and thread.created_at >= since:
                result.events.append(make_comment(repository, thread, thread, None))
            if any(is_same_label(known.name, label) for known in thread.labels):
                async with isolation.isolate_request(f"{repository.repo}#{thread.number}", self._rest):
                    result.events += await self._find_label_events(repository, thread, label)
        if threads:
            await self._add_comments(repository, since, {thread.number: thread for thread in threads}, result)
        if pulls := {thread.number: thread for thread in threads if thread.pull_request is not None}:
            await self._add_reviews(repository, since, pulls, result, isolation)
        result.should_retry = isolation.should_retry
        closed = {thread.number: thread.closed_at for thread in threads if thread.closed_at is not None}
        result.events = [
            event
            for event in result.events
            if event.occurred_at >= since and event.occurred_at > closed.get(event.delivery.number, EARLIEST)
        ]
        return result

    async def find_ended(
        self, repository: PolledRepository, jobs: Sequence[Job]
    ) -> list[ThreadClosed | LabelRemoved]:
        """Finds out which of the jobs' issues and pull requests were closed or lost their label. Returns an event
        for each of them, so that the jobs can be canceled.

        Skips issues and pull requests that cannot be read. Raises ForgeError.
        """
        labels = {job.number: job.label for job in sorted(jobs, key=lambda job: job.label or "")}
        isolation, ended = ErrorIsolation(Unauthorized), list[ThreadClosed | LabelRemoved]()
        for number, label in labels.items():
            async with isolation.isolate_request(f"{repository.repo}#{number}", self._rest):
                if (delivery := await self._find_ended_thread(repository, number, label)) is not None:
                    ended.append(delivery)
        return ended

    async def _find_ended_thread(
        self, repository: PolledRepository, number: int, label: str | None
    ) -> ThreadClosed | LabelRemoved | None:
        try:
            page = await self._rest.get_page(
                ThreadResponse, repository.token, *repository.path, "issues", str(number)
            )
            assert page is not None, "the request has no etag"
            thread = page.data
        except NotFound:
            thread = None
            # If the whole repository is unreachable, this raises NotFound, and no job is canceled.
            await self._rest.get_page(RepositoryResponse, repository.token, *repository.path)
        # the thread was transferred, and GitHub redirected the request to its new repository
        if thread is None or thread.number != number:
            reason: Literal["deleted", "transferred"] = "deleted" if thread is None else "transferred"
            now = datetime.now(UTC).isoformat()
            return ThreadClosed(
                repo=repository.repo, number=number, reason=reason, occurred_at=now, head_branch=None
            )
        if thread.closed_at is not None:
            occurred_at = thread.closed_at.isoformat()
            return ThreadClosed(
                repo=repository.repo,
                number=number,
                reason="closed",
                occurred_at=occurred_at,
                head_branch=None,
            )
        if label is None or any(is_same_label(known.name, label) for known in thread.labels):
            return None
        events = await self._rest.get_all(
            IssueEventResponse, repository.token, *repository.path, "issues", str(number), "events"
        )
        removals = [
            event
            for event in events
            if event.event == "unlabeled" and event.label and is_same_label(event.label.name, label)
        ]
        if not removals:
            return None
        last = removals[-1]
        sender = make_sender(last.actor)
        return LabelRemoved(
            repo=repository.repo, number=number, label=label, occurred_at=last.created_at, sender=sender
        )

    async def _find_label_events(
        self, repository: PolledRepository, thread: ThreadResponse, label: str
    ) -> list[MissedEvent]:
        """Returns the latest addition of the label to the issue or pull request, or [] if there is none."""
        events = await self._rest.get_all(
            IssueEventResponse, repository.token, *repository.path, "issues", str(thread.number), "events"
        )
        additions = [
            event
            for event in events
            if event.event == "labeled" and event.label and is_same_label(event.label.name, label)
        ]
        return [
            MissedEvent(
                LabelAdded(
                    repo=repository.repo,
                    repo_id=repository.id,
                    number=thread.number,
                    label=label,
                    occurred_at=event.created_at,
                    sender=make_sender(event.actor),
                    installation_id=repository.installation_id,
                    snapshot=thread.content(),
                ),
                datetime.fromisoformat(event.created_at),
            )
            for event in additions[-1:]
        ]

    async def _add_comments(
        self,
        repository: PolledRepository,
        since: datetime,
        threads: dict[int, ThreadResponse],
        result: PollResult,
    ) -> None:
        own_account = await self._get_identity(repository.token)
        query = {"since": _format_time(since), "sort": "updated", "direction": "asc"}
        for comment in await self._rest.get_all(
            IssueCommentResponse, repository.token, *repository.path, "issues", "comments", **query
        ):
            body, number = comment.body or "", _number_from_url(comment.issue_url)
            if (
                own_account
                and comment.user
                and comment.user.id == own_account.id
                and body.startswith(TAG_PREFIX)
            ):
                own = parse_tag(body)
                result.own_comments[own.tag] = own.is_in_progress
            if number not in threads or comment.updated_at != comment.created_at:
                continue  # the comment is old and was only edited, which does not trigger a run
            result.events.append(make_comment(repository, threads[number], comment, comment.id))

    async def _add_reviews(
        self,
        repository: PolledRepository,
        since: datetime,
        pulls: dict[int, ThreadResponse],
        result: PollResult,
        isolation: ErrorIsolation,
    ) -> None:
        published: dict[int, datetime] = {}
        for number in sorted(pulls):
            reviews = list[ReviewResponse]()
            async with isolation.isolate_request(f"{repository.repo}#{number}", self._rest):
                path = *repository.path, "pulls", str(number), "reviews"
                reviews = await self._rest.get_all(ReviewResponse, repository.token, *path)
            for review in reviews:
                if review.submitted_at is not None:
                    published[review.id] = review.submitted_at
                    delivery = make_review(
                        repository,
                        pulls[number],
                        review.id,
                        None,
                        review.body,
                        review.user,
                        review.submitted_at,
                    )
                    result.events.append(MissedEvent(delivery, review.submitted_at))
        query = {"since": _format_time(since), "sort": "updated", "direction": "asc"}
        for comment in await self._rest.get_all(
            ReviewCommentResponse, repository.token, *repository.path, "pulls", "comments", **query
        ):
            number, review_id = _number_from_url(comment.pull_request_url), comment.pull_request_review_id
            submitted_at = comment.created_at if review_id is None else published.get(review_id)
            if (
                number in pulls
                and submitted_at is not None
                and comment.updated_at <= submitted_at + PUBLISH_TOLERANCE
            ):
                delivery = make_review(
                    repository, pulls[number], review_id, comment.id, comment.body, comment.user, submitted_at
                )
                result.events.append(MissedEvent(delivery, submitted_at))


def _number_from_url(url: str) -> int:
    return int(url.rpartition("/")[2])


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
