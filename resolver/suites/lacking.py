"""Test runs that came to nothing because a program is not in the sandbox, as shells and make say it. Pure."""

import re

from resolver.domain import SuiteRun

NOT_STARTED = (126, 127)  # exit codes of a shell for a program that it cannot start
NO_PYTEST = "No module named pytest"
_MAKE = re.compile(r"^\S*make(?:\[\d+\])?: \*\*\* .{0,500}\bError 127$", re.MULTILINE)
_NAMED = re.compile(
    r"^(?:\S*sh|\S+: line \d+|\S*make(?:\[\d+\])?|\S*env): (?:line \d+: |\d+: )?"
    r"['\"‘]?(?P<program>[\w./+-]{1,60})['\"’]?: (?:command not found|not found|No such file or directory)\s*$",
    re.MULTILINE,
)


def is_unstarted(exit_code: int | None, output: str) -> bool:
    """Whether a command ended because it, or what it starts, cannot be started."""
    return exit_code in NOT_STARTED or _MAKE.search(output) is not None


def lacked(output: str) -> str:
    """The program that was not found, the last one where there are several; empty where none is named."""
    return next((found["program"] for found in reversed(list(_NAMED.finditer(output)))), "")


def cannot_be_run(run: SuiteRun | None) -> bool:
    """Whether it is known that the sandbox has nothing to run these tests with."""
    if run is None or not run.problem or run.results:
        return False
    return is_unstarted(run.exit_code, run.output) or NO_PYTEST in run.output
