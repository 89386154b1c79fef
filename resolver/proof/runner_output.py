"""Recognizes passed and failed tests in the output of a test runner that the agent started.

The runners are pytest, unittest, jest, mocha, node:test, go, cargo, TAP, RSpec and Maven. The agent may have
filtered the output, so only clear signs count.
"""

import re

FAILED_TESTS = re.compile(
    r"\b[1-9]\d* (failed|failing|failures?|errors?)\b|^(FAILED|FAIL|not ok)\b|\btest result: FAILED"
    r"|(Failures|Errors): [1-9]|(failures|errors)=[1-9]|^\S fail [1-9]",
    re.MULTILINE,
)
_PASSED_TESTS = re.compile(
    r"\b[1-9]\d* (passed|passing)\b|^\s*ok\b(?!.*\[no tests)|^\s*PASS\b|\bPASSED\b|\.\.\. ok$|^\s*--- PASS"
    r"|^\s*[✓✔√]|^\S pass [1-9]",
    re.MULTILINE,
)
# The numbers of tests, failures and errors of unittest, RSpec and Maven.
_COUNTS = (
    re.compile(r"\bRan (\d+) tests?\b.*\n+(?:OK|FAILED \((?:failures=(\d+))?(?:, )?(?:errors=(\d+))?)"),
    re.compile(r"\b(\d+) examples?, (\d+) failures?(?:, (\d+) errors?)?"),
    re.compile(r"\bTests run: (\d+), Failures: (\d+), Errors: (\d+)"),
)
_NO_TESTS = re.compile(
    r"\bno tests? (were )?(ran|found|collected|selected|to run|executed)|\bcollected 0 items|\b\d+ deselected\b"
    r"|\b0 (tests|passing|examples)\b|\bno test files\b|^\S tests 0\b|^Tests: +\d+ skipped, \d+ total",
    re.IGNORECASE | re.MULTILINE,
)


def describe_useless_run(output: str, exit_code: int | None) -> str:
    """Returns why a test run proves nothing, such as "ran no test". Returns "" if tests passed or may have
    passed. `exit_code` is None if it is unknown.
    """
    if _PASSED_TESTS.search(output) or _counts_a_pass(output):
        return ""
    if FAILED_TESTS.search(output):
        return "shows no test that passed"
    if _NO_TESTS.search(output):
        return "ran no test"
    return "" if exit_code in (0, None) else "failed, and shows no test that passed"


def _counts_a_pass(output: str) -> bool:
    for pattern in _COUNTS:
        for found in pattern.finditer(output):
            total, *failures = (int(number or 0) for number in found.groups())
            if total > sum(failures):
                return True
    return False
