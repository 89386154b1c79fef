"""What one step of the agent costs outside of the model and the command: at 50 steps of history, and at 300.

A real run in a Docker sandbox, on a repository of 2,000 files: litellm over HTTP to an endpoint that answers at once,
the command through the persistent shell, a checkpoint of the tree, every event fsynced. The command's own seconds are
taken off. The commands of `_edit` write to a file of the tree; the others do not, as most of an agent's do not.
Floor, in the same run: the same request posted by httpx and the same command, and nothing else. Peers, measured on a
Debian 12 machine with 2 cores.
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
from resolver.agent import Agent, begin
from resolver.events import Decided, Observed, Trajectory
from resolver.git.tree import mark
from resolver.llm.chat import written
from resolver.llm.litellm import LitellmModel, warm
from resolver.log import FileLog
from resolver.render import messages
from resolver.rules import Limits
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools
from resolver.workspace import Workspace, Workspaces
from runtime.actions import RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.observations import Ran
from runtime.sandbox import Sandbox, SandboxSpec

FILES, STEPS, NEAR = 2000, (50, 300), 20  # medians are taken over the NEAR steps before each
EDITS, EDIT = 50, "echo >>package_0/module_0.py"


def measure() -> list[Result]:
    """Medians, in milliseconds."""
    with instant(calls=True) as reads, instant(calls=True, command=EDIT) as edits:
        return asyncio.run(_measure(reads, edits))


async def _measure(reads: str, edits: str) -> list[Result]:
    await warm()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        sandboxes = DockerSandboxes(SandboxSpec(memory_mb=2048), ca_bundle=CA_BUNDLE)
        async with (
            Workspaces(place / "cache").local(_repository(place / "tree"), "HEAD") as workspace,
            sandboxes.open(f"benchmark-{os.getpid()}") as sandbox,
        ):
            await workspace.send(sandbox)
            reading = await _run(place / "reads.jsonl", reads, workspace, sandbox, max(STEPS))
            floors = [await _floor(reads, reading, sandbox, steps, "echo floor") for steps in STEPS]
            editing = await _run(place / "edits.jsonl", edits, workspace, sandbox, EDITS)
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
    log = FileLog(path)
    agent = Agent(
        model=LitellmModel("openai/m", base_url=base_url, api_key=SecretStr("key"), sees=False),
        tools=_tools(sandbox),
        limits=Limits(steps=steps + 1, usd=Decimal(1000)),
        checkpoint=lambda: workspace.take_patch(sandbox),
        mark=lambda: mark(sandbox),
        scratch=sandbox.scratch,
    )
    await begin(log, "You mend. " * 200, "The issue. " * 200, agent.tools)
    await agent.run(log)
    log.close()
    return log.trajectory


def _tools(sandbox: Sandbox) -> Tools:
    return Tools((*sandbox_tools(sandbox, ()), *talk_tools()))


def _steps(trajectory: Trajectory) -> list[float]:
    """Milliseconds from each reply to the next, without those of the command."""
    begun = None
    command = 0.0
    taken: list[float] = []
    for entry in trajectory.entries:
        match entry.event:
            case Observed(observation=Ran(seconds=seconds)):
                command = seconds
            case Decided():
                if begun is not None:
                    taken.append(((entry.at - begun).total_seconds() - command) * 1000)
                begun = entry.at
            case _:
                continue
    return taken


async def _floor(base_url: str, trajectory: Trajectory, sandbox: Sandbox, steps: int, command: str) -> float:
    places = [at for at, event in enumerate(trajectory) if isinstance(event, Decided)]
    sent = written(messages(Trajectory(trajectory.entries[: places[steps]])), reader="m", sees=False)
    body = {"model": "m", "messages": sent, "tools": [spec.as_openai() for spec in _tools(sandbox).specs]}
    taken: list[float] = []
    async with httpx.AsyncClient() as client:
        for number in range(NEAR):
            begun = time.perf_counter()
            (await client.post(f"{base_url}/chat/completions", json=body)).json()
            ran = await sandbox.act(RunShell(command=f"{command} {number}"))
            assert isinstance(ran, Ran)
            taken.append((time.perf_counter() - begun - ran.seconds) * 1000)
    return statistics.median(taken)


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
