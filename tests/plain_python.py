"""A `python3` for the repositories of tests, whose pytest loads none of the plugins of this test suite.

Loading them takes longer than running a few tests, and verification runs the tests at least four times.
"""

import atexit
import shutil
import sys
import tempfile
from pathlib import Path


def _made() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="python-of-tests-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    program = directory / "python3"
    program.write_text(f'#!/bin/sh\nPYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return directory


PROGRAMS = f"{_made()}:{Path(sys.executable).parent}"
"""What begins the PATH of a sandbox."""
