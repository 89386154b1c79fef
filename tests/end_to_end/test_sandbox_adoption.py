"""The process of a Docker run is killed: the next one continues in the same sandbox, or in a new one like it."""

import asyncio
import os
import signal
from pathlib import Path

import docker
import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.events import Message, ModelReply, ToolResult
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.secrets import SECRET_PLACEHOLDER
from patchwright.runtime.actions import RunShell, SendInput
from patchwright.runtime.docker.reaper import RUN_LABEL as LABEL
from patchwright.runtime.observations import ShellResult
from tests.end_to_end.conftest import CODE, FIX, FIX_TURNS, KEY, TESTS, Scenario
from tests.preloaded_command import COMMAND
from tests.resolver.agent_runs import count_lost_calls
from tests.resolver.git_repository import Repository

pytestmark = [pytest.mark.slow, pytest.mark.docker]
REMEMBER = RecordedTurn("Remember.", RunShell(command="X=kept; cd tests; echo note > /tmp/note"))
RECALL = RunShell(command="echo $X; pwd; cat /tmp/note; cd /workspace")


@pytest.mark.parametrize("removed", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_killed_run_continues_in_its_sandbox(
    scenario: Scenario, tmp_path: Path, removed: bool
) -> None:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    issue = tmp_path / "issue.md"
    issue.write_text("add() subtracts\n\nIt should add.")
    scenario.environment["PATCHWRIGHT_SANDBOX"] = "docker"
    killed: list[int] = []

    def kill(turn: int, body: object) -> None:
        if turn == 2 and not killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    await scenario.script_model(
        FIX_TURNS[0], REMEMBER, RecordedTurn("Recall.", RECALL), *FIX_TURNS[1:], on_request=kill
    )
    process = await scenario.cli(
        "resolve", "--repo", str(repository.path), "--issue", str(issue), program=COMMAND
    )
    _, error = await process.communicate()
    assert process.returncode == -signal.SIGKILL, error.decode()
    (run,) = scenario.runs
    client = docker.from_env()
    of_this_run = {"label": f"{LABEL}={run}-agent"}
    (container,) = client.containers.list(filters=of_this_run, ignore_removed=True)
    if removed:
        container.remove(force=True)

    fix = tmp_path / "fix.diff"
    code, out, result = await scenario.command("resolve", "--continue", run, "--out", str(fix))
    assert code == 0, out + result
    assert "+    return a + b" in fix.read_text()
    trajectory = scenario.trajectory(run)
    messages = [event.text for event in trajectory if isinstance(event, Message) and event.source == "resume"]
    assert messages[1:] == [
        render_prompt("new_sandbox.md.j2", scratch="/tmp", reason=None)
        if removed
        else render_prompt("same_sandbox.md.j2")
    ]
    recall = next(
        call.id
        for event in trajectory
        if isinstance(event, ModelReply)
        for call in event.calls
        if call.action == RECALL
    )
    (recalled,) = (e.observation for e in trajectory if isinstance(e, ToolResult) and e.call_id == recall)
    assert isinstance(recalled, ShellResult)
    assert recalled.output.startswith("\n/workspace\ncat:" if removed else "kept\n/workspace/tests\nnote\n")
    assert client.containers.list(all=True, filters=of_this_run, ignore_removed=True) == []
    client.close()


async def test_a_running_command_survives_a_kill_and_its_result_reaches_the_run(
    scenario: Scenario, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    issue, fix = tmp_path / "issue.md", tmp_path / "fix.diff"
    issue.write_text("add() subtracts\n\nIt should add.")
    scenario.environment["PATCHWRIGHT_SANDBOX"] = "docker"
    command = f"printf %s {KEY[:9]}; sleep 3; echo once >> /tmp/ran; sleep 8; echo {KEY[9:]}; wc -l < /tmp/ran; X=kept"
    slow = RunShell(command=command, interactive=True, timeout=1), SendInput(timeout=60)
    await scenario.script_model(
        RecordedTurn("All.", *slow, FIX),
        RecordedTurn("Again.", RunShell(command="echo $X; wc -l < /tmp/ran")),
        *FIX_TURNS[1:],
    )
    process = await scenario.cli("resolve", "--repo", str(repository.path), "--issue", str(issue))
    client = docker.from_env()
    async with asyncio.timeout(120):
        while not (there := at_work(client, scenario)):
            await asyncio.sleep(0.1)
    process.kill()
    await process.communicate()

    (run,) = scenario.runs
    code, out, result = await scenario.command("resolve", "--continue", run, "--out", str(fix))
    assert code == 0, out + result
    assert "+    return a + b" in fix.read_text()
    answers = [event.observation for event in scenario.trajectory(run) if isinstance(event, ToolResult)]
    told_of = [one.output for one in answers if isinstance(one, ShellResult)][:3]
    assert told_of == [
        SECRET_PLACEHOLDER,
        f"{SECRET_PLACEHOLDER}\n1\n",
        "kept\n1\n",
    ]  # each process has half of the key
    assert count_lost_calls(scenario.trajectory(run)) == 0
    assert client.containers.list(all=True, filters={"id": there}, ignore_removed=True) == []
    client.close()


def at_work(client: docker.DockerClient, scenario: Scenario) -> str:
    """Returns the id of the container that runs the slow command, or "" before it starts."""
    for run in scenario.runs:
        named = {"label": f"{LABEL}={run}-agent"}
        for container in client.containers.list(filters=named, ignore_removed=True):
            if container.exec_run(["test", "-e", "/tmp/ran"]).exit_code == 0:
                return str(container.id)
    return ""
