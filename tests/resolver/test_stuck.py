"""Stuck runs are detected from their logs."""

from pathlib import Path

import pytest

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.events import Message, ModelReply, ReplyUsage
from patchwright.resolver.stuck import (
    MAX_ERRORS,
    MAX_IDENTICAL,
    MAX_NUDGES,
    MAX_ROUNDS,
    MAX_SILENT_REPLIES,
    check_stuck,
    find_pattern,
)
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.runtime.actions import RunShell, SendInput, ViewFile
from patchwright.runtime.observations import ActionFailure, CellResult, ShellResult, TextResult
from tests.resolver.trajectories import run

NUDGE = Message(text="You go in circles.", source="nudge")
BRIEF = Message(text="Issue 7", source="initial_prompt")


def shell(
    command: str, output: str = "x", code: int = 0, seconds: float = 0.1
) -> tuple[Action, AnyObservation]:
    return RunShell(command=command), ShellResult(output=output, exit_code=code, cwd="/w", seconds=seconds)


def view(path: str) -> tuple[Action, AnyObservation]:
    return ViewFile(path=path), TextResult(text=path)


def test_the_third_identical_call_is_a_pattern() -> None:
    assert find_pattern(run(BRIEF, *[shell("ls")] * (MAX_IDENTICAL - 1))) is None
    found = find_pattern(run(BRIEF, *[shell("ls")] * MAX_IDENTICAL))
    assert found is not None
    assert (found.kind, found.calls, found.times) == ("same call", ("$ ls",), 3)


def test_durations_addresses_and_temporary_names_are_ignored() -> None:
    runs = [
        shell("pytest", f"1 failed in {n}.12s at 0x7f00000{n} in /tmp/x{n}, pid 4{n}", 1, seconds=n)
        for n in range(3)
    ]
    assert find_pattern(run(BRIEF, *runs)) is not None
    counted = [shell("pytest", f"{n} failed in 1.12s", 1) for n in range(3)]
    assert find_pattern(run(BRIEF, *counted)) is None


def test_the_same_call_with_different_results_is_no_pattern() -> None:
    assert find_pattern(run(BRIEF, *[shell("tail log", output=str(n)) for n in range(9)])) is None


def test_waiting_for_a_slow_command_is_no_pattern() -> None:
    waiting = ShellResult(output="", exit_code=None, cwd="/w", seconds=5, note="still running")
    assert find_pattern(run(BRIEF, *[(SendInput(), waiting)] * 20)) is None
    assert find_pattern(run(BRIEF, *[(SendInput(text="y"), waiting)] * MAX_IDENTICAL)) is not None


def test_two_alternating_calls_are_a_pattern_after_three_rounds() -> None:
    turn = [view("a.py"), view("b.py")]
    assert find_pattern(run(BRIEF, *turn * (MAX_ROUNDS - 1))) is None
    found = find_pattern(run(BRIEF, *turn * MAX_ROUNDS))
    assert found is not None
    assert (found.kind, found.calls) == ("two calls in turn", ("view a.py", "view b.py"))


@pytest.mark.parametrize(
    "failure",
    [
        ActionFailure(reason="not_found", message="no such file"),
        ShellResult(output="Traceback\nImportError: no module x\n", exit_code=1, cwd="/w", seconds=0.1),
        CellResult(output="Traceback\nImportError: no module x\n", ok=False, seconds=0.1),
    ],
)
def test_the_fourth_call_with_the_same_error_is_a_pattern(failure: AnyObservation) -> None:
    calls = [(RunShell(command=f"try {n}"), failure) for n in range(MAX_ERRORS)]
    assert find_pattern(run(BRIEF, *calls[:-1])) is None
    found = find_pattern(run(BRIEF, *calls))
    assert found is not None and found.kind == "same error" and len(found.calls) == MAX_ERRORS


def test_repeated_malformed_calls_are_the_same_error() -> None:
    calls: list[tuple[Action, AnyObservation]] = [
        (
            MalformedCall(name="edit", arguments="{" * n, problem="not JSON"),
            ActionFailure(reason="malformed", message="not JSON"),
        )
        for n in range(1, MAX_ERRORS + 1)
    ]
    assert find_pattern(run(BRIEF, *calls)) is not None


def test_lost_calls_are_no_pattern() -> None:
    lost = ActionFailure(reason="lost", message="This call is lost.")
    assert find_pattern(run(BRIEF, *[(RunShell(command=f"try {n}"), lost) for n in range(9)])) is None


def test_a_run_that_ignores_a_nudge_is_ended() -> None:
    circles = [shell("ls")] * MAX_IDENTICAL
    trajectory = run(BRIEF, *circles, NUDGE)
    assert (find_pattern(trajectory), check_stuck(trajectory)) == (None, None)
    again = run(BRIEF, *circles, NUDGE, *circles[:-1])
    assert (find_pattern(again), check_stuck(again)) == (None, None)
    ended = check_stuck(run(BRIEF, *circles, NUDGE, *circles))
    assert ended is not None and ended.reason == "stuck"
    assert ended.detail == ("The model was still stuck after a reminder (same call, 3 times: `$ ls`).")


def test_a_run_gets_a_limited_number_of_nudges() -> None:
    circles = [shell("ls")] * MAX_IDENTICAL
    stretch = (view("a.py"), *circles, NUDGE)
    assert find_pattern(run(BRIEF, *stretch, view("b.py"), *circles)) is not None
    often = run(BRIEF, *stretch * MAX_NUDGES, view("b.py"), *circles)
    ended = check_stuck(often)
    assert find_pattern(often) is None and ended is not None and ended.reason == "stuck"


def test_a_comment_resets_the_nudge_count() -> None:
    circles = [shell("ls")] * MAX_IDENTICAL
    answered = run(BRIEF, *circles, NUDGE, Message(text="Try b.", source="comment"), *circles)
    assert check_stuck(answered) is None and find_pattern(answered) is not None


def test_a_resumed_run_may_again_reply_without_a_tool_call() -> None:
    silent = [ModelReply(thought="I think.", calls=(), usage=ReplyUsage(model="m"))] * MAX_SILENT_REPLIES
    resumed = Message(text="Go on.", source="resume")
    reminder = Message(text="Call a tool.", source="program")
    assert check_stuck(run(BRIEF, *silent)) is not None
    assert check_stuck(run(BRIEF, *silent, resumed)) is None
    assert check_stuck(run(BRIEF, *silent, resumed, silent[0], reminder, silent[0])) is None
    assert check_stuck(run(BRIEF, *silent, resumed, silent[0], reminder, *silent[1:])) is not None


def test_the_counts_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/troubleshooting.md").read_text()
    assert (
        f"the same call with the same result {MAX_IDENTICAL} times in a row, alternated between two calls "
        f"{MAX_ROUNDS} times, or got the same error from {MAX_ERRORS} different calls in a row."
    ) in page
    assert f"The model gave {MAX_SILENT_REPLIES} replies in a row without a tool call" in page
