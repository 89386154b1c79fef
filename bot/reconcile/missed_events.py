"""Creates events for labels, comments and reviews that were found by polling GitHub.

The events have the same form as events from webhook deliveries.
"""

from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from patchwright.bot.github.repositories import PolledRepository
from patchwright.bot.github.schemas import GHOST, Account, GitHubResponse, LabelResponse
from patchwright.bot.github.valid_entries import ValidEntries
from patchwright.bot.webhooks.delivery import (
    CommentCreated,
    LabelAdded,
    ReviewSubmitted,
    Sender,
    ThreadContent,
)
from patchwright.bot.webhooks.payloads import PerformingApp

EARLIEST = datetime.min.replace(tzinfo=UTC)

TriggerDelivery: TypeAlias = LabelAdded | CommentCreated | ReviewSubmitted


class MissedEvent(NamedTuple):
    """An event whose delivery did not arrive or was not processed."""

    delivery: TriggerDelivery
    occurred_at: datetime


class ThreadResponse(GitHubResponse):
    number: int
    title: str
    body: str | None = None
    user: Account | None = None
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None = None
    labels: ValidEntries[LabelResponse] = ()
    pull_request: dict[str, object] | None = None
    performed_via_github_app: PerformingApp | None = None

    def content(self) -> ThreadContent:
        """The current title and body. They may have changed since the event."""
        return ThreadContent(title=self.title, body=self.body or "")


class IssueCommentResponse(GitHubResponse):
    id: int
    body: str | None = None
    user: Account | None = None
    created_at: datetime
    updated_at: datetime
    issue_url: str
    performed_via_github_app: PerformingApp | None = None


class ReviewCommentResponse(GitHubResponse):
    id: int
    body: str | None = None
    user: Account | None = None
    created_at: datetime
    updated_at: datetime
    pull_request_url: str
    pull_request_review_id: int | None = None


class ReviewResponse(GitHubResponse):
    id: int
    body: str | None = None
    user: Account | None = None
    submitted_at: datetime | None = None
    """The time when the review was submitted. It is None for a draft, which only its author sees."""


def make_comment(
    repository: PolledRepository,
    thread: ThreadResponse,
    text: ThreadResponse | IssueCommentResponse,
    comment_id: int | None,
) -> MissedEvent:
    """Returns the event of a comment. If `comment_id` is None, returns the event of the text that opened the
    issue.
    """
    app = text.performed_via_github_app
    delivery = CommentCreated(
        repo=repository.repo,
        repo_id=repository.id,
        number=thread.number,
        comment_id=comment_id,
        body=text.body or "",
        sender=make_sender(text.user),
        app_names=app.identifiers() if app else frozenset(),
        installation_id=repository.installation_id,
        occurred_at=text.created_at.isoformat(),
        snapshot=thread.content(),
    )
    return MissedEvent(delivery, text.created_at)


def make_review(
    repository: PolledRepository,
    pull: ThreadResponse,
    review_id: int | None,
    review_comment_id: int | None,
    body: str | None,
    author: Account | None,
    submitted_at: datetime,
) -> ReviewSubmitted:
    return ReviewSubmitted(
        repo=repository.repo,
        repo_id=repository.id,
        number=pull.number,
        review_id=review_id,
        review_comment_id=review_comment_id,
        body=body or "",
        sender=make_sender(author),
        installation_id=repository.installation_id,
        occurred_at=submitted_at.isoformat(),
        snapshot=pull.content(),
    )


def make_sender(account: Account | None) -> Sender:
    actor = account or GHOST
    return Sender(id=actor.id, login=actor.login, is_bot=actor.type == "Bot")
