"""Conditions of a verdict: changes to tests that a person has to agree to, although tests show the fix.

The domain model imports this module, so it imports nothing of the domain model.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from patchwright.runtime.frozen_model import FrozenModel

ConditionKind = Literal[
    "changed_expectations",
    "tests_not_run",
    "deleted_test_file",
    "weakened_tests",
    "changed_test_config",
    "added_packages",
    "installed_version",
    "failing_command",
]


class Condition(FrozenModel):
    """A change of a patch that a person has to agree to, because it changes what the tests check."""

    kind: ConditionKind
    sentence: str
    """What changed, in one sentence with test names as inline code."""
    tests: tuple[str, ...] = ()
    """The existing tests that are concerned; empty if the change concerns a file as a whole."""
    path: str = ""
    """The changed file; empty if the test runner does not report it."""
    version: Literal["base", "patch"] = "patch"
    """The version of the file in which `lines` are numbered."""
    lines: tuple[int, int] | None = None
    """The first and last changed line, from 1. None if they are unknown."""
    diff: str = ""
    """The changed lines, each with `-` (before) or `+` (after) as its first character. Long changes are
    shortened. Empty if they are unknown.
    """
    url: str = ""
    """Link to the lines on the forge; empty if the patch is not pushed, or if the lines are unknown."""


def summarize_conditions(conditions: Sequence[Condition]) -> str:
    """Summarizes conditions for a sentence about a patch: "changes what 2 existing tests expect and deletes 1
    test file". Returns an empty text if there are no conditions.
    """
    parts = [
        _summarize_kind(kind, found)
        for kind in get_args(ConditionKind)
        if (found := [condition for condition in conditions if condition.kind == kind])
    ]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _summarize_kind(kind: ConditionKind, conditions: Sequence[Condition]) -> str:
    count = sum(len(condition.tests) for condition in conditions)
    match kind:
        case "changed_expectations":
            return f"changes what {count} existing {'test expects' if count == 1 else 'tests expect'}"
        case "tests_not_run":
            return f"removes or skips {count} existing {_plural('test', count)}"
        case "deleted_test_file":
            return f"deletes {len(conditions)} test {_plural('file', len(conditions))}"
        case "weakened_tests":
            return f"weakens the tests in {len(conditions)} {_plural('file', len(conditions))}"
        case "changed_test_config":
            return "changes the test configuration"
        case "added_packages":
            return "adds dependencies"
        case "installed_version":
            return "needs its new version in the installed metadata"
        case "failing_command":
            return "makes the test command fail"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
