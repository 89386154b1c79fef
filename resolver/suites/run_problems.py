"""Explains why a test run is not valid."""

import re
import signal

from patchwright.resolver.domain import TestRun
from patchwright.resolver.runner_names import NOTHING_COLLECTED
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH
from patchwright.resolver.suites.missing_modules import INSTALL_ADVICE, find_missing_modules
from patchwright.resolver.suites.missing_program import (
    NO_PYTEST,
    NOT_STARTED_EXIT_CODES,
    find_missing_program,
    has_failed_to_start,
)
from patchwright.resolver.suites.reports.runner_report import RunnerReport
from patchwright.resolver.suites.suite import Suite

PYTEST_USAGE_ERROR = 4  # pytest's exit code if its options are invalid or conftest.py cannot be imported
_ADVICE = f"set `test_command` in {REPO_CONFIG_PATH}"
_ERROR_LINE = re.compile(
    r"^(?:E  |INTERNALERROR> (?=\w+(?:Error|Exception)\b)|.*\berror: |ERROR: )(.*)$", re.MULTILINE
)


def find_problem(
    suite: Suite, exit_code: int | None, report: RunnerReport, output: str, timeout: int
) -> str | None:
    """Returns why the test run is not valid, as a clause for a longer sentence. Returns None if the run is
    valid.

    A run in which no test failed is valid, even if the command failed.
    """
    if exit_code is None:
        return f"the tests did not finish within {timeout} s and were killed"
    if exit_code in NOT_STARTED_EXIT_CODES:
        return _explain_not_started(output)
    if exit_code in (-9, 137):
        return "the test command was killed, perhaps because it used too much memory"
    if suite.runner == "none":
        return None
    has_failures = any(result in ("failed", "error") for result in report.results.values())
    if not has_failures and (name := _get_signal_name(exit_code)):
        return f"the test command was killed by {name}"
    if not report.results:
        return _explain_no_results(suite, exit_code, report, output)
    return None


def require_known_options(base: TestRun, run: TestRun) -> TestRun:
    """Returns the run with a problem if its runner ignored options that it knew at base. A patch could otherwise
    remove a plugin, together with everything that the plugin checks.
    """
    unknown = [option for option in run.ignored_options if option not in base.ignored_options]
    if run.problem or base.problem or not unknown:
        return run
    problem = f"options that the test runner knows without the patch are unknown with it ({unknown[0]})"
    return run.model_copy(update={"results": {}, "problem": problem})


def _explain_no_results(suite: Suite, exit_code: int, report: RunnerReport, output: str) -> str:
    if suite.runner == "pytest" and NO_PYTEST in output:
        return f"pytest is not installed in the sandbox; add it to the image, or {_ADVICE}"
    if suite.runner == "pytest" and exit_code == NOTHING_COLLECTED:
        return f"pytest found no tests; {_ADVICE}"
    if has_failed_to_start(exit_code, output):
        return _explain_not_started(output)
    if exit_code != 0 and (modules := find_missing_modules(output)):
        return f"no test ran, because {modules[-1].description} is not installed in the sandbox; {INSTALL_ADVICE}"
    has_stopped_early = exit_code == PYTEST_USAGE_ERROR or "INTERNALERROR>" in output
    if suite.runner == "pytest" and has_stopped_early and (errors := _ERROR_LINE.findall(output)):
        return (
            f"pytest stopped before any test ({errors[-1].strip()[:200]}); "
            f"add what is missing to the image, or {_ADVICE}"
        )
    if report.problem:
        last_line = output.strip().rpartition("\n")[2].strip()[:200]
        return f"{report.problem} (exit code {exit_code}{f': {last_line}' if last_line else ''})"
    return f"the test report contains no tests; {_ADVICE}"


def _get_signal_name(exit_code: int) -> str:
    """Returns the name of the signal that ended a command. Returns an empty string if none did."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _explain_not_started(output: str) -> str:
    if program := find_missing_program(output):
        return f"`{program}` was not found in the sandbox; set `image` to an image that has it, or {_ADVICE}"
    return f"the test command was not found or cannot be run; {_ADVICE}, or add its program to the image"
