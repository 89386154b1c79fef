"""Passes a run's log between two workflow jobs. The job with read access writes the log as an artifact, and
the job with write access reads it.

The artifact is untrusted, because the agent worked in the workflow job that writes it. Only the run's results
are taken from the artifact: the change, the test results and the texts about them. Data about users, threads
and branches comes from GitHub, and the request comes from the trigger. The publishing policy is applied again
(`resolver/pipeline/publish.py`, `resolver/security/patch_policy.py`).
"""

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from patchwright.resolver.branch_names import is_branch_name
from patchwright.resolver.domain import InputRequired, Issue, Job, PullRequest, RunId, Thread
from patchwright.resolver.errors import InvalidArtifact
from patchwright.resolver.events import Entry, JobCompleted, RunStarted, Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.masking import mask_trajectory
from patchwright.resolver.run.effective_settings import dump_recorded_settings
from patchwright.resolver.run_events import RunConfigured, RunResumed, SubagentStarted
from patchwright.resolver.run_log import parse_trajectory
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime import VERSION
from patchwright.runtime.frozen_model import FrozenModel

MANIFEST_FILE, EVENTS_FILE = "artifact.json", "events.jsonl"
MAX_MANIFEST_BYTES = 64 * 2**10  # bytes
MAX_EVENTS_BYTES = 64 * 2**20  # bytes
MAX_PROBLEM = 4_000  # characters
MAX_NUMBER = 1e15  # Larger than any real count, price or time.
MAX_AGE = timedelta(days=90)  # GitHub's maximum retention of artifacts


StopKind = Literal["error", "operator_error", "canceled"]
"""Why a run stopped early: `operator_error` if the operator has to change something, such as a setting or a key."""


class ArtifactManifest(FrozenModel):
    """The manifest of an artifact. It names the run and, if the run stopped early, the reason."""

    version: Literal[1] = 1
    run: RunId
    problem: str = Field(default="", max_length=MAX_PROBLEM)
    """Why the run stopped early, as a text for the thread; empty if it completed."""
    stop: StopKind = "error"
    """What kind of problem stopped the run, if there is a problem."""


class RunArtifact(NamedTuple):
    """The unverified content of an artifact."""

    manifest: ArtifactManifest
    trajectory: Trajectory | None
    """The log of the run; None if the run did no work."""


def write_artifact(
    directory: Path,
    run: RunId,
    trajectory: Trajectory | None,
    problem: str,
    secrets: Secrets,
    max_bytes: int = MAX_EVENTS_BYTES,
    stop: StopKind = "error",
) -> None:
    """Masks the secrets in a run's log and writes the log to a directory. Raises InvalidArtifact if it cannot
    be written.
    """
    lines = b""
    if trajectory is not None and not trajectory.job_completed:
        entries = mask_trajectory(trajectory, secrets).entries
        lines = b"".join(entry.model_dump_json(warnings=False).encode() + b"\n" for entry in entries)
    if len(lines) > max_bytes:
        problem = problem or f"The run's log has {len(lines)} bytes; the limit of an artifact is {max_bytes}."
        lines = b""
    manifest = ArtifactManifest(run=run, problem=secrets.mask(problem)[:MAX_PROBLEM], stop=stop)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / EVENTS_FILE).write_bytes(lines)
        (directory / MANIFEST_FILE).write_text(manifest.model_dump_json() + "\n", encoding="utf-8")
    except OSError as exc:
        raise InvalidArtifact(f"The artifact cannot be written to {directory}: {exc.strerror}.") from exc


def read_artifact(directory: Path, job: Job) -> RunArtifact:
    """Reads the artifact for this job. Raises InvalidArtifact if it is missing or invalid."""
    try:
        manifest = ArtifactManifest.model_validate_json(_read(directory / MANIFEST_FILE, MAX_MANIFEST_BYTES))
    except ValidationError as exc:
        raise InvalidArtifact("The artifact's manifest is invalid, or another version wrote it.") from exc
    if manifest.run != job.id:
        raise InvalidArtifact("The artifact belongs to another run.")
    lines = _read(directory / EVENTS_FILE, MAX_EVENTS_BYTES)
    _check_numbers(lines)
    trajectory = parse_trajectory(lines, "The artifact")
    return RunArtifact(manifest, trajectory if trajectory.entries else None)


async def verify_entries(
    trajectory: Trajectory, job: Job, forge: Forge, settings: Settings
) -> tuple[RunId, tuple[Entry, ...]]:
    """Returns the id and the log entries of the run on which this job worked. In these entries, the thread's data
    comes from GitHub and the settings come from the operator, not from the artifact.

    The run is the job's own, or an earlier run of the thread that asked a question. Of an earlier run, the artifact
    also names the request.

    Raises InvalidArtifact if the log cannot come from a run of this job, or if the thread has changed too much
    since the run. Raises ForgeError if GitHub fails.
    """
    first, *rest = trajectory.entries
    started = first.event
    if not isinstance(started, RunStarted):
        raise InvalidArtifact("The artifact's log does not begin with the start of a run.")
    current, own = await forge.get_thread(job), job
    is_answer = bool(current.question and job.request.text) and started.job.id in current.reported_runs
    if is_answer:
        own = job.model_copy(update={"id": started.job.id, "command": started.job.command})
    if any(
        isinstance(entry.event, RunStarted | SubagentStarted | RunResumed | JobCompleted)
        # A question ended the earlier part of the run, and an answer continues it.
        and not (is_answer and _is_question(entry) and entry is not rest[-1])
        for entry in rest
    ):
        raise InvalidArtifact("The artifact's log contains events that only the publishing job writes.")
    if not is_answer and started.job != job:
        raise InvalidArtifact(
            "The artifact's log belongs to a job that this workflow's event did not trigger."
        )
    now = datetime.now(UTC)
    if any(
        entry.timestamp.tzinfo is None or not now - MAX_AGE < entry.timestamp < now + MAX_AGE
        for entry in trajectory.entries
    ):
        raise InvalidArtifact("The artifact's log has impossible timestamps.")
    thread = await _verify_thread(started, current, job, forge)
    event = started.model_copy(update={"job": own, "thread": thread})
    run_started = first.model_copy(update={"event": event})
    return own.id, (run_started, *(_with_own_settings(settings, entry) for entry in rest))


def _is_question(entry: Entry) -> bool:
    return isinstance(entry.event, JobCompleted) and isinstance(entry.event.outcome, InputRequired)


def _with_own_settings(settings: Settings, entry: Entry) -> Entry:
    """Replaces the settings and the version in a log entry with those of this installation. Removes the
    repository's settings. Comments take their links, commands and limits from this entry.
    """
    if not isinstance(entry.event, RunConfigured):
        return entry
    own = {"version": VERSION, "settings": dump_recorded_settings(settings), "repository": {}}
    return entry.model_copy(update={"event": entry.event.model_copy(update=own)})


async def _verify_thread(started: RunStarted, current: Thread, job: Job, forge: Forge) -> Thread:
    """Reads the thread from GitHub and returns it as it was when the run recorded it. Raises InvalidArtifact
    if the thread cannot have been in that state.
    """
    recorded = started.thread
    snapshot: dict[str, object] = {
        "open": recorded.open,
        "locked": recorded.locked,
    }  # The current values of `open` and `locked` are checked later.
    await _check_history(
        started.base_branch, started.base_sha, job, forge, is_at_head=isinstance(recorded, PullRequest)
    )
    if isinstance(recorded, Issue) and isinstance(current, Issue):
        return current.model_copy(update=snapshot)
    if not (isinstance(recorded, PullRequest) and isinstance(current, PullRequest)):
        raise InvalidArtifact(
            "The artifact's log and this workflow's event do not match: one is about an issue, the other about "
            "a pull request."
        )
    if (recorded.head_branch, recorded.head_repo, recorded.base_branch) != (
        current.head_branch,
        current.head_repo,
        current.base_branch,
    ):
        raise InvalidArtifact("The pull request's branches differ from those in the artifact's log.")
    if recorded.head_sha != started.base_sha or started.base_branch != current.base_branch:
        raise InvalidArtifact("The run in the artifact did not start from the pull request's head.")
    if recorded.head_sha != current.head_sha:
        commits = await forge.list_commits(job.repo, job.number)
        if recorded.head_sha not in {commit.sha for commit in commits}:
            raise InvalidArtifact("The pull request no longer contains the commit that the run started from.")
    await _check_history(current.base_branch, recorded.base_sha, job, forge)
    known = {thread.id: thread for thread in current.threads}
    if any(thread.id not in known for thread in recorded.threads):
        raise InvalidArtifact("The artifact names a review thread that is not in this pull request.")
    snapshot["threads"] = tuple(
        known[thread.id].model_copy(update={"resolved": thread.resolved, "is_trigger": thread.is_trigger})
        for thread in recorded.threads
    )
    return current.model_copy(
        update=snapshot | {"head_sha": recorded.head_sha, "base_sha": recorded.base_sha}
    )


async def _check_history(
    branch: str, commit: str, job: Job, forge: Forge, *, is_at_head: bool = False
) -> None:
    """Raises InvalidArtifact if the commit is not in the history of the repository's branch.

    If `is_at_head` is True, this function checks only the format of the commit ID, because the caller
    compares the commit with the pull request's head.
    """
    if len(commit) not in (40, 64) or set(commit) - set("0123456789abcdef") or not is_branch_name(branch):
        raise InvalidArtifact("The artifact's log contains an invalid commit ID or branch name.")
    if is_at_head:
        return
    if not (await forge.get_thread_state(job.repo, job.number, branch, commit)).has_base:
        raise InvalidArtifact(f"The branch {branch} does not contain the commit {commit[:12]}.")


def _read(path: Path, max_bytes: int) -> bytes:
    """Returns the content of a file. Raises InvalidArtifact if the path is a link or is not a regular file,
    or if the file is larger than the limit.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as exc:
        raise InvalidArtifact(
            "There is no artifact to publish: the first job failed before it wrote one, or the artifact has expired. "
            "Correct the error that the first job shows, then remove and add the label again, or repeat your comment."
        ) from exc
    except OSError as exc:
        raise InvalidArtifact(f"The artifact's {path.name} is not a regular file.") from exc
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidArtifact(f"The artifact's {path.name} is not a regular file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise InvalidArtifact(f"The artifact's {path.name} has more than {max_bytes} bytes.")
    return content


def _check_numbers(lines: bytes) -> None:
    """Raises InvalidArtifact if the data contains an impossible number, such as an infinite number or one
    that is larger than MAX_NUMBER.
    """
    for line in lines.split(b"\n"):
        try:
            values: list[Any] = [json.loads(line)] if line else []
            while values:
                value = values.pop()
                if isinstance(value, dict):
                    values += (
                        Decimal(item) if name == "usd" and isinstance(item, str) else item
                        for name, item in value.items()
                    )
                elif isinstance(value, list):
                    values += value
                elif isinstance(value, int | float | Decimal) and not abs(float(value)) < MAX_NUMBER:
                    raise InvalidArtifact("The artifact contains impossible numbers.")
        except (ValueError, ArithmeticError, RecursionError) as exc:
            raise InvalidArtifact("The artifact contains lines that are not valid JSON.") from exc
