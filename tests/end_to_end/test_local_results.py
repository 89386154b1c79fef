"""The result of a local run is complete and clear, in a pipe and after an error of the model."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.preloaded_command import preloaded_command
from tests.resolver.git_repository import Repository

pytestmark = pytest.mark.slow


@pytest.fixture
def resolve_arguments(tmp_path: Path) -> tuple[str, ...]:
    """The arguments to fix a repository on this disk."""
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    issue = tmp_path / "issue.md"
    issue.write_text("add() subtracts")
    return ("resolve", "--repo", str(made.path), "--issue", str(issue))


@pytest.mark.parametrize("flags", [(), ("--json",)])
async def test_a_closed_pipe_changes_neither_the_patch_file_nor_the_exit_code(
    scenario: Scenario, resolve_arguments: tuple[str, ...], flags: tuple[str, ...], tmp_path: Path
) -> None:
    await scenario.script_model(*FIX_TURNS)
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *preloaded_command(), *resolve_arguments, *flags, "--out", "fix.diff",
        env=scenario.environment, cwd=tmp_path, stdout=writer, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(writer)
    _, error = await process.communicate()
    assert "+    return a + b" in (tmp_path / "fix.diff").read_text()
    assert process.returncode == 0 and b"BrokenPipeError" not in error, error.decode()
    assert flags or b"\nview: patchwright view " in error
