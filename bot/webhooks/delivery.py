"""What a webhook delivery says. Pure: bytes in, a value out.

Source: docs.github.com/webhooks/webhook-events-and-payloads
"""

from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from bot.webhooks import payloads
from resolver.domain import Repo, User
from runtime.frozen import Frozen

EVENTS = frozenset(
    {
        *("issues", "pull_request", "issue_comment", "pull_request_review", "pull_request_review_comment"),
        *("installation", "installation_repositories"),
        *("check_run", "check_suite", "workflow_run", "status"),
    }
)
"""What may ask something of us, or change what we may do; all else is answered and forgotten."""


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


class Written(Frozen):
    """What an issue or a pull request says."""

    title: str
    body: str


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
    pinned: Written | None = None
    """As the thread was then; None: nobody has told."""


class Unlabelled(Frozen):
    """A label was taken away from an issue or a pull request."""

    kind: Literal["unlabelled"] = "unlabelled"
    repo: Repo
    number: int
    label: str
    at: str
    """When, as GitHub wrote it."""
    sender: Sender


class Branch(Frozen):
    """Where a pull request comes from."""

    name: str
    same_repository: bool
    """False for a fork's."""
    author: int | None
    """Id of who opened it; None: the account is gone."""


class Closed(Frozen):
    """An issue or a pull request is not open any more, or not there any more."""

    kind: Literal["closed"] = "closed"
    repo: Repo
    number: int
    how: Literal["closed", "merged", "deleted", "transferred"]
    at: str
    """When, as GitHub wrote it."""
    branch: Branch | None
    """None: it is an issue."""


class Reach(Frozen):
    """What an App may do has changed."""

    kind: Literal["reach"] = "reach"
    installation: int
    lost: bool
    """It may not act there any more."""
    repositories: tuple[Repo, ...]
    """Where; empty: wherever this installation may act."""
    permissions: dict[str, str]
    """What it may do now."""
    page: str
    """Where its owner changes that; empty: not told."""


class Checked(Frozen):
    """A program has come to an end with a commit; how is for the forge to say."""

    kind: Literal["checked"] = "checked"
    repo: Repo
    repo_id: int
    branch: str
    commit: str
    installation: int | None


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
    pinned: Written | None = None
    """As of a label."""


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
    pinned: Written | None = None
    """As of a label."""


Delivery = Annotated[
    Ping | Ignored | Labelled | Unlabelled | Closed | Reach | Checked | CommentMade | ReviewSaid,
    Field(discriminator="kind"),
]


def read(event: str, body: bytes) -> Delivery:
    """What an event says whose origin is not in doubt.

    Raises Unreadable for an event of ours that is not JSON, nested too deep, or lacks what we use.
    """
    if event == "ping":
        return Ping()
    if event not in EVENTS:
        return Ignored(event=event)
    action = _parse(payloads.Event, body).action
    match event, action:
        case "issues", "labeled":
            on_issue = _parse(payloads.IssueLabel, body)
            return _put_on(on_issue, on_issue.issue)
        case "pull_request", "labeled":
            on_pull = _parse(payloads.PullLabel, body)
            return _put_on(on_pull, on_pull.pull_request)
        case "issues", "unlabeled":
            on_issue = _parse(payloads.IssueLabel, body)
            return _taken_away(on_issue, on_issue.issue)
        case "pull_request", "unlabeled":
            on_pull = _parse(payloads.PullLabel, body)
            return _taken_away(on_pull, on_pull.pull_request)
        case "issues", "closed" | "deleted" | "transferred":
            return _closed(_parse(payloads.OnIssue, body), action)
        case "pull_request", "closed":
            return _pull_closed(_parse(payloads.PullClosed, body))
        case "issue_comment", "created":
            made = _parse(payloads.CommentCreated, body)
            app = made.comment.performed_via_github_app
            return CommentMade(
                repo=_repo(made),
                repo_id=made.repository.id,
                number=made.issue.number,
                comment_id=made.comment.id,
                body=made.comment.body or "",
                sender=_sender(made),
                through_app=app.names() if app else frozenset(),
                installation=_installation(made),
                at=made.comment.created_at,
                pinned=_written(made.issue),
            )
        case "pull_request_review", "submitted":
            review = _parse(payloads.ReviewSubmitted, body)
            said = review.review
            return _reviewed(review, said.id, None, said.body, said.submitted_at or "")
        case "pull_request_review_comment", "created":
            inline = _parse(payloads.InlineCreated, body)
            one = inline.comment
            return _reviewed(inline, one.pull_request_review_id, one.id, one.body, one.created_at)
        case ended if ended in payloads.ENDED:
            return _checked(event, _parse(payloads.ENDED[ended], body))
        case "installation", _:
            return _reach(_parse(payloads.InstallationChanged, body), action)
        case "installation_repositories", "added" | "removed":
            changed = _parse(payloads.RepositoriesChanged, body)
            lost = action == "removed"
            return _reach(
                changed, action, changed.repositories_removed if lost else changed.repositories_added
            )
        case _:
            return Ignored(event=event, action=action)


LOST = frozenset({"deleted", "suspend", "removed"})
"""Actions of installation events after which an App may do less."""


def _put_on(said: payloads.IssueLabel | payloads.PullLabel, thread: payloads.Thread) -> Labelled:
    return Labelled(
        repo=_repo(said),
        repo_id=said.repository.id,
        number=thread.number,
        label=said.label.name,
        at=thread.updated_at,
        sender=_sender(said),
        installation=_installation(said),
        pinned=_written(thread),
    )


def _taken_away(said: payloads.IssueLabel | payloads.PullLabel, thread: payloads.Thread) -> Unlabelled:
    return Unlabelled(
        repo=_repo(said),
        number=thread.number,
        label=said.label.name,
        at=thread.updated_at,
        sender=_sender(said),
    )


def _checked(event: str, said: payloads.Ended) -> Checked | Ignored:
    suite = said.suite
    if not suite.head_branch:
        return Ignored(event=event)
    return Checked(
        repo=_repo(said),
        repo_id=said.repository.id,
        branch=suite.head_branch,
        commit=suite.head_sha,
        installation=_installation(said),
    )


def _closed(said: payloads.OnIssue, how: Literal["closed", "deleted", "transferred"]) -> Closed:
    thread = said.issue
    return Closed(
        repo=_repo(said),
        number=thread.number,
        how=how,
        # One that is deleted or transferred may have been closed long ago, and open again since.
        at=(thread.closed_at if how == "closed" else None) or thread.updated_at,
        branch=None,
    )


def _pull_closed(said: payloads.PullClosed) -> Closed:
    pull = said.pull_request
    here = pull.head.repo is not None and pull.head.repo == pull.base.repo
    return Closed(
        repo=_repo(said),
        number=pull.number,
        how="merged" if pull.merged else "closed",
        at=pull.closed_at or pull.updated_at,
        branch=Branch(name=pull.head.ref, same_repository=here, author=pull.user.id if pull.user else None),
    )


def _reach(
    said: payloads.InstallationChanged, action: str, repositories: tuple[payloads.Named, ...] = ()
) -> Reach | Ignored:
    home = said.installation
    if action in ("added", "removed") and not repositories:
        return Ignored(event="installation_repositories", action=action)
    return Reach(
        installation=home.id,
        lost=action in LOST,
        repositories=tuple(_named(*one.full_name.partition("/")[::2]) for one in repositories),
        permissions=home.permissions,
        page=home.html_url,
    )


def _reviewed(
    said: payloads.OnPull, review: int | None, inline: int | None, body: str | None, at: str
) -> ReviewSaid:
    return ReviewSaid(
        repo=_repo(said),
        repo_id=said.repository.id,
        number=said.pull_request.number,
        review=review,
        inline=inline,
        body=body or "",
        sender=_sender(said),
        installation=_installation(said),
        at=at,
        pinned=_written(said.pull_request),
    )


def _written(thread: payloads.Numbered) -> Written | None:
    return None if thread.title is None else Written(title=thread.title, body=thread.body or "")


def _sender(said: payloads.InRepository) -> Sender:
    account = said.sender
    return Sender(id=account.id, login=account.login, bot=account.type == "Bot")


def _installation(said: payloads.InRepository) -> int | None:
    return said.installation.id if said.installation else None


def _repo(said: payloads.InRepository) -> Repo:
    return _named(said.repository.owner.login, said.repository.name)


def _named(owner: str, name: str) -> Repo:
    try:
        return Repo(owner=owner, name=name)
    except ValidationError as exc:
        raise Unreadable(_first(exc)) from exc


_Model = TypeVar("_Model", bound=payloads.Part)


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
