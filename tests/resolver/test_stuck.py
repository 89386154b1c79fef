"""Runs that go in circles, over logs."""

import pytest

from resolver.actions import Action, Malformed, Result
from resolver.events import Told
from resolver.stuck import ERRORS, NUDGES, ROUNDS, SAME, ending, nudge
from runtime.actions import RunShell, SendInput, ViewFile
from runtime.observations import Failed, Ran, RanPython, Viewed
from tests.resolver.trajectories import run

NUDGE = Told(text="You go in circles.", source="nudge")
BRIEF = Told(text="Issue 7", source="brief")


def shell(command: str, output: str = "x", code: int = 0, seconds: float = 0.1) -> tuple[Action, Result]:
    return RunShell(command=command), Ran(output=output, exit_code=code, cwd="/w", seconds=seconds)


def view(path: str) -> tuple[Action, Result]:
    return ViewFile(path=path), Viewed(text=path)


def test_the_same_call_with_the_same_result_is_told_at_the_third_time_and_not_before() -> None:
    assert nudge(run(BRIEF, *[shell("ls")] * (SAME - 1))) is None
    found = nudge(run(BRIEF, *[shell("ls")] * SAME))
    assert found is not None
    assert (found.kind, found.calls, found.times) == ("same call", ("$ ls",), 3)


def test_durations_addresses_and_temporary_names_do_not_make_a_result_another() -> None:
    runs = [
        shell("pytest", f"1 failed in {n}.12s at 0x7f00000{n} in /tmp/x{n}, pid 4{n}", 1, seconds=n)
        for n in range(3)
    ]
    assert nudge(run(BRIEF, *runs)) is not None
    counted = [shell("pytest", f"{n} failed in 1.12s", 1) for n in range(3)]
    assert nudge(run(BRIEF, *counted)) is None


def test_the_same_call_with_another_result_each_time_gets_on() -> None:
    assert nudge(run(BRIEF, *[shell("tail log", output=str(n)) for n in range(9)])) is None


def test_waiting_for_a_command_that_takes_its_time_is_no_circle() -> None:
    waiting = Ran(output="", exit_code=None, cwd="/w", seconds=5, note="still running")
    assert nudge(run(BRIEF, *[(SendInput(), waiting)] * 20)) is None
    assert nudge(run(BRIEF, *[(SendInput(text="y"), waiting)] * SAME)) is not None


def test_two_calls_in_turn_are_told_after_three_rounds() -> None:
    turn = [view("a.py"), view("b.py")]
    assert nudge(run(BRIEF, *turn * (ROUNDS - 1))) is None
    found = nudge(run(BRIEF, *turn * ROUNDS))
    assert found is not None
    assert (found.kind, found.calls) == ("two calls in turn", ("view a.py", "view b.py"))


@pytest.mark.parametrize(
    "failure",
    [
        Failed(reason="not_found", message="no such file"),
        Ran(output="Traceback\nImportError: no module x\n", exit_code=1, cwd="/w", seconds=0.1),
        RanPython(output="Traceback\nImportError: no module x\n", ok=False, seconds=0.1),
    ],
)
def test_different_calls_with_the_same_error_are_told_at_the_fourth(failure: Result) -> None:
    calls = [(RunShell(command=f"try {n}"), failure) for n in range(ERRORS)]
    assert nudge(run(BRIEF, *calls[:-1])) is None
    found = nudge(run(BRIEF, *calls))
    assert found is not None and found.kind == "same error" and len(found.calls) == ERRORS


def test_calls_that_cannot_be_read_again_and_again_are_the_same_error() -> None:
    calls: list[tuple[Action, Result]] = [
        (
            Malformed(name="edit", arguments="{" * n, problem="not JSON"),
            Failed(reason="malformed", message="not JSON"),
        )
        for n in range(1, ERRORS + 1)
    ]
    assert nudge(run(BRIEF, *calls)) is not None


def test_what_the_sandbox_lost_is_not_the_models_fault() -> None:
    lost = Failed(reason="lost", message="This call is lost.")
    assert nudge(run(BRIEF, *[(RunShell(command=f"try {n}"), lost) for n in range(9)])) is None


def test_a_run_that_goes_on_as_before_after_it_was_told_is_ended_with_what_it_did() -> None:
    circles = [shell("ls")] * SAME
    told = run(BRIEF, *circles, NUDGE)
    assert (nudge(told), ending(told)) == (None, None)
    again = run(BRIEF, *circles, NUDGE, *circles[:-1])
    assert (nudge(again), ending(again)) == (None, None)
    ended = ending(run(BRIEF, *circles, NUDGE, *circles))
    assert ended is not None and ended.reason == "stuck"
    assert ended.detail == ("The model went in circles after it was told so (same call, 3 times: `$ ls`).")


def test_who_got_on_in_between_is_told_again_but_not_for_ever() -> None:
    circles = [shell("ls")] * SAME
    stretch = (view("a.py"), *circles, NUDGE)
    assert nudge(run(BRIEF, *stretch, view("b.py"), *circles)) is not None
    often = run(BRIEF, *stretch * NUDGES, view("b.py"), *circles)
    ended = ending(often)
    assert nudge(often) is None and ended is not None and ended.reason == "stuck"


def test_a_comment_of_a_person_begins_a_new_count() -> None:
    circles = [shell("ls")] * SAME
    answered = run(BRIEF, *circles, NUDGE, Told(text="Try b.", source="comment"), *circles)
    assert ending(answered) is None and nudge(answered) is not None
