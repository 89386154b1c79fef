"""Runs an agent that delegates to investigators, with fake sandboxes and a script for each agent."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.delegation.delegate_tool import DelegateTool
from patchwright.resolver.delegation.micro_agents import build_micro_agent_tools
from patchwright.resolver.delegation.subagents import SubagentLauncher
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ModelReply, ToolResult
from patchwright.resolver.llm.model import ChatMessage, Reply, SystemMessage, ToolSpec, UserMessage
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore, FileRunLog, RunLog
from patchwright.resolver.skills.skills import RepoSkill
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.tool_actions.subagent_actions import Delegate
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import Tool, ToolRegistry
from patchwright.runtime.egress_policy import ConnectionSummary
from patchwright.runtime.observations import ActionFailure
from patchwright.runtime.sandbox import Sandbox
from tests.resolver.agent_runs import FakeSandbox
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

RUN = RunId("job-7")
FINISH = Finish(cause="a", change="b", testing="c")
CALLERS_TASK, GUARANTEES_TASK = "Find every caller of add().", "What does calc.py promise?"
DELEGATE = Delegate(tasks=(CALLERS_TASK, GUARANTEES_TASK))


class MultiAgentModel:
    """A model that serves several agents at once and recognizes them by their task."""

    name, supports_vision, context_window = "scripted", False, None

    def __init__(self, parent: Sequence[ScriptLine], others: Mapping[str, Sequence[ScriptLine]]) -> None:
        self.parent = ScriptedModel(parent, usd=Decimal("0.01"))
        self.others = {task: ScriptedModel(script, usd=Decimal("0.01")) for task, script in others.items()}

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        system, first = messages[0], messages[1]
        assert isinstance(system, SystemMessage) and isinstance(first, UserMessage)
        who = self.parent if system.text == "You fix." else self.others[first.text]
        return await who.reply(messages, tools)


class FakeSandboxes:
    """Fake sandboxes by name. `broken` gives the errors of those that do not open."""

    kind: Literal["local"] = "local"

    def __init__(self, broken: Mapping[str, Exception] | None = None) -> None:
        self._broken = broken or {}
        self.opened: dict[str, FakeSandbox] = {}
        self.together = asyncio.Barrier(2)
        """Waits until two sandboxes are in use at the same time."""
        self.left: list[str] = []

    @asynccontextmanager
    async def open(
        self, name: str, *, online: bool = False, adoptable: bool = False
    ) -> AsyncIterator[Sandbox]:
        assert not online and not adoptable
        if name in self._broken:
            raise self._broken[name]
        self.opened[name] = BarrierSandbox(self.together)
        try:
            yield self.opened[name]
        finally:
            self.left.append(name)

    def take_connections(self, name: str) -> tuple[ConnectionSummary, ...]:
        return ()


class BarrierSandbox(FakeSandbox):
    """A sandbox whose command `meet` waits for the other sandbox."""

    def __init__(self, together: asyncio.Barrier) -> None:
        super().__init__()
        self._together = together

    async def act(self, action: Any) -> Any:
        if getattr(action, "command", None) == "meet":
            await asyncio.wait_for(self._together.wait(), 10)
        return await super().act(action)


@asynccontextmanager
async def delegating_run(
    directory: Path,
    model: MultiAgentModel,
    boxes: FakeSandboxes | None = None,
    limits: Limits | None = None,
    tools: Sequence[Tool] = (),
    skills: Sequence[RepoSkill] = (),
    **more: Any,
) -> AsyncIterator[SimpleNamespace]:
    """Opens a new or resumed run that can delegate: its `log`, its `agent`, and the sandboxes that got a work
    tree.
    """
    logs, boxes, limits = FileLogStore(directory), boxes or FakeSandboxes(), limits or Limits()
    sent: list[Sandbox] = []

    async def send(box: Sandbox) -> None:
        sent.append(box)

    def equip(box: Sandbox, own: RunLog, share: Limits, reporting: Sequence[Tool]) -> Agent:
        assert isinstance(box, FakeSandbox)
        working = ToolRegistry((*build_sandbox_tools(box), *reporting))
        return Agent(model, working, share, take_patch=FakeSandbox().patch, scratch=box.scratch)

    async with logs.open(RUN) as log:
        investigating = DelegateTool(
            launcher=SubagentLauncher(run=RUN, log=log, logs=logs, limits=limits),
            model=model,
            sandboxes=boxes,  # type: ignore[arg-type]
            copy_worktree=send,
            build_investigator=equip,
            **more,
        )
        agent = Agent(
            model,
            ToolRegistry(
                (
                    *investigating.tools(),
                    *tools,
                    *build_micro_agent_tools(skills, investigating, ()),
                    *build_control_tools(),
                )
            ),
            limits,
            take_patch=FakeSandbox().patch,
            scratch="/tmp/scratch",
            recover_result=investigating.recover,
        )
        await record_prompts(log, "You fix.", "Issue 7", agent.tools)
        yield SimpleNamespace(log=log, agent=agent, sent=sent, investigating=investigating)


async def run_delegation(
    directory: Path,
    model: MultiAgentModel,
    boxes: FakeSandboxes | None = None,
    limits: Limits | None = None,
    **more: Any,
) -> SubagentResult | ActionFailure:
    """Runs the agent and returns the result of its first call."""
    async with delegating_run(directory, model, boxes, limits, **more) as run:
        await run.agent.run(run.log)
        return first_result(run.log)


def first_result(log: FileRunLog) -> SubagentResult | ActionFailure:
    """Returns the result of the first call in a log."""
    first = next(event for event in log.trajectory if isinstance(event, ModelReply))
    observed = {event.call_id: event.observation for event in log.trajectory if isinstance(event, ToolResult)}
    found = observed[first.calls[0].id]
    assert isinstance(found, SubagentResult | ActionFailure)
    return found
