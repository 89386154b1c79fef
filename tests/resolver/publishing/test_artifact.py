"""Reading and writing run artifacts, and rejecting invalid ones."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.domain import Job, JobId, Repo
from patchwright.resolver.errors import InvalidArtifact, LogError
from patchwright.resolver.events import Entry, ModelReply, ReplyUsage, Trajectory
from patchwright.resolver.publishing import artifact
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets

JOB = Job(
    id=JobId("acme-calc-1-0123456789ab"), repo=Repo(owner="acme", name="calc"), number=1, requester=None
)
SECRET = "sk-artifact-model-key"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    usage = ReplyUsage(model="m", prompt_tokens=7, usd=Decimal("0.25"))
    reply = ModelReply(thought=f"The key is {SECRET}.", calls=(), usage=usage)
    trajectory = Trajectory((Entry(seq=0, timestamp=datetime.now(UTC), event=reply),))
    artifact.write_artifact(
        tmp_path / "artifact", JOB.id, trajectory, f"It failed at {SECRET}.", Secrets([SECRET])
    )
    return tmp_path / "artifact"


def test_an_artifact_is_read_without_the_secrets_of_its_writer(directory: Path) -> None:
    artifact_read = artifact.read_artifact(directory, JOB)
    assert artifact_read.manifest.problem == f"It failed at {SECRET_PLACEHOLDER}."
    assert artifact_read.trajectory is not None
    assert artifact_read.trajectory.usage().usd == Decimal("0.25")
    assert SECRET not in "".join(path.read_text() for path in directory.iterdir())


def test_a_run_without_work_makes_an_empty_artifact(tmp_path: Path) -> None:
    artifact.write_artifact(tmp_path, JOB.id, None, "", Secrets())
    assert artifact.read_artifact(tmp_path, JOB) == artifact.RunArtifact(
        artifact.ArtifactManifest(run=JOB.id), None
    )


def test_a_log_over_the_limit_is_not_written(tmp_path: Path) -> None:
    reply = ModelReply(thought="x" * 200, calls=(), usage=ReplyUsage(model="m"))
    trajectory = Trajectory((Entry(seq=0, timestamp=datetime.now(UTC), event=reply),))
    artifact.write_artifact(tmp_path, JOB.id, trajectory, "", Secrets(), max_bytes=100)
    artifact_read = artifact.read_artifact(tmp_path, JOB)
    assert artifact_read.trajectory is None
    assert "the limit of an artifact is 100" in artifact_read.manifest.problem


def with_usage(**values: Any) -> Callable[[Path], object]:
    def corrupt(directory: Path) -> None:
        line = json.loads((directory / artifact.EVENTS_FILE).read_text())
        line["event"]["usage"] |= values
        (directory / artifact.EVENTS_FILE).write_text(json.dumps(line) + "\n")

    return corrupt


def replace_with_link(name: str) -> Callable[[Path], object]:
    def corrupt(directory: Path) -> None:
        (directory / name).rename(directory.parent / name)
        (directory / name).symlink_to(directory.parent / name)

    return corrupt


def replace_with_pipe(directory: Path) -> None:
    (directory / artifact.EVENTS_FILE).unlink()
    os.mkfifo(directory / artifact.EVENTS_FILE)


CORRUPTIONS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda directory: (directory / artifact.MANIFEST_FILE).unlink(), "There is no artifact"),
    "no log": (lambda directory: (directory / artifact.EVENTS_FILE).unlink(), "There is no artifact"),
    "a link as its manifest": (replace_with_link(artifact.MANIFEST_FILE), "not a regular file"),
    "a link as its log": (replace_with_link(artifact.EVENTS_FILE), "not a regular file"),
    "a pipe": (replace_with_pipe, "not a regular file"),
    "a directory": (
        lambda directory: (
            (directory / artifact.MANIFEST_FILE).unlink(),
            (directory / artifact.MANIFEST_FILE).mkdir(),
        ),
        "not a regular file",
    ),
    "a manifest that is too large": (
        lambda directory: (directory / artifact.MANIFEST_FILE).write_bytes(
            b" " * (artifact.MAX_MANIFEST_BYTES + 1)
        ),
        "has more than 65536 bytes",
    ),
    "another version": (
        lambda directory: (directory / artifact.MANIFEST_FILE).write_text('{"version": 2, "run": "x"}'),
        "manifest is invalid, or another version wrote it",
    ),
    "another run": (
        lambda directory: (directory / artifact.MANIFEST_FILE).write_text(
            '{"version": 1, "run": "acme-calc-2-0"}'
        ),
        "another run",
    ),
    "a log that is too large": (
        lambda directory: os.truncate(directory / artifact.EVENTS_FILE, artifact.MAX_EVENTS_BYTES + 1),
        "has more than 67108864 bytes",
    ),
    "no JSON": (
        lambda directory: (directory / artifact.EVENTS_FILE).write_text("events\n"),
        "not valid JSON",
    ),
    "a truncated line": (
        lambda directory: (directory / artifact.EVENTS_FILE).write_text('{"seq": 0'),
        "not valid JSON",
    ),
    "too deep": (
        lambda directory: (directory / artifact.EVENTS_FILE).write_text("[" * 99_999 + "\n"),
        "not valid JSON",
    ),
    "not an event": (
        lambda directory: (directory / artifact.EVENTS_FILE).write_text('{"seq": 0}\n'),
        "not an event of this version",
    ),
    "not a number": (with_usage(seconds=float("nan")), "impossible numbers"),
    "infinite seconds": (with_usage(seconds=float("inf")), "impossible numbers"),
    "too many tokens": (with_usage(prompt_tokens=10**400), "not valid JSON"),
    "a huge price": (with_usage(usd="1e999999"), "impossible numbers"),
    "an invalid price": (with_usage(usd="much"), "not valid JSON"),
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_an_invalid_artifact_is_rejected_with_a_reason(directory: Path, corruption: str) -> None:
    corrupt, message = CORRUPTIONS[corruption]
    corrupt(directory)
    with pytest.raises(LogError, match=message) as error:
        artifact.read_artifact(directory, JOB)
    assert isinstance(error.value, InvalidArtifact) or corruption == "not an event"
