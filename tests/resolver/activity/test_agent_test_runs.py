"""Which of the agent's own test runs count for a finish call."""

import pytest

from patchwright.resolver.activity.agent_test_runs import has_run_tests
from patchwright.resolver.activity.finish_checks import find_missing_steps
from patchwright.resolver.domain import Patch
from patchwright.resolver.events import Checkpoint
from tests.resolver.activity.test_finish_checks import EDIT, FIX_DIFF, shell
from tests.resolver.trajectories import run


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        ("pytest tests/test_other.py::test_x", False),
        ("python -m pytest -q -k other", False),
        ("pytest --lf", False),
        ("npx jest -t 'adds numbers'", False),
        ("go test -run TestOther ./...", False),
        ("mvn -q -Dtest=OtherTest test", False),
        ("pytest tests/test_calc.py::test_add", True),
        ("pytest -k 'calc and not slow'", True),
        ("pytest -k 'not slow'", True),
        ("go test -run TestCalc ./...", True),
        ("pytest tests/test_other.py", True),
        ("pytest --lf; pytest -q", True),
        ("timeout -k 5 60 pytest", True),
        ("sh test -k fast", True),
    ],
)
def test_selected_tests_count_only_if_they_name_a_changed_file(command: str, counts: bool) -> None:
    assert has_run_tests(run(EDIT, shell(command)), "sh test -k fast") is counts


def test_selected_tests_that_do_not_count_are_named_with_the_command_to_run() -> None:
    selected = run(shell("pytest", 1), EDIT, shell("pytest -k other"))
    assert find_missing_steps(selected, "python3 -m pytest") == (
        "The repository's tests were not run after the last edit: `pytest -k other` runs only selected tests, and "
        "its arguments name no changed file or test. Run `python3 -m pytest`.",
    )


@pytest.mark.parametrize(
    "command",
    ["pytest -k 'test_negative or x'", "pytest tests/test_o.py::test_negative", "go test -run negative"],
)
def test_a_selected_test_that_the_patch_adds_counts(command: str) -> None:
    diff = (
        FIX_DIFF + b"diff --git a/tests/test_o.py b/tests/test_o.py\n+def test_negative():\n+    assert 1\n"
    )
    edit = Checkpoint(patch=Patch(base_sha="b" * 40, diff=diff))
    assert has_run_tests(run(edit, shell(command)), None)
    assert not has_run_tests(run(EDIT, shell(command)), None)


def test_a_file_of_a_package_is_named_by_its_directory() -> None:
    diff = b"diff --git a/src/calc/__init__.py b/src/calc/__init__.py\n+x\n"
    edit = Checkpoint(patch=Patch(base_sha="b" * 40, diff=diff + b"diff --git a/.env b/.env\n+x\n"))
    assert has_run_tests(run(edit, shell("pytest tests/calc/test_sums.py::test_add")), None)
    assert not has_run_tests(run(edit, shell("pytest tests/test_sums.py::test_add")), None)
