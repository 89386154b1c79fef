"""What a job that may only read leaves for one that may write: the log of its run, as data.

An agent has worked where it was packed, so that nothing in it is believed but what it alone can know: what was
changed, what the tests said of that, and the words about it. The job comes from the trigger; people, threads and
branches from the forge; what may be published is decided again (`resolver/deliver.py`, `resolver/security/policy.py`).
"""

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from resolver.circumstances import Configured
from resolver.domain import Issue, Job, PullRequest, RunId, Thread
from resolver.errors import ParcelRefused
from resolver.events import Assigned, Entry, Resumed, Settled, Started, Trajectory
from resolver.forge import Forge
from resolver.git.branches import is_branch_name
from resolver.log import trajectory_of
from resolver.secrets import Secrets
from resolver.security.redact import without_secrets
from resolver.settings.configuration import own_version, recorded
from resolver.settings.settings import Settings
from runtime.frozen import Frozen

LABEL, EVENTS = "parcel.json", "events.jsonl"
MOST_LABEL = 64 * 2**10  # bytes
MOST_EVENTS = 64 * 2**20  # bytes
MOST_PROBLEM = 4_000  # characters
MOST_NUMBER = 1e15  # no count, price or time of ours comes near it
OLDEST = timedelta(days=90)  # GitHub keeps an artifact no longer


class Label(Frozen):
    """What stands on a parcel."""

    version: Literal[1] = 1
    run: RunId
    problem: str = Field(default="", max_length=MOST_PROBLEM)
    """Why the work broke off, for the thread; empty: it came to its end."""


class Parcel(NamedTuple):
    """What was taken out of one; nothing of it is verified."""

    label: Label
    told: Trajectory | None
    """None: there was no work."""


def leave(
    directory: Path,
    run: RunId,
    told: Trajectory | None,
    problem: str,
    secrets: Secrets,
    most: int = MOST_EVENTS,
) -> None:
    """Pack a run without these secrets. Raises ParcelRefused where that cannot be written."""
    lines = b""
    if told is not None and not told.settled:
        entries = without_secrets(told, secrets).entries
        lines = b"".join(entry.model_dump_json(warnings=False).encode() + b"\n" for entry in entries)
    if len(lines) > most:
        problem = problem or f"The run's log has {len(lines)} bytes; {most} are the limit of a parcel."
        lines = b""
    label = Label(run=run, problem=secrets.mask(problem)[:MOST_PROBLEM])
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / EVENTS).write_bytes(lines)
        (directory / LABEL).write_text(label.model_dump_json() + "\n", encoding="utf-8")
    except OSError as exc:
        raise ParcelRefused(f"The parcel cannot be left in {directory}: {exc.strerror}.") from exc


def take(directory: Path, job: Job) -> Parcel:
    """What was left for this job. Raises ParcelRefused."""
    try:
        label = Label.model_validate_json(_read(directory / LABEL, MOST_LABEL))
    except ValidationError as exc:
        raise ParcelRefused("What was left to be published has no label of this version.") from exc
    if label.run != job.id:
        raise ParcelRefused("What was left to be published belongs to another run.")
    lines = _read(directory / EVENTS, MOST_EVENTS)
    _check_numbers(lines)
    told = trajectory_of(lines, "What was left to be published")
    return Parcel(label, told if told.entries else None)


async def verified(told: Trajectory, job: Job, forge: Forge, settings: Settings) -> tuple[Entry, ...]:
    """The entries of a run of this job, with the forge's word wherever it has one, and our settings for theirs.

    Raises ParcelRefused for a log that no job of ours leaves, or that what is on the forge has left behind;
    ForgeError.
    """
    first, *rest = told.entries
    started = first.event
    if not isinstance(started, Started):
        raise ParcelRefused("The log that was left does not begin with the beginning of a run.")
    if any(isinstance(entry.event, Started | Assigned | Resumed | Settled) for entry in rest):
        raise ParcelRefused("The log that was left holds what is for the job that publishes to write.")
    if started.job != job:
        raise ParcelRefused("The log that was left is of another job than this workflow's event asks for.")
    now = datetime.now(UTC)
    if any(entry.at.tzinfo is None or not now - OLDEST < entry.at < now + OLDEST for entry in told.entries):
        raise ParcelRefused("The log that was left has impossible times.")
    thread = await _on_forge(started, await forge.thread(job), job, forge)
    begun = first.model_copy(update={"event": started.model_copy(update={"thread": thread})})
    return (begun, *(_under(settings, entry) for entry in rest))


def _under(settings: Settings, entry: Entry) -> Entry:
    """What links, commands and limits people are told of is ours to say."""
    if not isinstance(entry.event, Configured):
        return entry
    ours = {"version": own_version(), "settings": recorded(settings), "repository": {}}
    return entry.model_copy(update={"event": entry.event.model_copy(update=ours)})


async def _on_forge(started: Started, now: Thread, job: Job, forge: Forge) -> Thread:
    """The thread as the forge has it, pinned where the run says that it was; checked that it can have been there."""
    told = started.thread
    pinned: dict[str, object] = {
        "open": told.open,
        "locked": told.locked,
    }  # what became of it is looked at later
    await _check_history(started.base_branch, started.base, job, forge, at_head=isinstance(told, PullRequest))
    if isinstance(told, Issue) and isinstance(now, Issue):
        return now.model_copy(update=pinned)
    if not (isinstance(told, PullRequest) and isinstance(now, PullRequest)):
        raise ParcelRefused("The log that was left is of another kind of thread.")
    if (told.head, told.head_repo, told.base) != (now.head, now.head_repo, now.base):
        raise ParcelRefused("The pull request has other branches than the log that was left says.")
    if told.head_sha != started.base or started.base_branch != now.base:
        raise ParcelRefused("The log that was left began elsewhere than at the pull request.")
    if told.head_sha != now.head_sha:
        commits = await forge.commits(job.repo, job.number)
        if told.head_sha not in {commit.sha for commit in commits}:
            raise ParcelRefused("The pull request does not have the commit any more that the work began at.")
    await _check_history(now.base, told.base_sha, job, forge)
    known = {thread.id: thread for thread in now.threads}
    if any(thread.id not in known for thread in told.threads):
        raise ParcelRefused("A review thread that was worked on is not in this pull request, or no longer.")
    pinned["threads"] = tuple(
        known[thread.id].model_copy(update={"resolved": thread.resolved, "asked": thread.asked})
        for thread in told.threads
    )
    return now.model_copy(update=pinned | {"head_sha": told.head_sha, "base_sha": told.base_sha})


async def _check_history(branch: str, commit: str, job: Job, forge: Forge, *, at_head: bool = False) -> None:
    """Raises ParcelRefused unless the repository's branch has this commit.

    `at_head`: the commit is a pull request's, which the caller looks up; its form is checked here all the same.
    """
    if len(commit) not in (40, 64) or set(commit) - set("0123456789abcdef") or not is_branch_name(branch):
        raise ParcelRefused("The log that was left names a commit or a branch that there cannot be.")
    if at_head:
        return
    if not (await forge.meanwhile(job.repo, job.number, branch, commit)).has_base:
        raise ParcelRefused(f"The branch {branch} does not have the commit {commit[:12]}, or no longer.")


def _read(path: Path, most: int) -> bytes:
    """A plain file that is no link to another one, and not larger. Raises ParcelRefused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as exc:
        raise ParcelRefused(
            "Nothing was left to be published: the job before this one broke off, or what it left is gone."
        ) from exc
    except OSError as exc:
        raise ParcelRefused(f"{path.name} of what was left to be published is no plain file.") from exc
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ParcelRefused(f"{path.name} of what was left to be published is no plain file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise ParcelRefused(f"{path.name} of what was left to be published has more than {most} bytes.")
    return content


def _check_numbers(lines: bytes) -> None:
    """Raises ParcelRefused for numbers that no run has: infinite ones, or such that sums of them are."""
    for line in lines.split(b"\n"):
        try:
            values: list[Any] = [json.loads(line)] if line else []
            while values:
                value = values.pop()
                if isinstance(value, dict):
                    values += (
                        Decimal(each) if name == "usd" and isinstance(each, str) else each
                        for name, each in value.items()
                    )
                elif isinstance(value, list):
                    values += value
                elif isinstance(value, int | float | Decimal) and not abs(float(value)) < MOST_NUMBER:
                    raise ParcelRefused("What was left to be published holds numbers that no run has.")
        except (ValueError, ArithmeticError, RecursionError) as exc:
            raise ParcelRefused(
                "What was left to be published holds lines that are no JSON of ours."
            ) from exc
