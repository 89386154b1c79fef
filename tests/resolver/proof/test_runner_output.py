"""The output of test runners shows whether a test passed."""

import pytest

from patchwright.resolver.activity.agent_test_runs import describe_missing_test_run, has_run_tests
from patchwright.resolver.domain import Patch
from patchwright.resolver.events import Checkpoint
from patchwright.resolver.proof.runner_output import describe_useless_run
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult
from tests.resolver.trajectories import run


@pytest.mark.parametrize(
    ("output", "code", "problem"),
    [
        ("3 deselected in 0.01s", 5, "ran no test"),
        ("collected 0 items\n\nno tests ran in 0.01s", 0, "ran no test"),
        ("ERROR tests/test_a.py\n1 error in 0.10s", 2, "shows no test that passed"),
        ("2 failed, 3 deselected in 0.10s", 0, "shows no test that passed"),
        ("Ran 2 tests in 0.001s\n\nFAILED (failures=1, errors=1)", 1, "shows no test that passed"),
        ("ok  \tcalc\t0.002s [no tests to run]", 0, "ran no test"),
        ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 3 filtered out", 0, "ran no test"),
        ("Tests:       3 skipped, 3 total", 0, "ran no test"),
        ("", 2, "failed, and shows no test that passed"),
        ("", 0, ""),
        ("2 failed, 3 passed in 0.10s", 1, ""),
        ("Ran 3 tests in 0.001s\n\nFAILED (failures=1)", 1, ""),
        ("3 examples, 1 failure", 1, ""),
        ("Tests run: 3, Failures: 1, Errors: 1, Skipped: 0", 1, ""),
        ("ok  \tcalc\t0.002s\nFAIL\tother\t0.1s", 1, ""),
        ("Tests:       1 failed, 2 passed, 3 total", 1, ""),
    ],
)
def test_a_run_is_useless_if_no_test_passed(output: str, code: int, problem: str) -> None:
    assert describe_useless_run(output, code) == problem


def test_a_run_in_which_no_test_passed_does_not_count_for_a_finish_call() -> None:
    edit = Checkpoint(patch=Patch(base_sha="b" * 40, diff=b"diff --git a/a.py b/a.py\n+x = 1\n"))
    result = ShellResult(output="3 deselected in 0.01s", exit_code=5, cwd="/w", seconds=0.1)
    useless = RunShell(command="pytest -q -k add"), result
    useful = RunShell(command="pytest -q"), result.model_copy(update={"output": "3 passed", "exit_code": 0})
    assert not has_run_tests(run(edit, useless), "pytest")
    assert describe_missing_test_run(run(edit, useless), "pytest") == (
        "The repository's tests were not run after the last edit: `pytest -q -k add` ran no test."
    )
    assert has_run_tests(run(edit, useful, useless), "pytest")
