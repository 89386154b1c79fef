"""The changes of a patch that a person has to agree to, and the lines of the diff that they concern."""

import pytest

from patchwright.resolver.conditions import Condition, ConditionKind, summarize_conditions
from patchwright.resolver.domain import TestRun, TestStatus, Verdict
from patchwright.resolver.proof.condition_finder import MAX_DIFF_LINES, MAX_LINE_LENGTH, find_conditions

DIFF = b"""\
diff --git a/test_a.py b/test_a.py
--- a/test_a.py
+++ b/test_a.py
@@ -1,3 +1,4 @@ import os
+import re
 x = 1
@@ -10,4 +11,4 @@ def test_one():
     one()
-    assert 1
+    assert 2

@@ -20,5 +21,4 @@ class TestB:
-    y = 2
     def test_two(self):
-        assert 1
-        assert 3
+        assert 2
"""


def run(results: dict[str, TestStatus]) -> TestRun:
    return TestRun(command="", command_reason="", results=results, exit_code=0, seconds=1, output="")


@pytest.mark.parametrize(
    ("test", "lines", "diff"),
    [
        ("test_a.py::test_one", (12, 12), "-    assert 1\n+    assert 2"),
        ("test_a.py::TestB::test_two", (22, 22), "-        assert 1\n-        assert 3\n+        assert 2"),
        ("test_a.py::TestB::test_x", (22, 22), "-    y = 2\n-        assert 1\n-        assert 3\n+        assert 2"),
        ("test_a.py::test_x", (1, 1), "+import re"),
    ],
)  # fmt: skip
def test_a_condition_names_the_changed_lines_of_its_test(
    test: str, lines: tuple[int, int], diff: str
) -> None:
    verdict = Verdict(kind="fixed", reason="", modified_tests_failing=(test,), after=run({test: "passed"}))
    [condition] = find_conditions(verdict, DIFF)
    assert (condition.path, condition.version, condition.lines, condition.diff) == (
        *("test_a.py", "patch", lines, diff),
    )


def test_added_lines_do_not_extend_the_lines_of_the_version_at_base() -> None:
    test = "test_a.py::TestB::test_two"
    verdict = Verdict(kind="fixed", reason="", modified_tests_failing=(test,), after=run({"b": "passed"}))
    [condition] = find_conditions(verdict, DIFF)
    assert (condition.version, condition.lines) == ("base", (22, 23))


def test_a_removed_test_is_shown_in_the_version_at_base() -> None:
    test = "test_a.py::TestB::test_two"
    verdict = Verdict(kind="fixed", reason="", modified_tests_failing=(test,), after=run({"b": "passed"}))
    [condition] = find_conditions(verdict, DIFF.replace(b"+        assert 2\n", b""))
    assert condition == Condition(
        kind="changed_expectations",
        sentence="`test_two` is removed; it fails with this change.",
        tests=(test,),
        path="test_a.py",
        version="base",
        lines=(22, 23),
        diff="-        assert 1\n-        assert 3",
    )


@pytest.mark.parametrize(
    ("results", "state"),
    [({"a.py::x": "skipped", "a.py::y": "skipped"}, "skipped"), ({"a.py::x": "skipped"}, "not run"), ({}, "not run")],
)  # fmt: skip
def test_tests_that_are_skipped_or_missing_are_told_apart(results: dict[str, TestStatus], state: str) -> None:
    verdict = Verdict(kind="fixed", reason="", missing=("a.py::x", "a.py::y"), after=run(results))
    [condition] = find_conditions(verdict, b"")
    assert condition.sentence.endswith(f" passed before and are {state} now.")
    assert (condition.path, condition.lines, condition.diff) == ("", None, "")


def test_a_long_change_is_shortened() -> None:
    added = "+" + "x" * MAX_LINE_LENGTH + "\n"
    diff = (
        "diff --git a/a.py b/a.py\n@@ -1 +1 @@\n" + added * (MAX_DIFF_LINES + 2) + "+" + "y" * 9 + "\n+ \n"
    ).encode()
    verdict = Verdict(kind="fixed", reason="", weakened_tests=("a.py has 1 check fewer.",))
    [condition] = find_conditions(verdict, diff)
    shortened = "+" + "x" * (MAX_LINE_LENGTH - 1) + " …"
    assert condition.diff.split("\n") == [shortened] * MAX_DIFF_LINES + ["and 3 more lines"]


@pytest.mark.parametrize(
    ("kind", "tests", "one", "two"),
    [
        ("changed_expectations", 1, "changes what 1 existing test expects", "changes what 2 existing tests expect"),
        ("tests_not_run", 1, "removes or skips 1 existing test", "removes or skips 2 existing tests"),
        ("deleted_test_file", 0, "deletes 1 test file", "deletes 2 test files"),
        ("weakened_tests", 0, "weakens the tests in 1 file", "weakens the tests in 2 files"),
        ("changed_test_config", 0, "changes the test configuration", "changes the test configuration"),
        ("added_packages", 0, "adds dependencies", "adds dependencies"),
        (
            "installed_version",
            1,
            "needs its new version in the installed metadata",
            "needs its new version in the installed metadata",
        ),
        ("failing_command", 0, "makes the test command fail", "makes the test command fail"),
    ],
)  # fmt: skip
def test_conditions_of_a_kind_are_counted(kind: ConditionKind, tests: int, one: str, two: str) -> None:
    condition = Condition(kind=kind, sentence="", tests=("a",) * tests)
    assert summarize_conditions([condition]) == one
    assert summarize_conditions([condition, condition]) == two


def test_a_summary_lists_the_kinds_of_conditions() -> None:
    kinds: tuple[ConditionKind, ...] = ("failing_command", "added_packages", "deleted_test_file")
    conditions = [Condition(kind=kind, sentence="") for kind in kinds]
    assert summarize_conditions([]) == ""
    assert summarize_conditions(conditions[:2]) == "adds dependencies and makes the test command fail"
    assert summarize_conditions(conditions) == (
        "deletes 1 test file, adds dependencies and makes the test command fail"
    )
