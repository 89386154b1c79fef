"""Runs the program of docs/library.md exactly as shown."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.resolver.git_repository import Repository

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs" / "library.md"


async def test_the_documented_program_fixes_a_repository(scenario: Scenario, tmp_path: Path) -> None:
    Repository(tmp_path / "calc").commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    (tmp_path / "bug.md").write_text("add() subtracts\n\nIt should add.\n")
    (program,) = re.findall(r"```python\n(# fix\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "fix.py").write_text(program)
    await scenario.script_model(*FIX_TURNS)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "fix.py", cwd=tmp_path, env=scenario.environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    assert out.decode().startswith("fixed, 5 steps\ndiff --git a/calc.py")
    assert "+    return a + b" in out.decode()
