"""Decides which deliveries request work, and derives the ids of jobs. No function in this module has side
effects.
"""

import hashlib
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_never

from patchwright.bot.comment_tags import TAG_PREFIX
from patchwright.bot.webhooks.delivery import (
    ChecksCompleted,
    CommentCreated,
    Delivery,
    IgnoredEvent,
    InstallationChanged,
    LabelAdded,
    LabelRemoved,
    Ping,
    ReviewSubmitted,
    ThreadClosed,
)
from patchwright.bot.webhooks.mentions import find_command, is_only_thanks
from patchwright.resolver.command_parser import Request
from patchwright.resolver.domain import Job, JobId, Repo, RunId, ThreadSnapshot, User
from patchwright.runtime.frozen_model import FrozenModel

LABEL_COLOR, LABEL_DESCRIPTION = "8250df", "Start a Patchwright run"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Maximum number of times that a label can be added to a thread within one second and start a new job each
# time.
MAX_LABELS_PER_SECOND = 5
DASHBOARD_EVENT = "patchwright_button"
"""The event name of the dashboard's requests in the inbox. The receiver accepts no such event from outside."""


class Triggers(FrozenModel):
    """The label, the mention and the App that identify requests for a run."""

    label: str = "fix-me"
    mention: str = "@agent"
    app_id: str | None = None
    """The id or client id of this deployment's App; None if the deployment uses a token."""


class TriggerRequest(FrozenModel):
    """A request by a user, and where it was made."""

    job: Job
    """The requested job. A command such as `stop` needs no run; its job only identifies the request."""
    requested_at: datetime | None
    """The time when the user made the request; None if unknown."""
    resource_path: tuple[str, ...] = ()
    """The API path of the comment, issue or pull request that the bot reacts to, without the path of the
    repository. () if the bot cannot add a reaction.
    """
    source: Literal["event", "poll", "dashboard"] = "event"
    """Whether an event reported the request, polling found it, or a button in the dashboard sent it."""
    run: RunId | None = None
    """The only run that the command affects; None for all runs of the thread."""

    @property
    def request(self) -> Request:
        """The parsed command."""
        return self.job.request

    def with_job_id(self, job_id: JobId) -> "TriggerRequest":
        return self.model_copy(update={"job": self.job.model_copy(update={"id": job_id})})


def find_request(delivery: Delivery, triggers: Triggers) -> TriggerRequest | None:
    """Returns the request in a delivery, or None if the delivery contains no request. The caller must check the
    sender's permission.
    """
    match delivery:
        case (
            Ping()
            | IgnoredEvent()
            | LabelRemoved()
            | ThreadClosed()
            | InstallationChanged()
            | ChecksCompleted()
        ):
            return None
        case LabelAdded():
            if delivery.sender.is_bot or not is_same_label(delivery.label, triggers.label):
                return None
            time = normalize_time(delivery.occurred_at)
            job = _make_job(delivery, "label", triggers.label, time, label=triggers.label)
            path: tuple[str, ...] = ("issues", str(delivery.number))
        case CommentCreated() | ReviewSubmitted():
            if is_own_comment(delivery, triggers) or delivery.sender.is_bot:
                return None  # otherwise, two bots could reply to each other without end
            command = find_command(delivery.body, triggers.mention)
            if command is None or is_only_thanks(delivery.body, triggers.mention):
                return None
            job, path = _make_text_job(delivery, command)
        case _:
            assert_never(delivery)
    return TriggerRequest(job=job, requested_at=parse_time(delivery.occurred_at), resource_path=path)


def label_command(label: str, repo: str = "OWNER/REPO") -> str:
    """Returns the shell command that creates the label in a repository."""
    name, description = shlex.quote(label), shlex.quote(LABEL_DESCRIPTION)
    return f"gh label create {name} --repo {repo} --color {LABEL_COLOR} --description {description}"


def is_same_label(name: str, other: str) -> bool:
    """Returns True if two label names are equal. Ignores letter case, as GitHub does."""
    return name.casefold() == other.casefold()


def find_job(delivery: Delivery, triggers: Triggers) -> Job | None:
    """Returns the job that a delivery requests, or None if the delivery requests no work."""
    found = find_request(delivery, triggers)
    return found.job if found and found.request.command.starts_run else None


def parse_time(stamp: str) -> datetime | None:
    """Parses a time from GitHub. Returns None if it is invalid."""
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return None


def normalize_time(stamp: str) -> str:
    """Returns a time in the form that GitHub usually writes: in UTC and whole seconds. Does not change an
    invalid time.
    """
    time = parse_time(stamp)
    return time.strftime(TIME_FORMAT) if time else stamp


def _make_text_job(delivery: CommentCreated | ReviewSubmitted, command: str) -> tuple[Job, tuple[str, ...]]:
    """Returns the job of a text, and the path of the text. All texts of a review lead to the same job."""
    if isinstance(delivery, CommentCreated):
        if delivery.comment_id is None:
            return _make_job(delivery, "opened", command=command), ("issues", str(delivery.number))
        comment_id = str(delivery.comment_id)
        return _make_job(delivery, "comment", comment_id, command=command), ("issues", "comments", comment_id)
    inline_id = delivery.review_comment_id
    path = ("pulls", "comments", str(inline_id)) if inline_id else ()
    if delivery.review_id is None:
        job = _make_job(delivery, "inline", str(inline_id), command=command, review_comment_id=inline_id)
        return job, path
    review_id = delivery.review_id
    return _make_job(delivery, "review", str(review_id), command=command, review_id=review_id), path


def is_own_comment(comment: CommentCreated | ReviewSubmitted, triggers: Triggers) -> bool:
    """Returns True if the bot wrote the comment. Recognizes the comment by the bot's App, or by the bot's tag
    if the deployment uses a token.

    A user's reply that quotes the bot is not mistaken for a comment of the bot, because a `>` precedes the
    quoted tag.
    """
    if (
        isinstance(comment, CommentCreated)
        and triggers.app_id is not None
        and triggers.app_id in comment.app_names
    ):
        return True
    return any(line.lstrip().startswith(TAG_PREFIX) for line in comment.body.split("\n"))


def _make_job(delivery: LabelAdded | CommentCreated | ReviewSubmitted, *trigger: str, **fields: Any) -> Job:
    return Job(
        id=trigger_job_id(delivery, *trigger),
        repo=delivery.repo,
        number=delivery.number,
        requester=User(id=delivery.sender.id, login=delivery.sender.login),
        installation_id=delivery.installation_id,
        snapshot=_make_snapshot(delivery),
        **fields,
    )


def _make_snapshot(delivery: LabelAdded | CommentCreated | ReviewSubmitted) -> ThreadSnapshot | None:
    content, taken_at = delivery.snapshot, parse_time(delivery.occurred_at)
    return (
        ThreadSnapshot(title=content.title, body=content.body, taken_at=taken_at)
        if content and taken_at
        else None
    )


def possible_job_ids(delivery: Delivery, job: Job) -> tuple[JobId, ...]:
    """Returns the ids that the job of this trigger may have, starting with `job.id`.

    If a label requested the job, the id contains a time. In a webhook delivery, this is the `updated_at` of the
    issue or pull request. In the events API, it is the time of the event, which can differ by a second.
    """
    if (
        not isinstance(delivery, LabelAdded)
        or job.label is None
        or (at := parse_time(delivery.occurred_at)) is None
    ):
        return (job.id,)
    neighbors = (at + timedelta(seconds=offset) for offset in (-1, 1))
    stamps = (time.strftime(TIME_FORMAT) for time in neighbors)
    return job.id, *(trigger_job_id(delivery, "label", job.label, stamp) for stamp in stamps)


def later_job_ids(delivery: Delivery, job: Job) -> tuple[JobId, ...]:
    """Returns the job ids that are used if a label is removed and added again within the same second. Returns
    () if the job was not requested by a label.
    """
    if not isinstance(delivery, LabelAdded) or job.label is None:
        return ()
    stamp = normalize_time(delivery.occurred_at)
    return tuple(
        trigger_job_id(delivery, "label", job.label, stamp, str(number))
        for number in range(2, MAX_LABELS_PER_SECOND + 1)
    )


def trigger_job_id(delivery: LabelAdded | CommentCreated | ReviewSubmitted, *trigger: str) -> JobId:
    """Returns the job id for a trigger. The id is readable, is the same for every delivery of the trigger,
    and can be used as a directory name.
    """
    return make_job_id(delivery.repo, delivery.repo_id, delivery.number, *trigger)


def make_job_id(repo: Repo, repo_id: int, number: int, *trigger: str) -> JobId:
    """Returns the id of the job for an event in an issue or pull request."""
    parts = "\0".join((str(repo_id), str(number), *trigger))
    digest = hashlib.sha256(parts.encode()).hexdigest()[:12]
    readable = re.sub(r"[^a-z0-9]+", "-", str(repo).lower()).strip("-")[:60]
    return JobId(f"{readable}-{number}-{digest}")
