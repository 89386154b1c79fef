"""Runs an agent in a fake sandbox, for the tests of the agent loop."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from decimal import Decimal

from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.domain import Patch
from patchwright.resolver.events import ReplyUsage, ToolResult, Trajectory
from patchwright.resolver.llm.model import Model, RawToolCall, Reply
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileRunLog
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import CreateFile, RunShell, SandboxAction, ViewFile
from patchwright.runtime.observations import ActionFailure, EditResult, Observation, ShellResult, TextResult
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

FINISH = Finish(cause="a", change="b", testing="c")


class FakeSandbox:
    """A sandbox whose work tree is a list of created files."""

    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self, tree: Sequence[str] = ()) -> None:
        self.tree = list(tree)
        self.acted: list[SandboxAction] = []
        self.before: Callable[[SandboxAction], None] = lambda action: None
        self.hangs = asyncio.Event()

    async def act(self, action: SandboxAction) -> Observation:
        self.acted.append(action)
        self.before(action)
        match action:
            case RunShell(command="hang"):
                self.hangs.set()
                await asyncio.sleep(3600)
            case RunShell(command=command):
                return ShellResult(output=command, exit_code=0, cwd=self.root, seconds=0.1)
            case CreateFile(path=path) if path in self.tree:
                return ActionFailure(reason="exists", message="It exists.")
            case CreateFile(path=path):
                self.tree.append(path)
                return EditResult(path=path, diff="+")
            case ViewFile(path=path):
                return TextResult(text=path)
        raise AssertionError(action)

    async def patch(self) -> Patch:
        return make_patch(*self.tree)


class UncancelableModel:
    """A model that swallows a cancellation and replies anyway, as Python 3.11's `wait_for` may."""

    name = "deaf"

    def __init__(self) -> None:
        self.request_started = asyncio.Event()

    async def reply(self, messages: object, tools: object) -> Reply:
        self.request_started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        call = RawToolCall(id="t0", name="think", arguments='{"thought": "On I go."}')
        return Reply(text="", tool_calls=(call,), usage=ReplyUsage(model="deaf"))


def make_patch(*tree: str) -> Patch:
    return Patch(base_sha="b" * 40, diff="\n".join(tree).encode())


def create_file(path: str) -> CreateFile:
    return CreateFile(path=path, content="")


def make_agent(model: Model, box: FakeSandbox, limits: Limits | None = None) -> Agent:
    tools = ToolRegistry((*build_sandbox_tools(box), *build_control_tools()))
    return Agent(model, tools, limits or Limits(), take_patch=box.patch, scratch=box.scratch)


async def run_agent(
    log: FileRunLog, *script: ScriptLine, box: FakeSandbox | None = None, limits: Limits | None = None
) -> ScriptedModel:
    """Runs an agent from start to stop. Returns the model with the prompts that it got."""
    model = ScriptedModel(script, usd=Decimal("0.01"))
    worker = make_agent(model, box or FakeSandbox(), limits)
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    await worker.run(log)
    return model


def event_kinds(log: FileRunLog) -> list[str]:
    return [event.kind for event in log.trajectory]


def count_lost_calls(trajectory: Trajectory) -> int:
    """Returns how many calls were answered as lost."""
    result = (event.observation for event in trajectory if isinstance(event, ToolResult))
    return sum(isinstance(one, ActionFailure) and one.reason == "lost" for one in result)
