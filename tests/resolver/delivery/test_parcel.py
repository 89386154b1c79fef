"""What is taken out of a parcel, and what no parcel of ours holds."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from resolver.delivery import parcel
from resolver.domain import Job, JobId, Repo
from resolver.errors import LogError, ParcelRefused
from resolver.events import Decided, Entry, Trajectory, Usage
from resolver.secrets import HIDDEN, Secrets

JOB = Job(
    id=JobId("acme-calc-1-0123456789ab"), repo=Repo(owner="acme", name="calc"), number=1, requester=None
)
SECRET = "sk-parcel-model-key"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    usage = Usage(model="m", prompt_tokens=7, usd=Decimal("0.25"))
    said = Decided(thought=f"I was told {SECRET}.", calls=(), usage=usage)
    told = Trajectory((Entry(seq=0, at=datetime.now(UTC), event=said),))
    parcel.leave(tmp_path / "parcel", JOB.id, told, f"It broke off at {SECRET}.", Secrets([SECRET]))
    return tmp_path / "parcel"


def test_what_is_left_is_taken_without_the_secrets_of_who_left_it(place: Path) -> None:
    taken = parcel.take(place, JOB)
    assert taken.label.problem == f"It broke off at {HIDDEN}."
    assert taken.told is not None
    assert taken.told.spent().usd == Decimal("0.25")
    assert SECRET not in "".join(path.read_text() for path in place.iterdir())


def test_a_run_without_work_is_an_empty_parcel(tmp_path: Path) -> None:
    parcel.leave(tmp_path, JOB.id, None, "", Secrets())
    assert parcel.take(tmp_path, JOB) == parcel.Parcel(parcel.Label(run=JOB.id), None)


def test_a_log_that_no_parcel_may_hold_is_not_packed(tmp_path: Path) -> None:
    said = Decided(thought="x" * 200, calls=(), usage=Usage(model="m"))
    told = Trajectory((Entry(seq=0, at=datetime.now(UTC), event=said),))
    parcel.leave(tmp_path, JOB.id, told, "", Secrets(), most=100)
    taken = parcel.take(tmp_path, JOB)
    assert taken.told is None
    assert "100 are the limit of a parcel" in taken.label.problem


def with_usage(**values: Any) -> Callable[[Path], object]:
    def spoil(place: Path) -> None:
        line = json.loads((place / parcel.EVENTS).read_text())
        line["event"]["usage"] |= values
        (place / parcel.EVENTS).write_text(json.dumps(line) + "\n")

    return spoil


def linked(name: str) -> Callable[[Path], object]:
    def spoil(place: Path) -> None:
        (place / name).rename(place.parent / name)
        (place / name).symlink_to(place.parent / name)

    return spoil


def a_pipe(place: Path) -> None:
    (place / parcel.EVENTS).unlink()
    os.mkfifo(place / parcel.EVENTS)


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda place: (place / parcel.LABEL).unlink(), "Nothing was left"),
    "no log": (lambda place: (place / parcel.EVENTS).unlink(), "Nothing was left"),
    "a link as its label": (linked(parcel.LABEL), "no plain file"),
    "a link as its log": (linked(parcel.EVENTS), "no plain file"),
    "a pipe": (a_pipe, "no plain file"),
    "a directory": (
        lambda place: ((place / parcel.LABEL).unlink(), (place / parcel.LABEL).mkdir()),
        "no plain file",
    ),
    "a label that is too large": (
        lambda place: (place / parcel.LABEL).write_bytes(b" " * (parcel.MOST_LABEL + 1)),
        "has more than 65536 bytes",
    ),
    "another version": (
        lambda place: (place / parcel.LABEL).write_text('{"version": 2, "run": "x"}'),
        "no label",
    ),
    "another run": (
        lambda place: (place / parcel.LABEL).write_text('{"version": 1, "run": "acme-calc-2-0"}'),
        "another run",
    ),
    "a log that is too large": (
        lambda place: os.truncate(place / parcel.EVENTS, parcel.MOST_EVENTS + 1),
        "has more than 67108864 bytes",
    ),
    "no JSON": (lambda place: (place / parcel.EVENTS).write_text("events\n"), "no JSON of ours"),
    "a torn line": (lambda place: (place / parcel.EVENTS).write_text('{"seq": 0'), "no JSON of ours"),
    "too deep": (lambda place: (place / parcel.EVENTS).write_text("[" * 99_999 + "\n"), "no JSON of ours"),
    "no event": (
        lambda place: (place / parcel.EVENTS).write_text('{"seq": 0}\n'),
        "not an event of this version",
    ),
    "a number that is none": (with_usage(seconds=float("nan")), "numbers that no run has"),
    "endless seconds": (with_usage(seconds=float("inf")), "numbers that no run has"),
    "too many tokens": (with_usage(prompt_tokens=10**400), "no JSON of ours"),
    "a fortune": (with_usage(usd="1e999999"), "numbers that no run has"),
    "a price that is none": (with_usage(usd="much"), "no JSON of ours"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_no_job_of_ours_leaves_is_refused_with_a_sentence(place: Path, how: str) -> None:
    spoil, why = SPOILT[how]
    spoil(place)
    with pytest.raises(LogError, match=why) as refused:
        parcel.take(place, JOB)
    assert isinstance(refused.value, ParcelRefused) or how == "no event"
