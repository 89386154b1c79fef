"""Builds the agent of a run: its sandbox with all wrappers, its tools with the risk policy, its limits and
its models.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from patchwright.resolver import run_limits
from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.agent.agent import Agent
from patchwright.resolver.agent.condenser import (
    DEFAULT_CONTEXT_POLICY,
    ContextPolicy,
    MaskingCondenser,
    PipelineCondenser,
    SummarizingCondenser,
)
from patchwright.resolver.browsing.browser_options import build_browser_tools, options_from_settings
from patchwright.resolver.confirmation import DECISION_TIMEOUT, ConfirmationRequest
from patchwright.resolver.delegation.browse_tool import BrowseTool
from patchwright.resolver.delegation.delegate_tool import DelegateTool, SharedWorktree, build_report_tools
from patchwright.resolver.delegation.micro_agents import build_micro_agent_tools
from patchwright.resolver.delegation.subagents import SubagentLauncher
from patchwright.resolver.domain import Job, Patch, PullRequest
from patchwright.resolver.errors import ChangeTooLarge, UnknownName
from patchwright.resolver.events import (
    AuxiliaryModelCall,
    Message,
    ReplyUsage,
    SystemPrompt,
    ToolCall,
    Trajectory,
)
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.git.worktree_patch import WorktreePatch
from patchwright.resolver.llm.masking_model import MaskingModel
from patchwright.resolver.llm.model import Model
from patchwright.resolver.llm.token_estimate import max_context_tokens
from patchwright.resolver.pipeline.call_decisions import apply_policy
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_events import NetworkAccess
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.run_task import began_with_plan, get_task
from patchwright.resolver.sandbox.deadline import DeadlineSandbox, get_remaining_seconds
from patchwright.resolver.sandbox.multimodal import MultimodalModels, MultimodalSandbox
from patchwright.resolver.sandbox.secret_injection import SecretInjectingSandbox
from patchwright.resolver.sandbox.secret_sources import SecretSource
from patchwright.resolver.sandbox.session import SandboxSession
from patchwright.resolver.sandbox.worktree_reset import restore_worktree
from patchwright.resolver.secrets import MaskingSandbox
from patchwright.resolver.security.patch_policy import build_patch_limits, filter_patch
from patchwright.resolver.security.risk import RuleAnalyzer
from patchwright.resolver.settings.run_settings import CODEACT, McpServer
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.skills.other_skills import find_micro_agent
from patchwright.resolver.skills.skills import RepoSkill, RepoSkills
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.entry_point_tools import load_entry_point_tools
from patchwright.resolver.tools.mcp import connect_mcp_tools
from patchwright.resolver.tools.mcp_transport import McpConnector
from patchwright.resolver.tools.plan_mode import apply_plan_mode
from patchwright.resolver.tools.policy_tools import Confirmations
from patchwright.resolver.tools.read_skill_tool import build_skill_tools
from patchwright.resolver.tools.sandbox_tools import EDIT_TOOLS, build_sandbox_tools
from patchwright.resolver.tools.search_web_tool import build_search_tools
from patchwright.resolver.tools.tool import MaskingTool, Tool, ToolRegistry
from patchwright.resolver.tools.tool_choice import RunFacts, choose_tools, read_offered_tools
from patchwright.runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentSetup:
    """An agent with its sandbox."""

    agent: Agent
    sandbox: MaskingSandbox
    secret_names: tuple[str, ...]
    """Names of the repository's secrets that the agent's commands may use."""
    micro_agent: RepoSkill | None = None
    """The micro agent as which the agent works; None if nobody chose one."""


@dataclass(frozen=True)
class AgentBuilder:
    """Builds the agent of a run, with its sandbox and its tools."""

    job: Job
    workspace: Workspace
    log: RunLog
    deps: RunDependencies
    session: SandboxSession
    sandboxes: Sandboxes
    skills: RepoSkills
    can_read_skills: bool
    """True if the agent gets a tool that returns the skills that its first message omits."""
    installed_tools: tuple[str, ...] = ()
    """Names of the tools of installed packages that the agent gets."""
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)

    @asynccontextmanager
    async def build(
        self,
        finish_checks: Callable[[Trajectory], tuple[str, ...]],
        get_new_messages: Callable[[], Awaitable[tuple[Message, ...]]],
    ) -> AsyncIterator[AgentSetup]:
        """Builds the agent. It can be used until the context exits."""
        secrets = self.deps.get_repo_secrets(self.job.repo)
        sandbox = await self._open_sandbox(secrets)
        browse_tool, delegate_tool = self._make_browse_tool(sandbox), self._make_delegate_tool(sandbox)

        async def recover(call: ToolCall) -> SubagentResult | None:
            tool = browse_tool if isinstance(call.action, Browse) else delegate_tool
            return await tool.recover(call)

        async with self._connect_external_tools(sandbox) as external_tools:
            tools = await self._choose_tools(
                self._build_tools(sandbox, external_tools, browse_tool, delegate_tool)
            )
            task = get_task(self.log.trajectory)
            can_change = task == "work"
            installed, micro_agent = self._find_chosen_agent()
            worktree_patch = WorktreePatch(self.workspace, sandbox)
            agent = Agent(
                model=installed or self.deps.model,
                tools=tools,
                limits=self._limits,
                take_patch=worktree_patch.take if can_change else no_changes(self.workspace.base),
                fingerprint_tree=worktree_patch.read_fingerprint,
                scratch=sandbox.scratch,
                is_same_sandbox=self.session.is_adopted,
                sandbox_loss_reason=self.session.loss_reason,
                context_policy=DEFAULT_CONTEXT_POLICY if installed else build_context_policy(self.deps),
                recover_result=recover,
                planning_interval=run_limits.PLANNING_INTERVAL if can_change and not installed else 0,
                get_new_messages=get_new_messages,
                final_tool="propose_plan" if task == "plan" else None,
                # The reminders are for models: a program does not change its mind.
                finish_checks=(lambda trajectory: ()) if installed else finish_checks,
                ask_person=self._ask_person,
            )
            yield AgentSetup(agent, sandbox, tuple(secrets), micro_agent)

    def _find_chosen_agent(self) -> tuple[Model | None, RepoSkill | None]:
        """Returns the installed agent that drives this run in place of a language model, or the micro agent as which
        the model works, if one of them was chosen.
        """
        started = self.log.trajectory.run_started
        assert started is not None
        if build := self.deps.agents.get(started.agent):
            return MaskingModel(build(self.log), self.deps.secrets), None
        micro_agent = find_micro_agent(self.skills, started.agent)
        if micro_agent is None and started.agent != CODEACT:
            raise UnknownName(f"the agent `{started.agent}` of this run is no longer installed.")
        return None, micro_agent

    @property
    def _limits(self) -> Limits:
        return limits_from_settings(self.deps.settings)

    async def _open_sandbox(self, secrets: Mapping[str, SecretSource]) -> MaskingSandbox:
        """Returns the sandbox with all its wrappers. Sends the work tree, unless the sandbox already has it."""
        injecting = SecretInjectingSandbox(self.session.sandbox, secrets, self.deps.secrets)
        multimodal = MultimodalSandbox(injecting, build_multimodal(self.deps, self.log, self._limits))
        with_deadline = DeadlineSandbox(
            multimodal, lambda: get_remaining_seconds(self.log.trajectory, self.deps.settings.timeout)
        )
        is_adopted = self.session.is_adopted
        sandbox = MaskingSandbox(with_deadline, self.deps.secrets, has_running_command=is_adopted)
        if not is_adopted:
            await self.workspace.send_to(sandbox, self.log.trajectory.last_checkpoint())
        return sandbox

    def _make_browse_tool(self, sandbox: MaskingSandbox) -> BrowseTool:
        return BrowseTool(
            run=self.job.id,
            log=self.log,
            logs=self.deps.logs,
            model=self.deps.models.browse,
            sandbox=sandbox,
            limits=self._limits,
            can_search=self.deps.settings.search_api_key is not None,
            options=options_from_settings(self.deps.settings),
        )

    def _make_delegate_tool(self, sandbox: MaskingSandbox) -> DelegateTool:
        workspace, log, deps = self.workspace, self.log, self.deps
        return DelegateTool(
            launcher=SubagentLauncher(run=self.job.id, log=log, logs=deps.logs, limits=self._limits),
            model=deps.model,
            sandboxes=self.sandboxes,
            copy_worktree=lambda target: workspace.send_to(target, log.trajectory.last_checkpoint()),
            build_investigator=self._build_subagent,
            max_steps=deps.settings.max_subagent_steps,
            worktree=self._share_worktree(sandbox) if get_task(log.trajectory) == "work" else None,
        )

    def _share_worktree(self, sandbox: MaskingSandbox) -> SharedWorktree:
        workspace, log, deps = self.workspace, self.log, self.deps
        limits = build_patch_limits(deps.settings)

        def get_saved_patch() -> Patch:
            return log.trajectory.last_checkpoint() or Patch(base_sha=workspace.base, diff=b"")

        async def find_problem() -> str:
            try:
                patch = await workspace.take_patch(sandbox)
            except ChangeTooLarge as exc:
                return str(exc)
            earlier = await filter_patch(workspace, get_saved_patch(), limits)
            filtered = await filter_patch(workspace, patch, limits)
            return " ".join(sentence for sentence in filtered.removed if sentence not in earlier.removed)

        return SharedWorktree(
            sandbox=sandbox,
            build_editor=partial(self._build_subagent, can_edit=True),
            find_problem=find_problem,
            undo=lambda: restore_worktree(sandbox, workspace, get_saved_patch()),
        )

    def _build_subagent(
        self,
        raw_sandbox: Sandbox,
        log: RunLog,
        limits: Limits,
        report_tools: Sequence[Tool],
        *,
        can_edit: bool = False,
    ) -> Agent:
        """Builds a subagent that works in this sandbox and reports with these tools. The subagent gets no secrets.
        Without `can_edit`, it can still change files with its shell, but its sandbox is discarded.
        """
        deps = self.deps
        sandbox = MaskingSandbox(
            MultimodalSandbox(raw_sandbox, build_multimodal(deps, log, limits)), deps.secrets
        )
        tools = build_sandbox_tools(sandbox, self.sandboxes.features)
        if not can_edit:
            tools = tuple(tool for tool in tools if tool.kind not in EDIT_TOOLS)
        analyzer = RuleAnalyzer(sandbox.root, sandbox.scratch)
        return Agent(
            model=deps.model,
            tools=ToolRegistry((*apply_policy(tools, deps.settings, analyzer), *report_tools)),
            limits=limits,
            take_patch=no_changes(self.workspace.base),
            scratch=sandbox.scratch,
            context_policy=build_context_policy(deps),
        )

    @asynccontextmanager
    async def _connect_external_tools(self, sandbox: MaskingSandbox) -> AsyncIterator[list[Tool]]:
        """Connects the MCP servers and loads the operator's own tools. Their results are masked."""

        def log_skipped_server(line: str) -> None:
            logger.warning("MCP server skipped", extra={"job": self.job.id, "error": line})

        connector = McpConnector.from_settings(self.deps.settings)
        async with (
            record_host_visits(connector, self.log),
            connect_mcp_tools(self.mcp_servers, sandbox, log_skipped_server, connector) as mcp_tools,
        ):
            yield [
                MaskingTool(tool, self.deps.secrets)
                for tool in (*load_entry_point_tools(self.installed_tools, sandbox), *mcp_tools)
            ]

    def _build_tools(
        self,
        sandbox: MaskingSandbox,
        external_tools: Sequence[Tool],
        browse_tool: BrowseTool,
        delegate_tool: DelegateTool,
    ) -> tuple[Tool, ...]:
        settings, features, trajectory = self.deps.settings, self.sandboxes.features, self.log.trajectory
        task, started = get_task(trajectory), trajectory.run_started
        is_pull_request = started is not None and isinstance(started.thread, PullRequest)
        search_tools = build_search_tools(settings, self.log, self.deps.secrets)
        action_tools = apply_policy(
            (
                *build_sandbox_tools(sandbox, features),
                *build_browser_tools(settings, features, self.deps.model, sandbox),
                *external_tools,
                *search_tools,
            ),
            settings,
            RuleAnalyzer(sandbox.root, sandbox.scratch),
            self._find_confirmations(),
        )
        control_tools = build_control_tools(has_review_threads=is_pull_request)
        if task == "explain":
            action_tools = tuple(tool for tool in action_tools if tool.kind not in EDIT_TOOLS)
            control_tools = build_report_tools()
        tools = (
            *action_tools,
            *(browse_tool.tools() if "browser" in features else ()),
            *(delegate_tool.tools() if settings.max_subagent_steps else ()),
            *(build_skill_tools(self.skills) if self.can_read_skills else ()),
            *control_tools,
        )
        if began_with_plan(trajectory):
            tools = apply_plan_mode(tools, planning=task == "plan")
        micro_agents = self.skills.agents if settings.max_subagent_steps else ()
        if task == "explain":
            micro_agents = tuple(agent for agent in micro_agents if not agent.edits)
        names = [tool.spec.name for tool in tools]
        micro_agent_tools = build_micro_agent_tools(
            micro_agents, delegate_tool, names, is_planning=task == "plan"
        )
        return (*tools, *micro_agent_tools)

    def _find_confirmations(self) -> Confirmations | None:
        """Returns what people decided about the run's calls; None if nobody can be asked. A later workflow run cannot
        continue this one.
        """
        if not self.deps.can_ask or self.deps.settings.workflow_url is not None:
            return None
        return Confirmations(self.log, DECISION_TIMEOUT)

    async def _ask_person(self, request: ConfirmationRequest) -> Message | None:
        return await self.deps.ask_person(request, self.job) if self.deps.ask_person else None

    async def _choose_tools(self, tools: Sequence[Tool]) -> ToolRegistry:
        """Returns the tools, of which each request offers those that the run probably needs. A resumed run offers the
        same tools as before.
        """
        trajectory = self.log.trajectory
        for event in trajectory:
            if isinstance(event, SystemPrompt):
                return ToolRegistry(tools, read_offered_tools(event.tools))
        assert trajectory.run_started is not None
        files = await self.workspace.list_files()
        facts = RunFacts.collect(trajectory.run_started.thread, self.job.request.text, files)
        return ToolRegistry(tools, choose_tools(tools, facts))


@asynccontextmanager
async def record_host_visits(mcp_transport: McpConnector, log: RunLog) -> AsyncIterator[None]:
    """Logs the connections that the host made for the agent. Logs them when the context exits, even after an
    error.
    """
    try:
        yield
    finally:
        if visits := mcp_transport.get_connections():
            await log.append(NetworkAccess(visits=visits, origin="host"))


def no_changes(base_sha: str) -> Callable[[], Awaitable[Patch]]:
    """Returns a function that always returns an empty patch. An agent whose changes are discarded uses it as
    `take_patch`.
    """

    async def take_empty_patch() -> Patch:
        return Patch(base_sha=base_sha, diff=b"")

    return take_empty_patch


def limits_from_settings(settings: Settings) -> Limits:
    """Returns the limits of one run."""
    return Limits(
        steps=settings.max_steps,
        seconds=settings.timeout,
        usd=settings.max_usd,
        tokens=settings.max_tokens,
    )


def build_multimodal(deps: RunDependencies, log: RunLog, limits: Limits) -> MultimodalModels:
    """Returns the models that process images, audio and video for the agent. Their usage counts toward the
    run's limits.
    """

    async def record_usage(usage: ReplyUsage) -> None:
        await log.append(AuxiliaryModelCall(purpose="vision", usage=usage))

    return MultimodalModels(
        model=deps.models.vision,
        transcriber=deps.transcription,
        transcription_models=deps.settings.transcription_models,
        record_usage=record_usage,
        check_limits=lambda: run_limits.check_limits(log.trajectory, limits),
        agent_sees=deps.model.supports_vision,
    )


def build_context_policy(deps: RunDependencies) -> ContextPolicy:
    """Returns a policy that first masks old tool results, and then replaces old replies with a summary."""
    condenser = PipelineCondenser((MaskingCondenser(), SummarizingCondenser(deps.models.condense)))
    return ContextPolicy(condenser, deps.settings.max_context_tokens or max_context_tokens(deps.model))
