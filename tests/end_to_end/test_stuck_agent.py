"""Stuck runs are warned once and then stopped, with a reason that helps the maintainer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn, context_overflow
from patchwright.resolver.events import AgentStopped
from patchwright.runtime.actions import RunShell, ViewFile
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, RUN_TESTS, TESTS, Scenario
from tests.end_to_end.scripted_models import (
    SHOW_FAILURE,
    events_of_kind,
    messages_from,
    resolve_to_pull_request,
    resolve_to_report,
    use_ordered_model,
)
from tests.resolver.git_repository import Repository

pytestmark = pytest.mark.slow

LOOK = ViewFile(path="calc.py")
LIST = RunShell(command="ls")


@pytest.fixture
def untested_scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    """A repository without tests, since these runs produce nothing to verify."""
    return make_scenario(files={"calc.py": CODE})


def ending(scenario: Scenario) -> AgentStopped:
    (ended,) = events_of_kind(scenario, "agent_stopped")
    assert isinstance(ended, AgentStopped)
    return ended


@pytest.mark.parametrize(
    ("turns", "pattern", "shown"),
    [
        ([RecordedTurn("Look.", LOOK)], "same call, 3 times", "`view calc.py`"),
        (
            [RecordedTurn("Look.", LOOK), RecordedTurn("List.", LIST)] * 12,
            "two calls in turn, 3 times",
            "`view calc.py` and `$ ls`",
        ),
        (
            [RecordedTurn("Guess.", ViewFile(path=f"no{n}.py")) for n in range(12)],
            "same error, 4 times",
            "`view no6.py` and `view no7.py`",
        ),
        (
            [RecordedTurn("Try.", RunShell(command=f": {n}; cat nothing.py")) for n in range(12)],
            "same error, 4 times",
            "cat nothing.py",
        ),
        (
            [
                RecordedTurn("Call.", calls=[{"name": "run_shell", "arguments": f'{{"cmd": {n}}}'}])
                for n in range(12)
            ],
            "same error, 4 times",
            "call of run_shell that could not be parsed",
        ),
    ],
    ids=["same call", "two in turn", "guessed names", "same error", "unreadable calls"],
)
async def test_a_repetition_is_reported_to_the_model_and_then_in_the_thread(
    untested_scenario: Scenario, turns: list[RecordedTurn], pattern: str, shown: str
) -> None:
    await use_ordered_model(untested_scenario, *turns, max_steps=20)
    comment = await resolve_to_report(untested_scenario)
    (nudge,) = messages_from(untested_scenario, "nudge")
    assert "Repeating this will not change the result" in nudge
    ended = ending(untested_scenario)
    assert ended.reason == "stuck"
    assert "was still stuck after a reminder" in ended.detail
    assert pattern in ended.detail and shown in ended.detail
    assert comment.count(ended.detail) == 1


@pytest.mark.parametrize("words", ["I think about it.", ""])
async def test_a_model_without_tool_calls_is_reminded_and_then_stopped(
    untested_scenario: Scenario, words: str
) -> None:
    await use_ordered_model(untested_scenario, RecordedTurn(words))
    comment = await resolve_to_report(untested_scenario)
    assert len(messages_from(untested_scenario, "program")) == 2
    assert "run_shell" in messages_from(untested_scenario, "program")[0]
    assert ending(untested_scenario).reason == "stuck"
    assert "3 replies in a row without calling a tool" in comment


async def test_a_prompt_that_stays_too_long_ends_the_run_with_the_reason(untested_scenario: Scenario) -> None:
    endpoint = await use_ordered_model(
        untested_scenario,
        RecordedTurn("Look.", LOOK),
        RecordedTurn("List.", LIST),
        RecordedTurn("Done.", DONE),
    )
    endpoint.add_faults(*[context_overflow()] * 12)
    comment = await resolve_to_report(untested_scenario)
    assert ending(untested_scenario).reason == "limit"
    assert "The conversation exceeds the context window of openai/scripted." in comment
    assert len(endpoint.requests) <= 3


async def test_a_run_that_follows_a_reminder_completes(scenario: Scenario) -> None:
    loop = [RecordedTurn("See it fail.", SHOW_FAILURE)] * 3
    fix_turns = (
        RecordedTurn("Oh.", FIX, NEW_TEST),
        RecordedTurn("Run them.", RUN_TESTS),
        RecordedTurn("Done.", DONE),
    )
    await use_ordered_model(scenario, *loop, *fix_turns)
    assert (await resolve_to_pull_request(scenario)).startswith("**Fixed:**")
    (nudge,) = messages_from(scenario, "nudge")
    assert "the same call 3 times in a row" in nudge and "assert add(2, 3) == 5" in nudge
    assert ending(scenario).reason == "finished"


async def test_a_local_run_without_tool_calls_says_so_and_continues_with_another_model(
    scenario: Scenario, tmp_path: Path
) -> None:
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    (tmp_path / "bug.md").write_text("add() subtracts\n\nIt should add.\n")
    where = ("--repo", str(made.path), "--issue", str(tmp_path / "bug.md"))
    silent = [RecordedTurn("I think about it.")] * 3
    await scenario.script_model(*silent)
    _, out, error = await scenario.command("resolve", *where, "--json")
    report = json.loads(out)
    assert (report["verdict"], report["stopped"]["reason"]) == ("empty", "stuck")
    assert "patchwright probe" in report["stopped"]["detail"] and "resume: patchwright resolve" in error

    await scenario.script_model(*silent, *FIX_TURNS)  # it counts the earlier replies, too
    code, out, _ = await scenario.command("resolve", "--continue", report["run"], "--json")
    report = json.loads(out)
    assert (code, report["verdict"], report["stopped"]) == (0, "fixed", None)
