"""A run that can ask investigators: their sandboxes are of paper, and each has a script of its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from resolver.actions import Delegate, Finish, Reported
from resolver.agent import Agent, begin
from resolver.domain import RunId
from resolver.events import Decided, Observed
from resolver.llm.model import FromUser, Message, Reply, System, ToolSpec
from resolver.log import FileLog, FileLogs, Log
from resolver.preparing.skills import Skill
from resolver.rules import Limits
from resolver.tools.handover import Handover
from resolver.tools.investigate import Investigating
from resolver.tools.micro_agents import micro_agents
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tool, Tools
from runtime.egress.egress import Visit
from runtime.observations import Failed
from runtime.sandbox import Sandbox
from tests.resolver.agents import Box
from tests.resolver.scripted import Line, Scripted

RUN = RunId("job-7")
FINISH = Finish(cause="a", change="b", checked="c")
CALLERS, PROMISES = "Find every caller of add().", "What does calc.py promise?"
ASK = Delegate(tasks=(CALLERS, PROMISES))


class Minds:
    """One model that talks with several agents at once: it knows them by their question."""

    name, sees, window = "scripted", False, None

    def __init__(self, parent: Sequence[Line], others: Mapping[str, Sequence[Line]]) -> None:
        self.parent = Scripted(parent, usd=Decimal("0.01"))
        self.others = {task: Scripted(script, usd=Decimal("0.01")) for task, script in others.items()}

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        system, first = messages[0], messages[1]
        assert isinstance(system, System) and isinstance(first, FromUser)
        who = self.parent if system.text == "You mend." else self.others[first.text]
        return await who.reply(messages, tools)


class Boxes:
    """Sandboxes of paper, each opened by its name, or not: `broken` says why."""

    kind: Literal["local"] = "local"

    def __init__(self, broken: Mapping[str, Exception] | None = None) -> None:
        self._broken = broken or {}
        self.opened: dict[str, Box] = {}
        self.together = asyncio.Barrier(2)
        """Who meets here is not alone."""
        self.left: list[str] = []

    @asynccontextmanager
    async def open(self, name: str, *, online: bool = False, kept: bool = False) -> AsyncIterator[Sandbox]:
        assert not online and not kept
        if name in self._broken:
            raise self._broken[name]
        self.opened[name] = Meeting(self.together)
        try:
            yield self.opened[name]
        finally:
            self.left.append(name)

    def visits(self, name: str) -> tuple[Visit, ...]:
        return ()


class Meeting(Box):
    """`meet` is answered when the other one has come too."""

    def __init__(self, together: asyncio.Barrier) -> None:
        super().__init__()
        self._together = together

    async def act(self, action: Any) -> Any:
        if getattr(action, "command", None) == "meet":
            await asyncio.wait_for(self._together.wait(), 10)
        return await super().act(action)


@asynccontextmanager
async def asking(
    directory: Path,
    minds: Minds,
    boxes: Boxes | None = None,
    limits: Limits | None = None,
    tools: Sequence[Tool] = (),
    skills: Sequence[Skill] = (),
    **more: Any,
) -> AsyncIterator[SimpleNamespace]:
    """A run that can ask investigators, begun or to be continued: its `log`, its `agent`, what was `sent`."""
    logs, boxes, limits = FileLogs(directory), boxes or Boxes(), limits or Limits()
    sent: list[Sandbox] = []

    async def send(box: Sandbox) -> None:
        sent.append(box)

    def equip(box: Sandbox, own: Log, share: Limits, reporting: Sequence[Tool]) -> Agent:
        assert isinstance(box, Box)
        working = Tools((*sandbox_tools(box), *reporting))
        return Agent(minds, working, share, checkpoint=Box().patch, scratch=box.scratch)

    async with logs.open(RUN) as log:
        investigating = Investigating(
            handover=Handover(run=RUN, log=log, logs=logs, limits=limits),
            model=minds,
            sandboxes=boxes,  # type: ignore[arg-type]
            send=send,
            equip=equip,
            **more,
        )
        agent = Agent(
            minds,
            Tools((*investigating.tools(), *tools, *micro_agents(skills, investigating, ()), *talk_tools())),
            limits,
            checkpoint=Box().patch,
            scratch="/tmp/scratch",
            recover=investigating.recover,
        )
        await begin(log, "You mend.", "Issue 7", agent.tools)
        yield SimpleNamespace(log=log, agent=agent, sent=sent, investigating=investigating)


async def asked(
    directory: Path, minds: Minds, boxes: Boxes | None = None, limits: Limits | None = None, **more: Any
) -> Reported | Failed:
    """What comes of the run's first call."""
    async with asking(directory, minds, boxes, limits, **more) as run:
        await run.agent.run(run.log)
        return came(run.log)


def came(log: FileLog) -> Reported | Failed:
    """What came of the first call in a log."""
    first = next(event for event in log.trajectory if isinstance(event, Decided))
    observed = {event.call: event.observation for event in log.trajectory if isinstance(event, Observed)}
    found = observed[first.calls[0].id]
    assert isinstance(found, Reported | Failed)
    return found
