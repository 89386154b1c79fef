"""Parses webhook deliveries from bytes. No function has side effects.

Source: docs.github.com/webhooks/webhook-events-and-payloads
"""

from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from patchwright.bot.webhooks import payloads
from patchwright.resolver.domain import Repo, User
from patchwright.runtime.frozen_model import FrozenModel

HANDLED_EVENTS = frozenset(
    {
        *("issues", "pull_request", "issue_comment", "pull_request_review", "pull_request_review_comment"),
        *("installation", "installation_repositories"),
        *("check_run", "check_suite", "workflow_run", "status"),
    }
)
"""Events that can start, change or stop a run. Deliveries of other events get a response and are ignored."""


class UnreadableDelivery(Exception):
    """Raised if a delivery's payload does not have the expected form."""


class Sender(User):
    """The account whose action caused a delivery."""

    is_bot: bool


class Ping(FrozenModel):
    """A test delivery for a new webhook."""

    kind: Literal["ping"] = "ping"


class IgnoredEvent(FrozenModel):
    """An event or action that Patchwright does not handle. GitHub may add new ones at any time."""

    kind: Literal["ignored_event"] = "ignored_event"
    event: str
    action: str = ""
    reason: str = ""
    """Why there is nothing to do, as a sentence; empty if the event says enough."""


class ThreadContent(FrozenModel):
    """The title and body of an issue or pull request."""

    title: str
    body: str


class LabelAdded(FrozenModel):
    """A label was added to an issue or pull request."""

    kind: Literal["label_added"] = "label_added"
    repo: Repo
    repo_id: int
    number: int
    label: str
    occurred_at: str
    """The `updated_at` of the issue or pull request, in GitHub's format. The value differs each time the label
    is added.
    """
    sender: Sender
    installation_id: int | None
    """The id of the App installation; None if the webhook belongs to the repository."""
    snapshot: ThreadContent | None = None
    """The title and body of the issue or pull request at the time of the event; None if unknown."""


class LabelRemoved(FrozenModel):
    """A label was removed from an issue or pull request."""

    kind: Literal["label_removed"] = "label_removed"
    repo: Repo
    number: int
    label: str
    occurred_at: str
    """The time of the event, in GitHub's format."""
    sender: Sender


class HeadBranch(FrozenModel):
    """The head branch of a pull request."""

    name: str
    is_same_repository: bool
    """True if the branch is in the repository itself; False if it is in a fork."""
    author_id: int | None
    """The user id of the pull request's author; None if the account was deleted."""


class ThreadClosed(FrozenModel):
    """An issue or pull request was closed, merged, deleted or transferred."""

    kind: Literal["thread_closed"] = "thread_closed"
    repo: Repo
    number: int
    reason: Literal["closed", "merged", "deleted", "transferred"]
    occurred_at: str
    """The time of the event, in GitHub's format."""
    head_branch: HeadBranch | None
    """The head branch of the pull request; None for an issue."""


class InstallationChanged(FrozenModel):
    """The permissions or repositories of an App installation have changed."""

    kind: Literal["installation_changed"] = "installation_changed"
    installation_id: int
    is_access_removed: bool
    """True if the App lost access to the repositories."""
    repositories: tuple[Repo, ...]
    """The affected repositories; empty if the event affects all repositories of the installation."""
    permissions: dict[str, str]
    """The permissions of the installation after the change."""
    settings_url: str
    """URL of the page on which the owner changes the installation; "" if unknown."""


class ChecksCompleted(FrozenModel):
    """One or more checks finished on a commit. Query GitHub for their conclusions."""

    kind: Literal["checks_completed"] = "checks_completed"
    repo: Repo
    repo_id: int
    branch: str
    commit: str
    installation_id: int | None


class ThreadText(FrozenModel):
    """A text that somebody wrote in an issue or pull request."""

    repo: Repo
    repo_id: int
    number: int
    body: str
    sender: Sender
    installation_id: int | None
    """The id of the App installation; None if the webhook belongs to the repository."""
    occurred_at: str = ""
    """The time of the event, in GitHub's format."""
    snapshot: ThreadContent | None = None
    """The title and body of the issue or pull request at the time of the event; None if unknown."""


class CommentCreated(ThreadText):
    """A comment was created on an issue or pull request, or an issue was opened."""

    kind: Literal["comment_created"] = "comment_created"
    comment_id: int | None
    """The id of the comment; None for the text that opens an issue."""
    app_names: frozenset[str]
    """The id, client id and slug of the App through which the sender wrote the comment. Empty if there is none."""


class ReviewSubmitted(ThreadText):
    """A review was submitted, or an inline comment was created. The events of a review arrive in any order."""

    kind: Literal["review_submitted"] = "review_submitted"
    review_id: int | None
    """The id of the review. Each inline comment that is posted on its own, and each reply in a thread, has its
    own review.
    """
    review_comment_id: int | None
    """The id of the inline comment; None if the event is about the review's own text."""


Delivery = Annotated[
    Ping
    | IgnoredEvent
    | LabelAdded
    | LabelRemoved
    | ThreadClosed
    | InstallationChanged
    | ChecksCompleted
    | CommentCreated
    | ReviewSubmitted,
    Field(discriminator="kind"),
]


def parse_delivery(event: str, body: bytes) -> Delivery:
    """Parses a delivery. The caller has verified its signature.

    Raises UnreadableDelivery if a payload is not JSON, is nested too deeply, or lacks a required field.
    """
    if event == "ping":
        return Ping()
    if event not in HANDLED_EVENTS:
        return IgnoredEvent(event=event)
    action = _parse(payloads.ActionPayload, body).action
    match event, action:
        case "issues" | "pull_request", "labeled" | "unlabeled":
            return _make_label_change(_parse(payloads.LabelPayload, body), action)
        case "issues", "closed" | "deleted" | "transferred":
            return _make_issue_closed(_parse(payloads.IssuePayload, body), action)
        case "pull_request", "closed":
            return _make_pull_closed(_parse(payloads.PullClosedPayload, body))
        case "issues", "opened":
            return _make_issue_opened(_parse(payloads.IssueOpenedPayload, body))
        case "issue_comment", "created":
            created = _parse(payloads.IssueCommentPayload, body)
            return _make_comment_created(created, created.issue, created.comment, created.comment.id)
        case "pull_request_review", "submitted":
            submitted = _parse(payloads.ReviewPayload, body)
            review = submitted.review
            return _make_review_submitted(submitted, review.id, None, review.body, review.submitted_at or "")
        case "pull_request_review_comment", "created":
            inline = _parse(payloads.ReviewCommentPayload, body)
            comment = inline.comment
            return _make_review_submitted(
                inline, comment.pull_request_review_id, comment.id, comment.body, comment.created_at
            )
        case "check_suite" | "check_run" | "workflow_run", "completed":
            return _make_checks_completed(event, _parse(payloads.ChecksPayload, body))
        case "status", "":
            return _make_checks_completed(event, _parse(payloads.StatusPayload, body))
        case ("installation", _) | ("installation_repositories", "added" | "removed"):
            return _make_installation_changed(_parse(payloads.InstallationPayload, body), action)
        case _:
            return IgnoredEvent(event=event, action=action)


ACCESS_REMOVED_ACTIONS = frozenset({"deleted", "suspend", "removed"})
"""The actions of installation events in which the App loses access."""


def _make_label_change(payload: payloads.LabelPayload, action: str) -> LabelAdded | LabelRemoved:
    repo, thread, sender = _repo_of_payload(payload), payload.thread, _as_sender(payload.sender)
    label, occurred_at = payload.label.name, thread.updated_at
    if action == "unlabeled":
        return LabelRemoved(
            repo=repo, number=thread.number, label=label, occurred_at=occurred_at, sender=sender
        )
    return LabelAdded(
        repo=repo,
        repo_id=payload.repository.id,
        number=thread.number,
        label=label,
        occurred_at=occurred_at,
        sender=sender,
        installation_id=payload.installation_id,
        snapshot=_make_content(thread),
    )


def _make_issue_opened(payload: payloads.IssueOpenedPayload) -> CommentCreated | IgnoredEvent:
    issue = payload.issue
    # A transfer also opens an issue. Its text is not a request of the person who moved it.
    if issue.user is None or issue.user.id != payload.sender.id:
        return IgnoredEvent(event="issues", action="opened")
    return _make_comment_created(payload, issue, issue, None)


def _make_comment_created(
    payload: payloads.RepositoryPayload,
    thread: payloads.ThreadSummary,
    text: payloads.WrittenText,
    comment_id: int | None,
) -> CommentCreated:
    app = text.performed_via_github_app
    return CommentCreated(
        repo=_repo_of_payload(payload),
        repo_id=payload.repository.id,
        number=thread.number,
        comment_id=comment_id,
        body=text.body or "",
        sender=_as_sender(payload.sender),
        app_names=app.identifiers() if app else frozenset(),
        installation_id=payload.installation_id,
        occurred_at=text.created_at,
        snapshot=_make_content(thread),
    )


def _make_checks_completed(event: str, payload: payloads.AnyChecks) -> ChecksCompleted | IgnoredEvent:
    suite = payload.suite
    if not suite.head_branch:
        return IgnoredEvent(event=event)
    return ChecksCompleted(
        repo=_repo_of_payload(payload),
        repo_id=payload.repository.id,
        branch=suite.head_branch,
        commit=suite.head_sha,
        installation_id=payload.installation_id,
    )


def _make_issue_closed(
    payload: payloads.IssuePayload, reason: Literal["closed", "deleted", "transferred"]
) -> ThreadClosed:
    thread = payload.issue
    return ThreadClosed(
        repo=_repo_of_payload(payload),
        number=thread.number,
        reason=reason,
        # An issue that is deleted or transferred may have been closed and reopened long before.
        occurred_at=(thread.closed_at if reason == "closed" else None) or thread.updated_at,
        head_branch=None,
    )


def _make_pull_closed(payload: payloads.PullClosedPayload) -> ThreadClosed:
    pull = payload.pull_request
    is_same = pull.head.repo is not None and pull.head.repo == pull.base.repo
    return ThreadClosed(
        repo=_repo_of_payload(payload),
        number=pull.number,
        reason="merged" if pull.merged else "closed",
        occurred_at=pull.closed_at or pull.updated_at,
        head_branch=HeadBranch(
            name=pull.head.ref, is_same_repository=is_same, author_id=pull.user.id if pull.user else None
        ),
    )


def _make_installation_changed(
    payload: payloads.InstallationPayload, action: str
) -> InstallationChanged | IgnoredEvent:
    repositories = payload.list_repositories(action)
    if action in ("added", "removed") and not repositories:
        return IgnoredEvent(event="installation_repositories", action=action)
    return InstallationChanged(
        installation_id=payload.installation.id,
        is_access_removed=action in ACCESS_REMOVED_ACTIONS,
        repositories=repositories,
        permissions=payload.installation.permissions,
        settings_url=payload.installation.html_url,
    )


def _make_review_submitted(
    payload: payloads.PullPayload,
    review_id: int | None,
    review_comment_id: int | None,
    body: str | None,
    occurred_at: str,
) -> ReviewSubmitted:
    return ReviewSubmitted(
        repo=_repo_of_payload(payload),
        repo_id=payload.repository.id,
        number=payload.pull_request.number,
        review_id=review_id,
        review_comment_id=review_comment_id,
        body=body or "",
        sender=_as_sender(payload.sender),
        installation_id=payload.installation_id,
        occurred_at=occurred_at,
        snapshot=_make_content(payload.pull_request),
    )


def _make_content(thread: payloads.ThreadSummary) -> ThreadContent | None:
    return None if thread.title is None else ThreadContent(title=thread.title, body=thread.body or "")


def _as_sender(account: payloads.Account) -> Sender:
    return Sender(id=account.id, login=account.login, is_bot=account.type == "Bot")


def _repo_of_payload(payload: payloads.RepositoryPayload) -> Repo:
    try:
        return Repo(owner=payload.repository.owner.login, name=payload.repository.name)
    except ValidationError as exc:
        raise UnreadableDelivery(_describe_first_error(exc)) from exc


_Model = TypeVar("_Model", bound=payloads.PayloadModel)


def _parse(model: type[_Model], body: bytes) -> _Model:
    try:
        # `json.loads` would raise RecursionError if the JSON is nested too deep.
        return model.model_validate_json(body)
    except ValidationError as exc:
        raise UnreadableDelivery(_describe_first_error(exc)) from exc


def _describe_first_error(error: ValidationError) -> str:
    """Describes the first validation error. Leaves out the invalid value, because it is untrusted text."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the payload'}: {first['msg']}"
