"""The task, options and working time of a run, read from its log."""

from datetime import timedelta
from decimal import Decimal

import pytest

from patchwright.resolver.command_parser import RunOptions
from patchwright.resolver.domain import InputRequired, JobId
from patchwright.resolver.events import AgentStopped, Entry, JobCompleted, Message, RunStarted, Trajectory
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.run_task import (
    get_answer,
    get_branch_template,
    get_options,
    get_proposed_plan,
    get_task,
)
from patchwright.resolver.tool_actions.control_actions import ProposePlan, Report
from tests.resolver.sample_runs import model_reply, run_of, started

PLAN = ProposePlan(
    cause="It subtracts.", steps=("calc.py",), test_plan="A test.", risks="None that I know of."
)
ANSWER = Report(text="calc.py:2")
GO = Message(text="go", source="comment", trigger_id=JobId("go"), approves_plan=True)


def started_with(command: str) -> RunStarted:
    run_started = started()
    return run_started.model_copy(update={"job": run_started.job.model_copy(update={"command": command})})


@pytest.mark.parametrize(
    ("command", "task"),
    [("", "work"), ("fix it", "work"), ("plan it", "plan"), ("explain it", "explain"), ("go", "work")],
)
def test_the_command_decides_the_task(command: str, task: str) -> None:
    assert get_task(run_of(started_with(command))) == task


def test_only_approval_turns_a_plan_into_work() -> None:
    feedback = GO.model_copy(update={"approves_plan": False})
    assert get_task(run_of(started_with("plan"), feedback)) == "plan"
    assert get_task(run_of(started_with("plan"), feedback, GO, feedback)) == "work"


def test_a_run_can_end_with_a_plan_or_an_answer() -> None:
    waiting = run_of(
        started_with("plan"),
        model_reply("1", PLAN),
        AgentStopped(reason="input_required", detail="It waits."),
    )
    assert (get_proposed_plan(waiting), get_answer(waiting)) == (PLAN, None)
    answered = run_of(
        started_with("explain"), model_reply("1", ANSWER), AgentStopped(reason="finished", detail="Done.")
    )
    assert (get_proposed_plan(answered), get_answer(answered)) == (None, ANSWER.text)
    stopped = run_of(
        started_with("plan"), model_reply("1", PLAN), AgentStopped(reason="limit", detail="The limit.")
    )
    assert get_proposed_plan(stopped) is None


def test_options_persist_when_a_run_continues_and_later_ones_override() -> None:
    approval = GO.model_copy(update={"options": RunOptions(usd=Decimal(1))})
    run = run_of(started_with("plan model=a budget=2"), approval)
    assert get_options(run).as_text == "model=a budget=1"
    repeated = get_options(run, trigger_id=JobId("go"), latest=RunOptions(usd=Decimal(3)))
    assert repeated.as_text == "model=a budget=3", "the same trigger again, as after a kill"


def test_waiting_for_approval_does_not_count_as_working_time() -> None:
    completed = JobCompleted(outcome=InputRequired(url="", question="It waits."))
    waiting = run_of(
        started_with("plan"),
        model_reply("1", PLAN),
        AgentStopped(reason="input_required", detail="It waits."),
        completed,
    )
    last = waiting.entries[-1].timestamp
    later = (
        Entry(seq=4, timestamp=last + timedelta(days=3), event=GO),
        Entry(seq=5, timestamp=last + timedelta(days=3, seconds=2), event=model_reply("2", ANSWER)),
    )
    run = waiting
    for entry in later:
        run = run.with_entry(entry)
    assert run.usage().seconds == 4.0
    assert Trajectory(run.entries).usage().seconds == 4.0


@pytest.mark.parametrize(
    ("branch", "template"), [("{slug}-{number}", "{slug}-{number}"), ("{number.real}", "issue-{number}")]
)
def test_a_run_names_its_branch_as_the_repository_says(branch: str, template: str) -> None:
    configured = RunConfigured(
        version="0.1.0",
        models={},
        steps=1,
        seconds=1,
        usd=Decimal(1),
        settings={},
        repository={"branch": branch},
    )
    assert get_branch_template(run_of(started(), configured)) == template
    assert get_branch_template(run_of(started())) == "issue-{number}"
