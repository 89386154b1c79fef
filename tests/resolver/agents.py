"""An agent at work on a sandbox of paper, for the tests of the loop."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from decimal import Decimal

from resolver.actions import Finish
from resolver.agent import Agent, begin
from resolver.domain import Patch
from resolver.events import Observed, Trajectory, Usage
from resolver.llm.model import Model, Reply, ToolCall
from resolver.log import FileLog
from resolver.rules import Limits
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools
from runtime.actions import CreateFile, RunShell, SandboxAction, ViewFile
from runtime.observations import Edited, Failed, Observation, Ran, Viewed
from tests.resolver.scripted import Line, Scripted

FINISH = Finish(cause="a", change="b", checked="c")


class Box:
    """A sandbox whose work tree is the list of files that were made in it."""

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
                return Ran(output=command, exit_code=0, cwd=self.root, seconds=0.1)
            case CreateFile(path=path) if path in self.tree:
                return Failed(reason="exists", message="It exists.")
            case CreateFile(path=path):
                self.tree.append(path)
                return Edited(path=path, diff="+")
            case ViewFile(path=path):
                return Viewed(text=path)
        raise AssertionError(action)

    async def patch(self) -> Patch:
        return patch(*self.tree)


class Deaf:
    """Answers all the same when it is told to stop, as Python 3.11's `wait_for` may."""

    name = "deaf"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def reply(self, messages: object, tools: object) -> Reply:
        self.asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        call = ToolCall(id="t0", name="think", arguments='{"thought": "On I go."}')
        return Reply(text="", calls=(call,), usage=Usage(model="deaf"))


def patch(*tree: str) -> Patch:
    return Patch(base="b" * 40, diff="\n".join(tree).encode())


def create(path: str) -> CreateFile:
    return CreateFile(path=path, content="")


def agent(model: Model, box: Box, limits: Limits | None = None) -> Agent:
    tools = Tools((*sandbox_tools(box), *talk_tools()))
    return Agent(model, tools, limits or Limits(), checkpoint=box.patch, scratch=box.scratch)


async def work(log: FileLog, *script: Line, box: Box | None = None, limits: Limits | None = None) -> Scripted:
    """A run from its beginning to its end; the model as it was asked."""
    model = Scripted(script, usd=Decimal("0.01"))
    worker = agent(model, box or Box(), limits)
    await begin(log, "You mend.", "Issue 7", worker.tools)
    await worker.run(log)
    return model


def kinds(log: FileLog) -> list[str]:
    return [event.kind for event in log.trajectory]


def lost_in(trajectory: Trajectory) -> int:
    """How many calls were answered as lost."""
    told = (event.observation for event in trajectory if isinstance(event, Observed))
    return sum(isinstance(one, Failed) and one.reason == "lost" for one in told)
