"""A browser of paper: pages that follow one another, for the tests of the browsing agent."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

from resolver.actions import Browse, Finish, Reported
from resolver.agent import Agent, begin
from resolver.domain import Patch, RunId
from resolver.events import Decided, Observed, Usage
from resolver.llm.model import Reply
from resolver.log import FileLog, FileLogs
from resolver.rules import Limits
from resolver.tools.delegate import Browsing
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools
from runtime.actions import SandboxAction, UseBrowser
from runtime.observations import Failed, Observation, Page, Tab
from tests.resolver.scripted import Line, Scripted

BLANK = Page(
    url="about:blank",
    title="",
    tree="RootWebArea '', focused",
    tabs=(Tab(url="about:blank", title="", active=True),),
)
FINISH = Finish(cause="a", change="b", checked="c")
BROWSE = Browse(task="Click the button on localhost:8000 and report what it reveals.")
RUN = RunId("job-7")


def page(tree: str, *, url: str = "http://localhost:8000/", title: str = "Shop", **more: object) -> Page:
    values = {"url": url, "title": title, "tree": tree, "tabs": (Tab(url=url, title=title, active=True),)}
    return Page.model_validate({**values, **more})


def says(text: str, *, usd: str = "0.01", truncated: bool = False) -> Reply:
    """A reply as the browsing agent's model writes it."""
    usage = Usage(model="m", prompt_tokens=100, completion_tokens=10, usd=Decimal(usd))
    return Reply(text=text, calls=(), usage=usage, truncated=truncated)


def does(code: str, thought: str = "Next.") -> Reply:
    return says(f"{thought}\n```\n{code}\n```")


class Paper:
    """A sandbox whose browser shows the n-th page after the n-th use; it hangs when they have run out."""

    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self, *pages: Page | Failed) -> None:
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
        return Patch(base="b" * 40, diff=b"")


@asynccontextmanager
async def parent(
    directory: Path, box: Paper, script: Sequence[Line], limits: Limits | None = None, **more: object
) -> AsyncIterator[tuple[FileLog, Agent, Scripted]]:
    """A run that can browse in this sandbox, begun or to be continued, and its model."""
    logs = FileLogs(directory)
    model = Scripted(script, usd=Decimal("0.01"), sees=bool(more.pop("sees", False)))
    told = str(more.pop("told", "Issue 7"))
    async with logs.open(RUN) as log:
        browsing = Browsing(
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
            Tools((*browsing.tools(), *talk_tools())),
            limits or Limits(),
            checkpoint=box.patch,
            scratch=box.scratch,
            recover=browsing.recover,
        )
        await begin(log, "You mend.", told, agent.tools)
        yield log, agent, model


async def browsed(
    directory: Path,
    box: Paper,
    *script: Line,
    limits: Limits | None = None,
    browse: Browse = BROWSE,
    **more: object,
) -> tuple[Reported | Failed, Scripted]:
    """What comes of the task when the models say the script, and the model as it was asked."""
    async with parent(directory, box, [browse, *script, FINISH], limits, **more) as (log, agent, model):
        await agent.run(log)
        (reply, *_) = [event for event in log.trajectory if isinstance(event, Decided)]
        observed = {event.call: event.observation for event in log.trajectory if isinstance(event, Observed)}
        found = observed[reply.calls[0].id]
        assert isinstance(found, Reported | Failed)
        return found, model
