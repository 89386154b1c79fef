"""`finish` can be rejected, and people see the agent's plan."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from patchwright.bot.terminal.progress_printer import ProgressPrinter
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.activity.finish_checks import NOT_DONE
from patchwright.resolver.events import Message
from patchwright.resolver.tool_actions.control_actions import Plan
from patchwright.runtime.actions import UndoEdit
from patchwright.runtime.tool_action import PlanItem
from tests.end_to_end.conftest import CODE, DONE, FIX, NEW_TEST, RUN_TESTS, TESTS, Scenario
from tests.end_to_end.scripted_models import (
    SHOW_FAILURE,
    call_results,
    resolve_to_pull_request,
    use_ordered_model,
)

WISHES = "It should be right.\n\nRequirements:\n- add(2, 3) gives 5\n- there is a sub()\n"


def plan(*states: str) -> Plan:
    texts = ("add() adds", "sub() subtracts", "thank @maintainer")
    return Plan(
        items=tuple(PlanItem(text=text, status=state) for text, state in zip(texts, states, strict=True))
    )  # type: ignore[arg-type]


def refusals(scenario: Scenario) -> list[str]:
    """Returns the errors that calls of `finish` received."""
    return [
        str(getattr(result, "message", "granted"))
        for action, result in call_results(scenario)
        if action == DONE
    ]


@pytest.mark.slow
async def test_a_finish_is_rejected_once_and_the_work_is_fixed(scenario: Scenario) -> None:
    again = RecordedTurn("Show that it failed.", UndoEdit(path="calc.py"), SHOW_FAILURE, FIX, NEW_TEST)
    await use_ordered_model(
        scenario,
        RecordedTurn("Fix.", FIX),
        RecordedTurn("Done.", DONE),
        again,
        RecordedTurn("Run.", RUN_TESTS),
        RecordedTurn("Done.", DONE),
    )
    body = await resolve_to_pull_request(scenario)
    assert body.startswith("**Fixed:**")
    refused, granted = refusals(scenario)
    assert "Nothing shows the failure: " in refused
    assert "The repository's tests were not run after the last edit (`replace_text calc.py`)." in refused
    assert "Do what is missing, then call finish again." in refused
    assert f"in a sentence that starts with `{NOT_DONE}`" in refused
    assert granted == "granted"
    assert "The agent reproduced the failure before its last edit." in body
    assert "not run after the last edit" not in body


@pytest.mark.slow
async def test_open_problems_are_shown_to_reviewers_if_the_agent_insists_on_finishing(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE, "tests/test_calc.py": TESTS}, body=WISHES)
    endpoint = await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE), RecordedTurn("Done!", DONE)
    )
    body = await resolve_to_pull_request(scenario)
    # After the first accepted call, the agent is told that no test shows the fix.
    refused, *granted = refusals(scenario)
    assert '"add(2, 3) gives 5"; "there is a sub()"' in refused and granted == ["granted", "granted"]
    assert len(endpoint.requests) == 4
    _, _, left = body.partition("**Please check:**\n")
    left, _, _ = left.partition("\n\n")
    assert '"there is a sub()"' in left and "did not run the repository's tests after its last edit" in left
    assert "The agent did not reproduce the failure before its last edit." in body


@pytest.mark.slow
async def test_a_repository_without_tests_needs_no_test_run(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})
    await use_ordered_model(scenario, RecordedTurn("Fix.", SHOW_FAILURE, FIX), RecordedTurn("Done.", DONE))
    await resolve_to_pull_request(scenario)
    assert refusals(scenario) == ["granted"]


@pytest.mark.slow
async def test_the_plan_is_shown_as_checkboxes_during_and_after_the_run(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})
    boxes = "- [x] add() adds\n- [ ] sub() subtracts (now)\n- [x] thank @\u200bmaintainer (dropped)\n"

    async def shown(turn: int, body: dict[str, Any]) -> None:
        if turn == 2:
            async with asyncio.timeout(20):
                while boxes not in "".join(scenario.comments):
                    await asyncio.sleep(0.02)

    await use_ordered_model(
        scenario, RecordedTurn("Plan.", plan("open", "open", "open"), SHOW_FAILURE),
        RecordedTurn("Fix.", FIX, plan("done", "doing", "dropped")),
        RecordedTurn("Test.", RUN_TESTS, plan("done", "done", "dropped")), RecordedTurn("Done.", DONE),
        on_request=shown,
    )  # fmt: skip
    body = await resolve_to_pull_request(scenario, every=0.1)
    assert "The agent's plan: 2 of 3 done\n\n- [x] add() adds\n- [x] sub() subtracts\n" in body
    assert not [
        event for event in scenario.trajectory() if isinstance(event, Message) and event.source == "nudge"
    ]
    lines: list[str] = []
    narrator = ProgressPrinter(lines.append)
    for entry in scenario.trajectory().entries:
        narrator(entry)
    text = [line[10:].strip() for line in lines]
    assert "[>] sub() subtracts" in text and "[-] thank @maintainer" in text
