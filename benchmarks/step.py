"""Measures what one step of the agent costs besides the model and the command: at 50 and at 300 steps of
history.

A real run in a Docker sandbox, on a repository of 2,000 files: litellm over HTTP to an endpoint that answers
immediately, the command through the persistent shell, a checkpoint of the tree, and every event fsynced. The
command's own seconds are subtracted. The commands of `_edit` write to a file of the tree; the others do not,
like most commands of an agent. Floor, in the same run: the same request posted by httpx and the same command,
and nothing else. Peers, measured on a Debian 12 machine with 2 cores.
"""

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import httpx
from pydantic import SecretStr

from benchmarks.endpoint import instant
from benchmarks.measure import Result, report
from benchmarks.sandbox import CA_BUNDLE
from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.events import ModelReply, ToolResult, Trajectory
from patchwright.resolver.git.workspaces import Workspace, WorkspaceFactory
from patchwright.resolver.git.worktree_patch import WorktreePatch
from patchwright.resolver.llm.chat_completions import to_chat_messages
from patchwright.resolver.llm.litellm import LitellmModel, preload_litellm
from patchwright.resolver.llm.model import ProviderConnection
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileRunLog
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxSpec

FILES, STEPS, NEAR = 2000, (50, 300), 20  # medians over the NEAR steps before each
EDITS, EDIT = 50, "echo >>package_0/module_0.py"


def measure() -> list[Result]:
    """Returns medians in milliseconds."""
    with instant(calls=True) as reads, instant(calls=True, command=EDIT) as edits:
        return asyncio.run(_measure(reads, edits))


async def _measure(reads: str, edits: str) -> list[Result]:
    await preload_litellm()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sandboxes = DockerSandboxes(SandboxSpec(memory_mb=2048), BuildSettings(ca_bundle=CA_BUNDLE))
        async with (
            WorkspaceFactory(directory / "cache").local(_repository(directory / "tree"), "HEAD") as workspace,
            sandboxes.open(f"benchmark-{os.getpid()}") as sandbox,
        ):
            await workspace.send_to(sandbox)
            reading = await _run(directory / "reads.jsonl", reads, workspace, sandbox, max(STEPS))
            floors = [await _floor(reads, reading, sandbox, steps, "echo floor") for steps in STEPS]
            editing = await _run(directory / "edits.jsonl", edits, workspace, sandbox, EDITS)
            floor = await _floor(edits, editing, sandbox, EDITS, EDIT)
        await sandboxes.close()
    targets = (6.0, 9.0)
    peers = ({"mini-swe-agent": 65.0, "OpenHands": 152.0}, {"mini-swe-agent": 108.0, "OpenHands": 219.0})
    return [
        *(
            _result(f"agent_step_{steps}", reading, steps, floor, peer, target)
            for steps, floor, peer, target in zip(STEPS, floors, peers, targets, strict=True)
        ),
        _result(f"agent_step_{EDITS}_edit", editing, EDITS, floor, {}, None),
    ]


def _result(
    name: str, run: Trajectory, steps: int, floor: float, peers: dict[str, float], target: float | None
) -> Result:
    middle = statistics.median(_steps(run)[steps - NEAR : steps])
    return Result(name=name, value=middle, unit="ms", floor=floor, peers=peers, target=target)


async def _run(path: Path, base_url: str, workspace: Workspace, sandbox: Sandbox, steps: int) -> Trajectory:
    log, worktree_patch = FileRunLog(path), WorktreePatch(workspace, sandbox)
    agent = Agent(
        model=LitellmModel(
            "openai/m", ProviderConnection(base_url=base_url, api_key=SecretStr("key")), supports_vision=False
        ),
        tools=_tools(sandbox),
        limits=Limits(steps=steps + 1, usd=Decimal(1000)),
        take_patch=worktree_patch.take,
        fingerprint_tree=worktree_patch.read_fingerprint,
        scratch=sandbox.scratch,
    )
    await record_prompts(log, "You fix bugs. " * 200, "The issue. " * 200, agent.tools)
    await agent.run(log)
    log.close()
    return log.trajectory


def _tools(sandbox: Sandbox) -> ToolRegistry:
    return ToolRegistry((*build_sandbox_tools(sandbox, ()), *build_control_tools()))


def _steps(trajectory: Trajectory) -> list[float]:
    """Returns the milliseconds from each reply to the next, without those of the command."""
    previous_at = None
    command = 0.0
    timings: list[float] = []
    for entry in trajectory.entries:
        match entry.event:
            case ToolResult(observation=ShellResult(seconds=seconds)):
                command = seconds
            case ModelReply():
                if previous_at is not None:
                    timings.append(((entry.timestamp - previous_at).total_seconds() - command) * 1000)
                previous_at = entry.timestamp
            case _:
                continue
    return timings


async def _floor(base_url: str, trajectory: Trajectory, sandbox: Sandbox, steps: int, command: str) -> float:
    places = [at for at, event in enumerate(trajectory) if isinstance(event, ModelReply)]
    sent = to_chat_messages(
        build_messages(Trajectory(trajectory.entries[: places[steps]])), model_name="m", supports_vision=False
    )
    body = {
        "model": "m",
        "messages": sent,
        "tools": [spec.to_openai_tool() for spec in _tools(sandbox).specs],
    }
    timings: list[float] = []
    async with httpx.AsyncClient() as client:
        for number in range(NEAR):
            previous_at = time.perf_counter()
            (await client.post(f"{base_url}/chat/completions", json=body)).json()
            ran = await sandbox.act(RunShell(command=f"{command} {number}"))
            assert isinstance(ran, ShellResult)
            timings.append((time.perf_counter() - previous_at - ran.seconds) * 1000)
    return statistics.median(timings)


def _repository(path: Path) -> Path:
    for number in range(FILES):
        file = path / f"package_{number % 40}" / f"module_{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"def function_{number}():\n    return {number}\n" * 10)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "All."]):
        _git(path, arguments)
    return path


def _git(path: Path, arguments: Sequence[str]) -> None:
    who = ("-c", "user.name=Benchmark", "-c", "user.email=benchmark@example.org")
    subprocess.run(["git", *who, *arguments], cwd=path, check=True)


if __name__ == "__main__":
    report(measure())
