"""Detects test runs that failed because a program is missing in the sandbox. Only exit codes and the output
of shells or `make` are examined. All functions are pure.
"""

import re

from patchwright.resolver.domain import TestRun

NOT_STARTED_EXIT_CODES = (126, 127)  # exit codes of a shell for a program that it cannot start
NO_PYTEST = "No module named pytest"
_MAKE_ERROR_127 = re.compile(r"^\S*make(?:\[\d+\])?: \*\*\* .{0,500}\bError 127$", re.MULTILINE)
_NOT_FOUND_LINE = re.compile(
    r"^(?:\S*sh|\S+: line \d+|\S*make(?:\[\d+\])?|\S*env): (?:line \d+: |\d+: )?"
    r"['\"‘]?(?P<program>[\w./+-]{1,60})['\"’]?: (?:command not found|not found|No such file or directory)\s*$",
    re.MULTILINE,
)


def has_failed_to_start(exit_code: int | None, output: str) -> bool:
    """Returns True if the command, or a program that it starts, could not be started."""
    return exit_code in NOT_STARTED_EXIT_CODES or _MAKE_ERROR_127.search(output) is not None


def find_missing_program(output: str) -> str:
    """Returns the name of the program that was not found. If there are several, returns the last one. Returns
    an empty string if the output names none.
    """
    return next((match["program"] for match in reversed(list(_NOT_FOUND_LINE.finditer(output)))), "")


def is_runner_missing(run: TestRun | None) -> bool:
    """Returns True if it is certain that the sandbox lacks the program that runs these tests."""
    if run is None or not run.problem or run.results:
        return False
    return has_failed_to_start(run.exit_code, run.output) or NO_PYTEST in run.output
