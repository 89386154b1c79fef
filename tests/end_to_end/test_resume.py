"""Nothing is lost and nothing is duplicated, whichever process is killed."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.events import ModelReply, ToolResult
from patchwright.runtime.actions import RunShell
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, RUN_TESTS, TESTS, Scenario
from tests.preloaded_command import COMMAND
from tests.resolver.git_repository import Repository


def once(path: Path, note: str, after: str = "") -> RunShell:
    """Returns a command that writes to a file outside of the sandbox on each execution."""
    return RunShell(command=f"echo {note} >> {path}; {after}")


async def continue_run(scenario: Scenario, path: Path, *more: str) -> str:
    code, out, error = await scenario.command("resolve", *more)
    assert code == 0, out + error
    return path.read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    return made.path


@pytest.fixture
def issue(tmp_path: Path) -> Path:
    path = tmp_path / "issue.md"
    path.write_text("add() subtracts")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", [0, pytest.param(3, marks=pytest.mark.slow)])
async def test_a_run_killed_during_a_model_request_ends_with_the_same_diff(
    scenario: Scenario, repository: Path, tmp_path: Path, killed_at: int
) -> None:
    traces = tmp_path / "traces"
    turns = (
        RecordedTurn("Look.", once(traces, "look")),
        *FIX_TURNS[:2],
        RecordedTurn("Test.", once(traces, "test")),
        FIX_TURNS[3],
    )
    issue = tmp_path / "issue.md"
    issue.write_text("add() subtracts\n\nIt should add.")
    fix = tmp_path / "fix.diff"
    start = ("--repo", str(repository), "--issue", str(issue), "--out", str(fix))

    await scenario.script_model(*turns)
    expected = await continue_run(scenario, fix, *start)
    fix.unlink()
    traces.unlink()
    before = scenario.runs

    victims: list[int] = []

    def kill(turn: int, body: object) -> None:
        if turn == killed_at and not victims:
            victims.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    await scenario.script_model(*turns, on_request=kill)
    process = await scenario.cli("resolve", *start, program=COMMAND)
    await process.communicate()
    assert process.returncode == -signal.SIGKILL
    run = next(run for run in scenario.runs if run not in before)
    assert await continue_run(scenario, fix, "--continue", run, "--out", str(fix)) == expected
    assert traces.read_text() == "look\ntest\n"


@pytest.mark.slow
async def test_an_interrupted_command_is_reported_as_lost_and_never_repeated(
    scenario: Scenario, repository: Path, issue: Path, tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    fix = tmp_path / "fix.diff"
    hanging = once(traces, "hanging", after=f"[ -e {tmp_path / 'again'} ] || sleep 600")
    await scenario.script_model(
        RecordedTurn("Fix.", FIX, NEW_TEST),
        RecordedTurn("Hang.", hanging),
        RecordedTurn("Test.", RUN_TESTS),
        RecordedTurn("Done.", DONE),
    )
    process = await scenario.cli("resolve", "--repo", str(repository), "--issue", str(issue))
    while not traces.exists():
        assert process.returncode is None
        await wait()
    process.kill()
    await process.communicate()

    (tmp_path / "again").touch()  # the model, informed of the loss, requests it again
    (run,) = scenario.runs
    assert "a + b" in await continue_run(scenario, fix, "--continue", run, "--out", str(fix))
    events = tuple(scenario.trajectory(run))
    call_ids = [call.id for event in events if isinstance(event, ModelReply) for call in event.calls]
    answered = [event.call_id for event in events if isinstance(event, ToolResult)]
    assert sorted(answered) == sorted(call_ids)
    assert len(set(answered)) == len(answered)
    assert traces.read_text() == "hanging\nhanging\n"


@pytest.mark.slow
async def test_ctrl_c_stops_cleanly_and_prints_how_to_continue(
    scenario: Scenario, repository: Path, issue: Path, tmp_path: Path
) -> None:
    fix = tmp_path / "fix.diff"
    started = tmp_path / "started"
    await scenario.script_model(
        RecordedTurn("Hang.", RunShell(command=f"touch {started}; sleep 600")), *FIX_TURNS
    )
    process = await scenario.cli("resolve", "--json", "--repo", str(repository), "--issue", str(issue))
    while not started.exists():
        assert process.returncode is None
        await wait()
    (run,) = scenario.runs
    code, _, message = await scenario.command("resolve", "--continue", run)
    assert code == 2 and message.startswith("patchwright: Another process is working on the run"), message
    assert message.count("\n") == 1
    process.send_signal(signal.SIGINT)
    out, error = await process.communicate()
    assert process.returncode == 130
    assert json.loads(out) == {"outcome": "interrupted", "exit_code": 130, "run": run}
    assert f"patchwright resolve --continue {run}" in error.decode()
    assert error.decode().count("Stopping. This can take up to 20 seconds.\n") == 1
    assert "Traceback" not in out.decode() + error.decode()
    assert list((scenario.data / "sandboxes").iterdir()) == []

    # The limit counts only the replies since the run was resumed.
    await scenario.script_model(RecordedTurn("Look.", RUN_TESTS), *FIX_TURNS)
    limit = ("--max-steps", str(len(FIX_TURNS)))
    assert "a + b" in await continue_run(scenario, fix, "--continue", run, "--out", str(fix), *limit)


@pytest.mark.slow
async def test_a_run_on_uncommitted_changes_continues_after_a_limit(
    scenario: Scenario, issue: Path, tmp_path: Path
) -> None:
    """The bug and one of the tests are not committed. The patch holds only the agent's change, so it applies
    to the work tree.
    """
    repository, fix = Repository(tmp_path / "calc"), tmp_path / "fix.diff"
    repository.commit({"calc.py": CODE.replace("a - b", "a + b")})
    repository.write("calc.py", CODE)
    repository.write("tests/test_calc.py", TESTS)
    before = repository.git("status", "--porcelain"), repository.git("rev-parse", "HEAD")
    await scenario.script_model(RecordedTurn("Look.", RUN_TESTS))
    start = ("resolve", "--repo", str(repository.path), "--issue", str(issue), "--max-steps", "1")
    code, _, error = await scenario.command(*start, "--include-changes")
    (run,) = scenario.runs
    assert "; 1 modified and 1 new files are included.\n" in error
    assert (code, error.splitlines()[-1]) == (3, f"resume: patchwright resolve --continue {run}")
    await scenario.script_model(RecordedTurn("Look.", RUN_TESTS), *FIX_TURNS)
    code, out, error = await scenario.command("resolve", "--continue", run, "--out", str(fix))
    assert (code, out.splitlines()[0].startswith("verdict: fixed.")) == (0, True), out + error
    assert (repository.git("status", "--porcelain"), repository.git("rev-parse", "HEAD")) == before
    repository.git("apply", str(fix))
    assert "a + b" in (repository.path / "calc.py").read_text()


async def wait() -> None:
    await asyncio.sleep(0.05)
