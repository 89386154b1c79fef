"""Which deliveries ask for work, and the identity of what they ask. Pure."""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, assert_never

from bot.github.tags import MARK
from bot.webhooks.commands import find_command, thanks_alone
from bot.webhooks.delivery import (
    Checked,
    Closed,
    CommentMade,
    Delivery,
    Ignored,
    Labelled,
    Ping,
    Reach,
    ReviewSaid,
    Unlabelled,
)
from resolver.domain import Job, JobId, Pinned, Repo, User
from resolver.request.request import Request, request
from runtime.frozen import Frozen


class Triggers(Frozen):
    """What starts a run."""

    label: str = "fix-me"
    mention: str = "@agent"
    app_id: str | None = None
    """Id or client id of our own App; None when we act with a token."""


class Wish(NamedTuple):
    """What somebody asked of us, and where."""

    job: Job
    """What it is as a job; where it is none, its name still tells it apart, and whose permission counts."""
    asked: Request
    """What for."""
    at: datetime | None
    """When it was asked; None: the delivery does not say."""
    place: tuple[str, ...]
    """The path, below its repository's, of what they wrote or labelled; () where nobody can react to that."""


def wish_for(delivery: Delivery, rules: Triggers) -> Wish | None:
    """What this delivery asks of us, if anything. Whether its sender may ask is for the forge to say, later."""
    match delivery:
        case Ping() | Ignored() | Unlabelled() | Closed() | Reach() | Checked():
            return None
        case Labelled():
            if delivery.sender.bot or not is_label(delivery.label, rules.label):
                return None
            job = _job(delivery, "label", rules.label, delivery.at)
            job = job.model_copy(update={"label": rules.label})
            return Wish(job, request(""), _time(delivery.at), ("issues", str(delivery.number)))
        case CommentMade() | ReviewSaid():
            if is_our_own(delivery, rules) or delivery.sender.bot:
                return None  # two bots that answer each other would never end
            if (said := find_command(delivery.body, rules.mention)) is None:
                return None
            if thanks_alone(delivery.body, rules.mention):
                return None
            asked = request(said)
            if isinstance(delivery, ReviewSaid):
                place = ("pulls", "comments", str(delivery.inline)) if delivery.inline else ()
                return Wish(_of_review(delivery, said), asked, _time(delivery.at), place)
            job = _job(delivery, "comment", str(delivery.comment_id), command=said)
            place = ("issues", "comments", str(delivery.comment_id))
            return Wish(job, asked, _time(delivery.at), place)
        case _:
            assert_never(delivery)


def is_label(name: str, wanted: str) -> bool:
    """Whether it is this label: a repository on GitHub has no two whose names differ in case alone."""
    return name.casefold() == wanted.casefold()


def job_for(delivery: Delivery, rules: Triggers) -> Job | None:
    """The job that this delivery asks for, if it asks for work."""
    wish = wish_for(delivery, rules)
    return wish.job if wish and wish.asked.verb not in ("stop", "help") else None


def _time(stamp: str) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return None


def _of_review(said: ReviewSaid, command: str) -> Job:
    """One job for a review and all its inline comments, whichever of them mentions us and arrives first."""
    if said.review is None:
        return _job(said, "inline", str(said.inline), command=command).model_copy(
            update={"inline": said.inline}
        )
    job = _job(said, "review", str(said.review), command=command)
    return job.model_copy(update={"review": said.review})


def is_our_own(comment: CommentMade | ReviewSaid, rules: Triggers) -> bool:
    """Whether we wrote it: through our App, or with a person's token and our tag.

    A quotation of our comment has the tag behind a `>`, so that a reply to it still counts.
    """
    if isinstance(comment, CommentMade) and rules.app_id is not None and rules.app_id in comment.through_app:
        return True
    return any(line.lstrip().startswith(MARK) for line in comment.body.split("\n"))


def _job(delivery: Labelled | CommentMade | ReviewSaid, *trigger: str, command: str = "") -> Job:
    return Job(
        id=identity(delivery, *trigger),
        repo=delivery.repo,
        number=delivery.number,
        requester=User(id=delivery.sender.id, login=delivery.sender.login),
        command=command,
        installation=delivery.installation,
        pinned=_pinned(delivery),
    )


def _pinned(delivery: Labelled | CommentMade | ReviewSaid) -> Pinned | None:
    written, at = delivery.pinned, _time(delivery.at)
    return Pinned(title=written.title, body=written.body, at=at) if written and at else None


def names_of(delivery: Delivery, job: Job) -> tuple[JobId, ...]:
    """The names under which this very trigger may be known: its own first.

    A delivery dates a label by its thread's last change, the list of events by the event itself: the same second, or
    one beside it when the two were written around its end.
    """
    if not isinstance(delivery, Labelled) or job.label is None or (at := _time(delivery.at)) is None:
        return (job.id,)
    beside = (at + timedelta(seconds=one) for one in (-1, 1))
    stamps = (one.strftime("%Y-%m-%dT%H:%M:%SZ") for one in beside)
    return job.id, *(identity(delivery, "label", job.label, stamp) for stamp in stamps)


def identity(delivery: Labelled | CommentMade | ReviewSaid, *trigger: str) -> JobId:
    """The trigger's name: the same for every delivery of it, safe as a directory's name, and readable."""
    return job_name(delivery.repo, delivery.repo_id, delivery.number, *trigger)


def job_name(repo: Repo, repo_id: int, number: int, *trigger: str) -> JobId:
    """Of what happened in this thread."""
    parts = "\0".join((str(repo_id), str(number), *trigger))
    digest = hashlib.sha256(parts.encode()).hexdigest()[:12]
    readable = re.sub(r"[^a-z0-9]+", "-", str(repo).lower()).strip("-")[:60]
    return JobId(f"{readable}-{number}-{digest}")
