"""Modules that a command needs later are imported while its checks wait."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
from patchwright.bot.composition.composition_root import start_import
sys.path.insert(0, {directory!r})
started_at = time.monotonic()
start_import("slow")
assert time.monotonic() - started_at < 0.5, "the caller waited for the import"
{rest}
"""


@pytest.mark.parametrize(
    ("rest", "printed"),
    [("from slow import VALUE; print(VALUE)", "ready\n"), ("print('ended')", "ended\n")],
    ids=["waits where the module is used", "the program can end before the import does"],
)
def test_a_module_is_imported_in_the_background(tmp_path: Path, rest: str, printed: str) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1)\nVALUE = 'ready'\n")
    program = PROGRAM.format(directory=str(tmp_path), rest=rest)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == (printed, "")
