"""Modules that a command needs later are imported while its checks wait."""

import subprocess
import sys
from pathlib import Path

import pytest

SLOW = """
import pathlib, time
while not pathlib.Path(__file__).with_name("go").exists():
    time.sleep(0.01)
VALUE = "ready"
"""
PROGRAM = """
import pathlib, sys
from patchwright.bot.composition.composition_root import start_import
sys.path.insert(0, {directory!r})
start_import("slow")  # The import ends only after this program has gone on.
{rest}
"""


@pytest.mark.parametrize(
    ("rest", "printed"),
    [
        ("pathlib.Path(sys.path[0], 'go').touch(); from slow import VALUE; print(VALUE)", "ready\n"),
        ("print('ended')", "ended\n"),
    ],
    ids=["waits where the module is used", "the program can end before the import does"],
)
def test_a_module_is_imported_in_the_background(tmp_path: Path, rest: str, printed: str) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    program = PROGRAM.format(directory=str(tmp_path), rest=rest)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == (printed, "")
