"""What a webhook delivery says. Pure: bytes in, a value out.

Source: docs.github.com/webhooks/webhook-events-and-payloads
"""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from resolver.domain import Repo, User
from runtime.frozen import Frozen

EVENTS = frozenset(
    {"issues", "pull_request", "issue_comment", "pull_request_review", "pull_request_review_comment"}
)
"""What may ask something of us; all else is answered and forgotten."""


class Unreadable(Exception):
    """The delivery is GitHub's, but not in a form that we know."""


class Sender(User):
    """Who did what a delivery tells of."""

    bot: bool


class Ping(Frozen):
    """GitHub says hello to a new webhook."""

    kind: Literal["ping"] = "ping"


class Ignored(Frozen):
    """An event or action that asks nothing of us. Not an error: GitHub adds new ones at any time."""

    kind: Literal["ignored"] = "ignored"
    event: str
    action: str = ""


class Labelled(Frozen):
    """A label was put on an issue or a pull request."""

    kind: Literal["labelled"] = "labelled"
    repo: Repo
    repo_id: int
    number: int
    label: str
    at: str
    """The thread's `updated_at` as GitHub wrote it: tells apart a label removed and put on again."""
    sender: Sender
    installation: int | None
    """None when the webhook is the repository's own, not an App's."""


class CommentMade(Frozen):
    """A comment was made on an issue or a pull request."""

    kind: Literal["comment_made"] = "comment_made"
    repo: Repo
    repo_id: int
    number: int
    comment_id: int
    body: str
    sender: Sender
    through_app: frozenset[str]
    """Id, client id and slug of the App that wrote in the sender's name; empty when no App did."""
    installation: int | None
    """None when the webhook is the repository's own, not an App's."""
    at: str = ""
    """When, as GitHub wrote it."""


class ReviewSaid(Frozen):
    """A review of a pull request was submitted, or one of its inline comments made, in any order."""

    kind: Literal["review_said"] = "review_said"
    repo: Repo
    repo_id: int
    number: int
    review: int | None
    """Id of the review; an inline comment that stands alone, or answers in a thread, has one of its own."""
    inline: int | None
    """Id of the inline comment; None: this is the review's own text."""
    body: str
    sender: Sender
    installation: int | None
    """None when the webhook is the repository's own, not an App's."""
    at: str = ""
    """When, as GitHub wrote it."""


Delivery = Annotated[Ping | Ignored | Labelled | CommentMade | ReviewSaid, Field(discriminator="kind")]


def read(event: str, body: bytes) -> Delivery:
    """What an event says whose origin is not in doubt.

    Raises Unreadable for an event of ours that is not JSON, nested too deep, or lacks what we use.
    """
    if event == "ping":
        return Ping()
    if event not in EVENTS:
        return Ignored(event=event)
    action = _parse(_Event, body).action
    match event, action:
        case "issues", "labeled":
            on_issue = _parse(_IssueLabeled, body)
            return _labelled(on_issue, on_issue.issue)
        case "pull_request", "labeled":
            on_pull = _parse(_PullLabeled, body)
            return _labelled(on_pull, on_pull.pull_request)
        case "issue_comment", "created":
            made = _parse(_CommentCreated, body)
            app = made.comment.performed_via_github_app
            return CommentMade(
                repo=made.repo(),
                repo_id=made.repository.id,
                number=made.issue.number,
                comment_id=made.comment.id,
                body=made.comment.body or "",
                sender=made.sender.value(),
                through_app=app.names() if app else frozenset(),
                installation=made.installation.id if made.installation else None,
                at=made.comment.created_at,
            )
        case "pull_request_review", "submitted":
            review = _parse(_ReviewSubmitted, body)
            said = review.review
            return _reviewed(review, said.id, None, said.body, said.submitted_at or "")
        case "pull_request_review_comment", "created":
            inline = _parse(_InlineCreated, body)
            one = inline.comment
            return _reviewed(inline, one.pull_request_review_id, one.id, one.body, one.created_at)
        case _:
            return Ignored(event=event, action=action)


def _labelled(said: "_IssueLabeled | _PullLabeled", thread: "_Thread") -> Labelled:
    return Labelled(
        repo=said.repo(),
        repo_id=said.repository.id,
        number=thread.number,
        label=said.label.name,
        at=thread.updated_at,
        sender=said.sender.value(),
        installation=said.installation.id if said.installation else None,
    )


def _reviewed(
    said: "_OnPull", review: int | None, inline: int | None, body: str | None, at: str
) -> ReviewSaid:
    return ReviewSaid(
        repo=said.repo(),
        repo_id=said.repository.id,
        number=said.pull_request.number,
        review=review,
        inline=inline,
        body=body or "",
        sender=said.sender.value(),
        installation=said.installation.id if said.installation else None,
        at=at,
    )


# --- the few fields of GitHub's payloads that we read -------------------------------------------------------
# Our own models, not githubkit's: those reject 107 of GitHub's 329 example payloads and cost 3 ms each.


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class _Event(_Part):
    action: str = ""


class _Account(_Part):
    id: int
    login: str
    type: str = "User"

    def value(self) -> Sender:
        return Sender(id=self.id, login=self.login, bot=self.type == "Bot")


class _Owner(_Part):
    login: str


class _Repository(_Part):
    id: int
    name: str
    owner: _Owner


class _Installation(_Part):
    id: int


class _Label(_Part):
    name: str


class _Thread(_Part):
    number: int = Field(ge=1)
    updated_at: str


class ThroughApp(_Part):
    """The App that somebody wrote through."""

    id: int
    client_id: str | None = None
    slug: str | None = None

    def names(self) -> frozenset[str]:
        return frozenset(name for name in (str(self.id), self.client_id, self.slug) if name)


class _Comment(_Part):
    id: int
    body: str | None
    created_at: str = ""
    performed_via_github_app: ThroughApp | None = None


class _InRepository(_Part):
    repository: _Repository
    sender: _Account
    installation: _Installation | None = None

    def repo(self) -> Repo:
        try:
            return Repo(owner=self.repository.owner.login, name=self.repository.name)
        except ValidationError as exc:
            raise Unreadable(_first(exc)) from exc


class _IssueLabeled(_InRepository):
    issue: _Thread
    label: _Label


class _PullLabeled(_InRepository):
    pull_request: _Thread
    label: _Label


class _CommentCreated(_InRepository):
    issue: _Thread
    comment: _Comment


class _Review(_Part):
    id: int
    body: str | None
    submitted_at: str | None = None


class _Inline(_Part):
    id: int
    body: str | None
    created_at: str = ""
    pull_request_review_id: int | None = None


class _Numbered(_Part):
    number: int = Field(ge=1)


class _OnPull(_InRepository):
    pull_request: _Numbered


class _ReviewSubmitted(_OnPull):
    review: _Review


class _InlineCreated(_OnPull):
    comment: _Inline


_Model = TypeVar("_Model", bound=_Part)


def _parse(model: type[_Model], body: bytes) -> _Model:
    try:
        # From bytes in one step: its parser refuses deep nesting, where `json.loads` raises RecursionError.
        return model.model_validate_json(body)
    except ValidationError as exc:
        raise Unreadable(_first(exc)) from exc


def _first(exc: ValidationError) -> str:
    """The first fault, without the value: that is foreign text."""
    fault = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'the payload'}: {fault['msg']}"
