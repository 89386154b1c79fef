"""A `python3` for the repositories of tests, whose pytest loads none of the plugins of this test suite.

Loading them takes longer than running a few tests, and verification runs the tests at least four times.
"""

import atexit
import functools
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from tests.preloaded_command import preloaded_pytest


def _make_program(*lines: str) -> Path:
    """Returns a new directory that contains only `python3`. `lines` come before the program's last one."""
    directory = Path(tempfile.mkdtemp(prefix="python-of-tests-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    program = directory / "python3"
    start = ("#!/bin/sh", "export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1")
    program.write_text("\n".join((*start, *lines, f'exec "{sys.executable}" "$@"\n')))
    program.chmod(0o755)
    return directory


PROGRAMS = f"{_make_program()}:{Path(sys.executable).parent}"
"""What begins the PATH of a sandbox."""


@functools.cache
def get_fast_programs() -> str:
    """Returns a PATH like PROGRAMS, whose `python3 -m pytest` runs in a process that has imported pytest already. Only
    for tests that do not depend on how a test run starts.
    """
    pytest = shlex.join(preloaded_pytest())
    condition = 'if [ "$1 $2" = "-m pytest" ]; then'
    directory = _make_program(condition, "    shift 2", f'    exec {pytest} "$@"', "fi")
    return f"{directory}:{PROGRAMS}"
