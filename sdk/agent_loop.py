"""Builds the loop of an agent in a workspace from the same parts as the loop that resolves issues."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from inspect import isawaitable, isgeneratorfunction
from itertools import count
from typing import TYPE_CHECKING, cast

from patchwright.resolver.agent.agent import Agent as AgentLoop
from patchwright.resolver.agent.condenser import (
    ContextPolicy,
    MaskingCondenser,
    PipelineCondenser,
    SummarizingCondenser,
)
from patchwright.resolver.delegation.browse_tool import BrowseTool
from patchwright.resolver.domain import Patch, RunId
from patchwright.resolver.errors import ModelError, SettingsError
from patchwright.resolver.events import Message, ReplyUsage, Trajectory
from patchwright.resolver.git.worktree_patch import fingerprint_tree
from patchwright.resolver.llm.masking_model import MaskingModel
from patchwright.resolver.llm.model import ChatMessage, Model, RawToolCall, Reply, ToolSpec
from patchwright.resolver.llm.token_estimate import MAX_CONTEXT_TOKENS, max_context_tokens
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.resolver.secrets import MaskingSandbox, Secrets
from patchwright.resolver.security.risk import (
    Risk,
    RiskDecision,
    RiskPolicy,
    RiskRating,
    RuleAnalyzer,
    ThresholdPolicy,
)
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.entry_point_tools import FunctionTool
from patchwright.resolver.tools.policy_tools import Confirmations, PolicyTool
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ActionTool, MaskingTool, Tool, ToolRegistry
from patchwright.runtime.observations import Acknowledgment
from patchwright.sdk.agents import (
    Agent,
    AgentState,
    BaseAgent,
    Confirm,
    CustomAgent,
    GeneratorAgent,
    Step,
    ToolRequest,
)
from patchwright.sdk.tools import BUILT_IN_TOOLS, find_function

if TYPE_CHECKING:
    from patchwright.runtime.features import SandboxFeature
    from patchwright.runtime.sandbox import Sandbox
    from patchwright.sdk.sandbox_workspace import SandboxWorkspace

FINISH_DESCRIPTION = (
    "End your work on the person's request and summarize it. Call it alone, when the request is done or cannot be "
    "done. Without a change, say in `change` what you found."
)


STEP_TIMEOUT = 600  # seconds for one step of an installed agent


class StepModel:
    """Lets an agent that is written in Python drive the loop in place of a language model."""

    supports_vision = False
    context_window: int | None = None

    def __init__(self, agent: CustomAgent, log: RunLog) -> None:
        self.name = type(agent).__name__
        self._agent = agent
        self._log = log

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        step = await self._get_step()
        usage = ReplyUsage(model=self.name, usd=Decimal(0))
        if isinstance(step, str):
            return Reply(text=step, tool_calls=(), usage=usage)
        requests = (step,) if isinstance(step, ToolRequest) else step
        number = len(self._log.trajectory.replies()) + 1
        calls = tuple(
            RawToolCall(
                id=f"step-{number}-{position}",
                name=request.tool,
                arguments=request.model_dump_json(include={"arguments"})[len('{"arguments":') : -1],
            )
            for position, request in zip(count(1), requests)
        )
        return Reply(text="", tool_calls=calls, usage=usage)

    async def _get_step(self) -> Step:
        result = self._agent.step(AgentState(self._log.trajectory))
        return await result if isawaitable(result) else result


class InstalledAgentModel(StepModel):
    """Lets an agent of an installed package drive a run of the bot. The text with which the agent ends becomes a call
    of `finish` or `report`. If the agent fails, the run ends.
    """

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        reply = await super().reply(messages, tools)
        if reply.tool_calls:
            return reply
        is_answer = "finish" not in {tool.name for tool in tools}
        finish = {"cause": f"The agent {self.name} worked on this.", "change": reply.text, "testing": ""}
        call = RawToolCall(
            id=f"end-{len(self._log.trajectory.replies()) + 1}",
            name="report" if is_answer else "finish",
            arguments=json.dumps({"text": reply.text} if is_answer else finish),
        )
        return reply.model_copy(update={"text": "", "tool_calls": (call,)})

    async def _get_step(self) -> Step:
        state = AgentState(self._log.trajectory)
        try:
            async with asyncio.timeout(STEP_TIMEOUT):
                # In a thread, because the loop of a worker serves other runs, too.
                result = await asyncio.to_thread(self._agent.step, state)
                return await result if isawaitable(result) else result
        except Exception as exc:  # a bug in third-party code must not be retried as if the machine had failed
            raise ModelError(f"The agent {self.name} failed: {type(exc).__name__}: {exc}"[:500]) from exc


def load_installed_agents() -> dict[str, Callable[[RunLog], Model]]:
    """Returns a function for each entry point in the group `patchwright.agents`, which lets this agent drive a run."""
    return {
        entry.name: partial(_build_installed_agent, entry)
        for entry in entry_points(group=BaseAgent.entry_point_group)
    }


def _build_installed_agent(entry: EntryPoint, log: RunLog) -> Model:
    try:
        loaded = entry.load()
        agent = GeneratorAgent(function=entry.name) if isgeneratorfunction(loaded) else loaded()
    except Exception as exc:  # whatever the package raises, its name helps the operator
        raise SettingsError(f"the agent {entry.name} of {entry.value} cannot be loaded: {exc}") from exc
    if not isinstance(agent, CustomAgent):
        raise SettingsError(
            f"the agent {entry.name} of {entry.value} is neither a CustomAgent nor a generator"
        )
    agent.reset()
    model = InstalledAgentModel(agent, log)
    model.name = entry.name
    return model


def build_system_prompt(agent: BaseAgent, workspace: "SandboxWorkspace", tools: Sequence[str]) -> str:
    if isinstance(agent, Agent) and agent.system_prompt is not None:
        return agent.system_prompt
    return render(
        "prompts/conversation.md.j2",
        root=workspace.working_dir,
        scratch=workspace.sandbox.scratch,
        kind=workspace.kind,
        network=workspace.network,
        tools=tools,
        instructions=agent.instructions if isinstance(agent, Agent) else "",
    )


class ConversationPolicy:
    """Decides which calls of a conversation wait for approval. It may change while the agent works."""

    def __init__(self, confirm: Confirm) -> None:
        self.set(confirm)

    def set(self, confirm: Confirm | RiskPolicy) -> None:
        """Sets the policy for the next call. Raises ValueError if there is no policy of this name."""
        if isinstance(confirm, str):
            if confirm not in _THRESHOLDS:
                raise ValueError(f"{confirm} is not one of {', '.join(_THRESHOLDS)}")
            confirm = ThresholdPolicy(threshold=_THRESHOLDS[confirm], response="ask")
        self._policy: RiskPolicy = confirm

    def decide(self, rating: RiskRating) -> RiskDecision:
        return self._policy.decide(rating)


_THRESHOLDS: dict[str, Risk | None] = {"never": None, "risky": "high", "always": "low"}


@dataclass(frozen=True)
class Safeguards:
    """What protects the person: secrets that are masked, a policy about the calls that need approval, and limits."""

    secrets: Secrets
    policy: ConversationPolicy
    limits: Limits


def build_agent_loop(
    agent: BaseAgent,
    workspace: "SandboxWorkspace",
    run: RunId,
    log: RunLog,
    logs: LogStore,
    safeguards: Safeguards,
    get_new_messages: Callable[[], Awaitable[tuple[Message, ...]]],
) -> AgentLoop:
    """Returns the loop for one call of `Conversation.run`."""
    sandbox = MaskingSandbox(workspace.sandbox, safeguards.secrets)
    limits = safeguards.limits
    model = _build_model(agent, log, safeguards.secrets)
    browse_tool = BrowseTool(run, log, logs, model, sandbox, limits)
    return AgentLoop(
        model=model,
        tools=_build_tools(agent, workspace, sandbox, safeguards, log, browse_tool),
        limits=limits,
        take_patch=workspace.take_patch if workspace.kind == "docker" else _no_patch,
        fingerprint_tree=partial(fingerprint_tree, sandbox),
        scratch=sandbox.scratch,
        context_policy=_build_context_policy(agent, model),
        get_new_messages=get_new_messages,
        text_ends_turn=True,
    )


async def _no_patch() -> Patch:
    """The directory keeps its own state, so no checkpoint is needed."""
    return Patch(base_sha="", diff=b"")


def _build_model(agent: BaseAgent, log: RunLog, secrets: Secrets) -> Model:
    if isinstance(agent, Agent):
        return MaskingModel(agent.llm.build(), secrets)
    if not isinstance(agent, CustomAgent):
        raise TypeError(f"{type(agent).__name__} is neither an Agent nor a CustomAgent")
    return StepModel(agent, log)


def _build_tools(
    agent: BaseAgent,
    workspace: "SandboxWorkspace",
    sandbox: "Sandbox",
    safeguards: Safeguards,
    log: RunLog,
    browse_tool: BrowseTool,
) -> ToolRegistry:
    analyzers, confirmations = (RuleAnalyzer(sandbox.root, sandbox.scratch),), Confirmations(log)

    def guard(tool: Tool) -> Tool:
        return PolicyTool(tool, analyzers, safeguards.policy, confirmations)

    features = cast("tuple[SandboxFeature, ...]", workspace.features)
    can_browse = "browser" in features and isinstance(agent, Agent)
    available: list[Tool] = [
        *map(guard, build_sandbox_tools(sandbox, features)),
        *(browse_tool.tools() if can_browse else ()),
        *build_control_tools(has_review_threads=False),
        _build_finish_tool(),
    ]
    by_name = {tool.spec.name: tool for tool in available}
    chosen = [by_name[name] for name in agent.tools if name in by_name]
    own = [name for name in agent.tools if name not in BUILT_IN_TOOLS]
    functions = (MaskingTool(FunctionTool(find_function(name), sandbox), safeguards.secrets) for name in own)
    return ToolRegistry((*chosen, *map(guard, functions)))


def _build_finish_tool() -> Tool:
    """Returns `finish` with a description and a result that speak of a person's request, not of an issue."""

    async def accept(action: Finish) -> Acknowledgment:
        return Acknowledgment(text="Accepted: the person reads your summary.")

    tool = ActionTool(Finish, accept)
    properties = {
        name: field for name, field in tool.spec.parameters["properties"].items() if name != "thread_replies"
    }
    parameters = tool.spec.parameters | {"properties": properties}
    tool.spec = tool.spec.model_copy(update={"description": FINISH_DESCRIPTION, "parameters": parameters})
    return tool


def build_limits(agent: BaseAgent, earlier: Trajectory) -> Limits:
    """Returns the agent's limits, counted from the end of the earlier events."""
    used = earlier.usage_since_resume()
    return Limits(
        steps=used.steps + agent.max_steps,
        seconds=used.seconds + agent.max_seconds,
        usd=used.usd + Decimal(str(agent.max_usd)),
    )


def _build_context_policy(agent: BaseAgent, model: Model) -> ContextPolicy:
    condenser = PipelineCondenser((MaskingCondenser(), SummarizingCondenser(model)))
    if not isinstance(agent, Agent):
        return ContextPolicy(MaskingCondenser(), MAX_CONTEXT_TOKENS)
    return ContextPolicy(condenser, agent.max_context_tokens or max_context_tokens(model))
