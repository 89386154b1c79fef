"""What a run is for, under which options, and what counts of the time in which it waits: read from its log."""

from datetime import timedelta
from decimal import Decimal

import pytest

from resolver.actions import Propose, Report
from resolver.domain import Asked, JobId
from resolver.events import Ended, Entry, Settled, Started, Told, Trajectory
from resolver.request.planning import options, proposed, reported, task
from resolver.request.request import Options
from tests.resolver.seen_runs import decided, run_of, started

PLAN = Propose(cause="It subtracts.", steps=("calc.py",), proof="A test.", risks="None that I know of.")
ANSWER = Report(text="calc.py:2")
GO = Told(text="go", source="comment", by=JobId("go"), approves=True)


def asked(command: str) -> Started:
    at = started()
    return at.model_copy(update={"job": at.job.model_copy(update={"command": command})})


@pytest.mark.parametrize(
    ("command", "for_what"),
    [("", "work"), ("mend it", "work"), ("plan it", "plan"), ("explain it", "explain"), ("go", "work")],
)
def test_a_run_is_for_what_its_command_says(command: str, for_what: str) -> None:
    assert task(run_of(asked(command))) == for_what


def test_a_plan_is_work_from_its_go_on_and_from_no_other_word() -> None:
    corrected = GO.model_copy(update={"approves": False})
    assert task(run_of(asked("plan"), corrected)) == "plan"
    assert task(run_of(asked("plan"), corrected, GO, corrected)) == "work"


def test_a_plan_or_an_answer_is_what_the_run_ended_with() -> None:
    waits = run_of(asked("plan"), decided("1", PLAN), Ended(reason="asked", detail="It waits."))
    assert (proposed(waits), reported(waits)) == (PLAN, None)
    says = run_of(asked("explain"), decided("1", ANSWER), Ended(reason="finished", detail="Done."))
    assert (proposed(says), reported(says)) == (None, ANSWER.text)
    cut = run_of(asked("plan"), decided("1", PLAN), Ended(reason="limit", detail="The limit."))
    assert proposed(cut) is None


def test_options_hold_for_all_that_goes_on_with_the_run_and_the_last_word_counts() -> None:
    more = GO.model_copy(update={"options": Options(usd=Decimal(1))})
    run = run_of(asked("plan model=a budget=2"), more)
    assert options(run).written == "model=a budget=1"
    again = options(run, by=JobId("go"), said=Options(usd=Decimal(3)))
    assert again.written == "model=a budget=3", "the same trigger once more, as after a kill"


def test_the_time_in_which_a_plan_waits_is_no_time_of_work() -> None:
    settled = Settled(outcome=Asked(url="", question="It waits."))
    waits = run_of(asked("plan"), decided("1", PLAN), Ended(reason="asked", detail="It waits."), settled)
    last = waits.entries[-1].at
    later = (
        Entry(seq=4, at=last + timedelta(days=3), event=GO),
        Entry(seq=5, at=last + timedelta(days=3, seconds=2), event=decided("2", ANSWER)),
    )
    run = waits
    for entry in later:
        run = run.followed_by(entry)
    assert run.spent().seconds == 4.0
    assert Trajectory(run.entries).spent().seconds == 4.0
