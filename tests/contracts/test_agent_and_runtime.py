"""An agent and the runtime meet only in the log: either can be replaced by a fake."""

import ast
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.resolver.agent.agent import Agent as AgentLoop
from patchwright.resolver.domain import Patch, RunId
from patchwright.resolver.events import AgentStopped, Message, ModelReply, ReplyUsage, ToolResult
from patchwright.resolver.llm.model import Model, RawToolCall, Reply
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore, RunLog
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import RunShell, SandboxAction
from patchwright.runtime.observations import Observation, ShellResult
from patchwright.runtime.sandbox import Sandbox
from patchwright.sdk.agent_loop import StepModel
from tests.contracts.conftest import CHECKOUT, loopback
from tests.contracts.version_reader import VersionReader
from tests.resolver.scripted_model import ScriptedModel


class FakeRuntime:
    """Answers every action without executing it."""

    root = "/workspace"
    scratch = "/tmp/scratch"

    async def act(self, action: SandboxAction) -> Observation:
        assert isinstance(action, RunShell) and action.command == "cat VERSION"
        return ShellResult(output="7.1\n", exit_code=0, cwd=self.root, seconds=0.1)


def fake_agent(log: RunLog) -> Model:
    call = RawToolCall(id="step-1-1", name="run_shell", arguments='{"command": "cat VERSION"}')
    usage = ReplyUsage(model="fake", usd=Decimal(0))
    answer = Reply(text="The file says: 7.1", tool_calls=(), usage=usage)
    return ScriptedModel([Reply(text="", tool_calls=(call,), usage=usage), answer])


@asynccontextmanager
async def real_runtime(place: Path) -> AsyncIterator[Sandbox]:
    """The container's server, in a directory that contains no other code than the runtime's."""
    code = place / "code" / "patchwright"
    code.mkdir(parents=True)
    for name in ("__init__.py", "runtime"):
        (code / name).symlink_to((CHECKOUT / "patchwright" / name).resolve())
    async with loopback(place, code.parent) as sandbox:
        (Path(sandbox.root) / "VERSION").write_text("7.1\n")
        yield sandbox


@asynccontextmanager
async def fake_runtime(place: Path) -> AsyncIterator[Sandbox]:
    yield FakeRuntime()


@pytest.mark.parametrize("runtime", [real_runtime, fake_runtime], ids=["runtime", "fake runtime"])
@pytest.mark.parametrize(
    "agent", [lambda log: StepModel(VersionReader(), log), fake_agent], ids=["agent", "fake agent"]
)
async def test_an_agent_and_a_runtime_complete_a_round_trip_through_the_log(
    agent: Callable[[RunLog], Model],
    runtime: Callable[[Path], AbstractAsyncContextManager[Sandbox]],
    short_tmp: Path,
) -> None:
    async def take_patch() -> Patch:
        return Patch(base_sha="", diff=b"")

    async with runtime(short_tmp) as sandbox, FileLogStore(short_tmp).open(RunId("run")) as log:
        await log.append(Message(text="Which version is this?", source="initial_prompt"))
        tools = ToolRegistry(build_sandbox_tools(sandbox))
        loop = AgentLoop(
            agent(log), tools, Limits(), take_patch, scratch=sandbox.scratch, text_ends_turn=True
        )
        await loop.run(log)
        events = [event for event in log.trajectory if event.kind != "checkpoint"]
    _, decided, observed, answered, stopped = events
    assert isinstance(decided, ModelReply) and isinstance(observed, ToolResult)
    (call,) = decided.calls
    assert call.action == RunShell(command="cat VERSION") and observed.call_id == call.id
    assert isinstance(observed.observation, ShellResult) and observed.observation.output == "7.1\n"
    assert isinstance(answered, ModelReply) and answered.thought == "The file says: 7.1"
    assert isinstance(stopped, AgentStopped) and stopped.reason == "finished"


def test_the_agent_imports_neither_the_runtime_nor_the_resolver() -> None:
    tree = ast.parse(Path(__file__).with_name("version_reader.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"patchwright"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
