"""The agent of one run, put together: its sandbox behind wrappers, its tools behind guards, its limits and models."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from resolver import rules
from resolver.actions import Browse, Reported
from resolver.agent import Agent
from resolver.circumstances import Connected
from resolver.condenser import InTurn, Masking, Room, Summarizing, room_in
from resolver.domain import Job, Patch, PullRequest
from resolver.events import Call, Consulted, Told, Trajectory, Usage
from resolver.git.tree import mark
from resolver.kit import Kit
from resolver.log import Log
from resolver.preparing.skills import Skills
from resolver.request.planning import is_of_a_plan, task
from resolver.rules import Limits
from resolver.sandbox.bench import Bench
from resolver.sandbox.in_time import InTime, left
from resolver.sandbox.lending import Lending
from resolver.sandbox.senses import Seeing, Senses
from resolver.secrets import Masked
from resolver.security.risk import Analyzer, RefuseFrom, Rules
from resolver.security.risk_parts import brought_analyzer, brought_policy
from resolver.settings.settings import Settings
from resolver.tools.delegate import Browsing
from resolver.tools.guarded import Guarded, SelfRating
from resolver.tools.handover import Handover
from resolver.tools.investigate import NO_TOOLS, Investigating, report_tools
from resolver.tools.masked import Masked as MaskedTool
from resolver.tools.mcp import mcp_tools
from resolver.tools.mcp_way import Outside
from resolver.tools.micro_agents import micro_agents
from resolver.tools.own import own_tools
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.search import search_tools
from resolver.tools.skills import skill_tools
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tool, Tools
from resolver.tools.until_go import until_go
from resolver.workspace import Workspace
from runtime.plugins import Plugin
from runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outfit:
    """An agent at its bench."""

    agent: Agent
    sandbox: Masked
    secrets: tuple[str, ...]
    """Names of the repository's secrets that its commands may use."""


@asynccontextmanager
async def outfit(
    job: Job,
    workspace: Workspace,
    log: Log,
    kit: Kit,
    bench: Bench,
    *,
    sandboxes: Sandboxes,
    skills: Skills,
    readable: bool,
    gate: Callable[[Trajectory], tuple[str, ...]],
    news: Callable[[], Awaitable[tuple[Told, ...]]],
) -> AsyncIterator[Outfit]:
    """The agent of a run, as long as the context lasts. `readable`: it may read the skills."""
    now, started = task(log.trajectory), log.trajectory.started
    reviewed = started is not None and isinstance(started.thread, PullRequest)
    lent, allowed, plugins = kit.lent(job.repo), limits(kit.settings), sandboxes.plugins
    seeing = Seeing(Lending(bench.sandbox, lent, kit.secrets), senses(kit, log, allowed))
    in_time = InTime(seeing, lambda: left(log.trajectory, kit.settings.timeout))
    sandbox = Masked(in_time, kit.secrets, unfinished=bench.adopted)
    if not bench.adopted:
        await workspace.send(sandbox, log.trajectory.checkpoint())
    browsing = Browsing(
        run=job.id,
        log=log,
        logs=kit.logs,
        model=kit.models.browse,
        sandbox=sandbox,
        limits=allowed,
        steps=kit.settings.browse_steps,
        searchable=kit.settings.search_api_key is not None,
    )
    investigating = Investigating(
        handover=Handover(run=job.id, log=log, logs=kit.logs, limits=allowed),
        model=kit.model,
        sandboxes=sandboxes,
        send=lambda box: workspace.send(box, log.trajectory.checkpoint()),
        equip=lambda box, own, share, reporting: investigator(
            kit, plugins, box, own, share, reporting, workspace.base
        ),
        steps=kit.settings.delegate_steps,
    )

    async def recover(call: Call) -> Reported | None:
        by = browsing if isinstance(call.action, Browse) else investigating
        return await by.recover(call)

    def left_out(line: str) -> None:
        logger.warning("MCP server left out", extra={"job": job.id, "error": line})

    outside = Outside.of(kit.settings)
    async with (
        accounted(outside, log),
        mcp_tools(kit.settings.mcp_servers, sandbox, left_out, outside) as foreign,
    ):
        brought = [MaskedTool(tool, kit.secrets) for tool in (*own_tools(sandbox), *foreign)]
        acting = guarded(
            (*sandbox_tools(sandbox, plugins), *brought, *search_tools(kit.settings, log, kit.secrets)),
            kit.settings,
            Rules(sandbox.root, sandbox.scratch),
        )
        if now == "explain":
            acting = tuple(tool for tool in acting if tool.kind not in NO_TOOLS)
        ours = (
            *acting,
            *(browsing.tools() if "browser" in plugins else ()),
            *(investigating.tools() if kit.settings.delegate_steps else ()),
            *(skill_tools(skills) if readable else ()),
            *(report_tools() if now == "explain" else talk_tools(reviewed=reviewed)),
        )
        if is_of_a_plan(log.trajectory):
            ours = until_go(ours, planning=now == "plan")
        asked = skills.agents if kit.settings.delegate_steps else ()
        agent = Agent(
            model=kit.model,
            tools=Tools(
                (*ours, *micro_agents(asked, investigating, [tool.spec.name for tool in ours])),
            ),
            limits=allowed,
            checkpoint=partial(workspace.take_patch, sandbox)
            if now == "work"
            else nothing_kept(workspace.base),
            mark=lambda: mark(sandbox),
            scratch=sandbox.scratch,
            adopted=bench.adopted,
            lost=bench.lost,
            room=room(kit),
            recover=recover,
            plan_every=kit.settings.plan_every if now == "work" else 0,
            news=news,
            end="propose" if now == "plan" else None,
            gate=gate,
        )
        yield Outfit(agent, sandbox, tuple(lent))


@asynccontextmanager
async def accounted(outside: Outside, log: Log) -> AsyncIterator[None]:
    """Keep what the host did by the network for the agent, however that ends."""
    try:
        yield
    finally:
        if visits := outside.visits():
            await log.append(Connected(visits=visits, by="host"))


def investigator(
    kit: Kit,
    plugins: Sequence[Plugin],
    box: Sandbox,
    log: Log,
    share: Limits,
    reporting: Sequence[Tool],
    base: str,
) -> Agent:
    """An agent that looks around in a sandbox of its own, and reports; no secret is lent to it."""
    sandbox = Masked(Seeing(box, senses(kit, log, share)), kit.secrets)
    looking = [tool for tool in sandbox_tools(sandbox, plugins) if tool.kind not in NO_TOOLS]

    return Agent(
        model=kit.model,
        tools=Tools(
            (
                *guarded(looking, kit.settings, Rules(sandbox.root, sandbox.scratch)),
                *reporting,
            )
        ),
        limits=share,
        checkpoint=nothing_kept(base),
        scratch=sandbox.scratch,
        room=room(kit),
    )


def nothing_kept(base: str) -> Callable[[], Awaitable[Patch]]:
    """The work tree of an agent that is to change nothing: whatever it did there goes nowhere."""

    async def untouched() -> Patch:
        return Patch(base=base, diff=b"")

    return untouched


def guarded(tools: Sequence[Tool], settings: Settings, analyzer: Analyzer) -> tuple[Tool, ...]:
    """The tools, behind the operator's policy."""
    if settings.risk_policy is not None:
        policy = brought_policy(settings.risk_policy)
    elif settings.refuse_risk == "never":
        return tuple(tools)
    else:
        policy = RefuseFrom(threshold=settings.refuse_risk)
    analyzers = (analyzer, *map(brought_analyzer, settings.risk_analyzers))
    if not settings.model_rates_risk:
        return tuple(Guarded(tool, analyzers, policy) for tool in tools)
    own = SelfRating()
    return tuple(Guarded(own.asking(tool), (*analyzers, own), policy) for tool in tools)


def limits(settings: Settings) -> Limits:
    """What one run may use."""
    return Limits(
        steps=settings.max_steps,
        seconds=settings.timeout,
        usd=settings.max_usd,
        tokens=settings.max_tokens,
    )


def senses(kit: Kit, log: Log, allowed: Limits) -> Senses:
    """Who looks and listens for the agent, within the run's limits."""

    async def consulted(usage: Usage) -> None:
        await log.append(Consulted(purpose="senses", usage=usage))

    return Senses(
        model=kit.models.senses,
        hearing=kit.hearing,
        models=kit.settings.model_hears,
        consulted=consulted,
        over=lambda: rules.ending(log.trajectory, allowed),
    )


def room(kit: Kit) -> Room:
    """How long a conversation may get: first old results give way, then a summary stands for what is old."""
    condenser = InTurn((Masking(), Summarizing(kit.models.condense)))
    return Room(condenser, kit.settings.context_tokens or room_in(kit.model))
