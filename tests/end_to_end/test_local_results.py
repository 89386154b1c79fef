"""The result of a local run is complete and clear, in a pipe and after an error of the model."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from patchwright.demo.recorded_model import RecordedTurn, RequestHook, server_error
from tests.end_to_end.conftest import CODE, FIX_TURNS, RUN_TESTS, TESTS, Scenario
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


def fail_permanently(scenario: Scenario, turn: int) -> RequestHook:
    """Returns a hook that answers every request from this turn on with a server error."""

    def fail(number: int, body: dict[str, Any]) -> None:
        if number >= turn:
            scenario.endpoint.add_faults(server_error())

    return fail


async def test_a_model_error_without_a_change_is_reported_as_an_error(
    scenario: Scenario, resolve_arguments: tuple[str, ...], tmp_path: Path
) -> None:
    scenario.environment["PATCHWRIGHT_MODEL_RETRY_TIMEOUT"] = "1"
    (tmp_path / "fix.diff").write_text("old")
    start = (*resolve_arguments, "--out", str(tmp_path / "fix.diff"))
    await scenario.script_model(RecordedTurn("Look.", RUN_TESTS), on_request=fail_permanently(scenario, 1))
    code, out, error = await scenario.command(*start)
    (run,) = scenario.runs
    assert (code, out) == (1, "no result: the model failed before the agent changed the code\n")
    assert f"NOTICE: {tmp_path}/fix.diff was not written; an older file is still there.\n" in error
    assert f"\nresume: patchwright resolve --continue {run} --out {tmp_path}/fix.diff\n" in error
    assert error.splitlines()[-1].startswith("patchwright: The model openai/scripted failed (500): ")

    await scenario.script_model(on_request=fail_permanently(scenario, 0))
    code, out, _ = await scenario.command("resolve", "--continue", run, "--json")
    report = json.loads(out)
    assert (code, report["outcome"], report["kind"], report["exit_code"]) == (1, "error", "ModelError", 1)
    assert (report["verdict"], report["reason"], report["run"]) == (None, None, run)
    assert report["error"].startswith("The model openai/scripted failed (500): ")


async def test_a_model_error_after_a_change_is_a_notice_beside_the_verdict(
    scenario: Scenario, resolve_arguments: tuple[str, ...], tmp_path: Path
) -> None:
    scenario.environment["PATCHWRIGHT_MODEL_RETRY_TIMEOUT"] = "1"
    await scenario.script_model(*FIX_TURNS, on_request=fail_permanently(scenario, 3))
    code, out, error = await scenario.command(*resolve_arguments, "--out", "fix.diff", cwd=tmp_path)
    (run,) = scenario.runs
    assert code == 0 and out.startswith("verdict: fixed."), error
    assert "NOTICE: The model failed after step 3. The model openai/scripted failed (500): " in error
    assert " The verdict is about the changes until then.\n" in error
    assert f"\npatch: {tmp_path}/fix.diff\napply it with: git -C " in error
    assert error.splitlines()[-1] == f"resume: patchwright resolve --continue {run} --out {tmp_path}/fix.diff"
