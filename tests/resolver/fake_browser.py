"""A fake browser with a fixed sequence of pages, for the tests of the browsing agent."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.delegation.browse_tool import BrowseTool
from patchwright.resolver.domain import Patch, RunId
from patchwright.resolver.events import ModelReply, ReplyUsage, ToolResult
from patchwright.resolver.llm.model import Reply
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore, FileRunLog
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import SandboxAction, UseBrowser
from patchwright.runtime.observations import ActionFailure, Observation, PageSnapshot, Tab
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

BLANK = PageSnapshot(
    url="about:blank",
    title="",
    tree="RootWebArea '', focused",
    tabs=(Tab(url="about:blank", title="", active=True),),
)
FINISH = Finish(cause="a", change="b", testing="c")
BROWSE = Browse(task="Click the button on localhost:8000 and report what it reveals.")
RUN = RunId("job-7")


def page(
    tree: str, *, url: str = "http://localhost:8000/", title: str = "Shop", **more: object
) -> PageSnapshot:
    values = {"url": url, "title": title, "tree": tree, "tabs": (Tab(url=url, title=title, active=True),)}
    return PageSnapshot.model_validate({**values, **more})


def text_reply(text: str, *, usd: str = "0.01", truncated: bool = False) -> Reply:
    """A reply in the format of the browsing agent's model."""
    usage = ReplyUsage(model="m", prompt_tokens=100, completion_tokens=10, usd=Decimal(usd))
    return Reply(text=text, tool_calls=(), usage=usage, truncated=truncated)


def code_reply(code: str, thought: str = "Next.") -> Reply:
    return text_reply(f"{thought}\n```\n{code}\n```")


class FakeBrowserSandbox:
    """A sandbox whose browser shows the n-th page after the n-th action, and hangs after the last one."""

    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self, *pages: PageSnapshot | ActionFailure) -> None:
        self.pages = list(pages)
        self.used: list[UseBrowser] = []
        self.hangs = asyncio.Event()

    async def act(self, action: SandboxAction) -> Observation:
        assert isinstance(action, UseBrowser)
        self.used.append(action)
        if not self.pages:
            self.hangs.set()
            await asyncio.sleep(3600)
        return self.pages.pop(0)

    async def patch(self) -> Patch:
        return Patch(base_sha="b" * 40, diff=b"")


@asynccontextmanager
async def browsing_parent(
    directory: Path,
    box: FakeBrowserSandbox,
    script: Sequence[ScriptLine],
    limits: Limits | None = None,
    **more: object,
) -> AsyncIterator[tuple[FileRunLog, Agent, ScriptedModel]]:
    """Opens a new or resumed run that can browse in this sandbox, with its model."""
    logs = FileLogStore(directory)
    model = ScriptedModel(script, usd=Decimal("0.01"), sees=bool(more.pop("sees", False)))
    prompt = str(more.pop("prompt", "Issue 7"))
    async with logs.open(RUN) as log:
        browsing = BrowseTool(
            run=RUN,
            log=log,
            logs=logs,
            model=model,
            sandbox=box,
            limits=limits or Limits(),
            **more,  # type: ignore[arg-type]
        )
        agent = Agent(
            model,
            ToolRegistry((*browsing.tools(), *build_control_tools())),
            limits or Limits(),
            take_patch=box.patch,
            scratch=box.scratch,
            recover_result=browsing.recover,
        )
        await record_prompts(log, "You fix.", prompt, agent.tools)
        yield log, agent, model


async def run_browse_task(
    directory: Path,
    box: FakeBrowserSandbox,
    *script: ScriptLine,
    limits: Limits | None = None,
    browse: Browse = BROWSE,
    **more: object,
) -> tuple[SubagentResult | ActionFailure, ScriptedModel]:
    """Runs a browse task with scripted replies. Returns its result and the model with the prompts that it
    got.
    """
    async with browsing_parent(directory, box, [browse, *script, FINISH], limits, **more) as (
        log,
        agent,
        model,
    ):
        await agent.run(log)
        (reply, *_) = [event for event in log.trajectory if isinstance(event, ModelReply)]
        observed = {
            event.call_id: event.observation for event in log.trajectory if isinstance(event, ToolResult)
        }
        found = observed[reply.calls[0].id]
        assert isinstance(found, SubagentResult | ActionFailure)
        return found, model
