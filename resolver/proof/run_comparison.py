"""Compares the results of two test runs."""

import re

from patchwright.resolver.domain import TestRun, TestStatus

FAILED_STATUSES: tuple[TestStatus, ...] = ("failed", "error")


def get_test_file(test: str) -> str:
    """Returns the file of a test id that starts with a file name."""
    return test.partition("::")[0]


def get_selectors(tests: tuple[str, ...], run: TestRun) -> tuple[str, ...]:
    """Returns a selector for each test: its id, or its file if the test could not be collected."""
    return tuple(dict.fromkeys(test if test in run.results else get_test_file(test) for test in tests))


def get_test_function(test: str) -> str:
    """Returns a test id without the parameters in brackets at its end."""
    return re.sub(r"(?s)\[.*\]$", "", test)


def get_test_status(run: TestRun, test: str) -> TestStatus | None:
    """Returns the result of a test. If its file could not be collected, returns the result of the file.
    Returns None if the test and its file have no result.
    """
    return run.results.get(test) or run.results.get(get_test_file(test))


def has_failed(run: TestRun, test: str) -> bool:
    """Returns True if the test failed, or if its file could not be collected."""
    return get_test_status(run, test) in FAILED_STATUSES


def find_pass_to_fail(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Returns the tests that passed before and fail after, sorted by name."""
    passed = (
        test for test, result in before.results.items() if result == "passed" and test not in before.flaky
    )
    return tuple(sorted(test for test in passed if has_failed(after, test)))


def find_fail_to_pass(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Returns the tests that failed before and pass after, sorted by name."""
    passes = (
        test for test, result in after.results.items() if result == "passed" and test not in before.flaky
    )
    return tuple(sorted(test for test in passes if has_failed(before, test)))
