"""Runs a conversation on its log: messages, steps, pauses. `LocalConversation` and the server use it."""

import asyncio
import secrets
from collections import deque

from patchwright.resolver.agent.agent import Agent as AgentLoop
from patchwright.resolver.confirmation import CallDecision
from patchwright.resolver.domain import JobId, RunId, StopReason
from patchwright.resolver.errors import ModelAccessDenied, UsageError
from patchwright.resolver.events import AgentStopped, Message, SystemPrompt, Trajectory
from patchwright.resolver.llm.prompt_fingerprint import tool_schemas
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_calls import get_confirmation
from patchwright.resolver.run_events import Paused
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.text.untrusted import quote
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.errors import SandboxError
from patchwright.sdk.agent_loop import (
    ConversationPolicy,
    Safeguards,
    build_agent_loop,
    build_limits,
    build_system_prompt,
)
from patchwright.sdk.agents import Agent, BaseAgent, CustomAgent
from patchwright.sdk.conversation import ConversationState, Status
from patchwright.sdk.docker_workspace import DockerWorkspace
from patchwright.sdk.sandbox_workspace import SandboxWorkspace

WORKING = "The agent is working."
CONTINUED = "The work was interrupted. Continue where you stopped."
MAX_REASON = 10_000  # characters of the reason for a rejection


class PauseRequested(Exception):
    """Raised between two steps of the loop."""


class ConversationRunner:
    """One conversation on an open log. Its coroutines must run on one event loop."""

    def __init__(
        self, id: str, agent: BaseAgent, workspace: SandboxWorkspace, log: RunLog, logs: LogStore
    ) -> None:
        self.id = id
        self.run_id = RunId(id)
        self.agent = agent
        self.workspace = workspace
        self.log = log
        self.is_running = False
        self.pause_requested = False
        self.limits_after: int | None = None
        """Number of entries in the log after which the limits of the next run count; None: all that exist by then."""
        self._logs = logs
        self._new_messages: deque[Message] = deque()
        self._has_run = False
        self._send_lock = asyncio.Lock()  # Two first messages at the same time need only one system prompt.
        self.policy = ConversationPolicy(agent.confirm)
        self._secrets = Secrets(agent.llm.api_keys() if isinstance(agent, Agent) else ())

    def get_state(self) -> ConversationState:
        return build_state(self.id, self.log.trajectory, is_running=self.is_running)

    async def send(self, text: str) -> None:
        """Adds a message, or keeps it for the next step of a working agent. Raises ValueError if it is empty."""
        if not text.strip():
            raise ValueError("the message is empty")
        trigger = JobId(f"message-{secrets.token_hex(8)}")
        message = self.mask(Message(text=text, source="comment", trigger_id=trigger))
        if self.is_running:
            self._new_messages.append(message)
            return
        async with self._send_lock:
            if not any(isinstance(event, SystemPrompt) for event in self.log.trajectory):
                await self.record_system_prompt()
            await self.log.append(message)

    async def decide(self, *, approved: bool, all_like_this: bool = False, reason: str = "") -> None:
        """Records the person's decision about the call that waits. Raises UsageError if there is none."""
        decision = build_decision(
            self.log.trajectory, approved=approved, all_like_this=all_like_this, reason=reason
        )
        await self.log.append(self.mask(decision))

    def mask(self, message: Message) -> Message:
        """Returns the message without the API keys of the agent."""
        return message.model_copy(update={"text": self._secrets.mask(message.text)})

    async def record_system_prompt(self) -> None:
        await self.workspace.open_if_needed()
        specs = self._build_loop().tools.specs
        text = build_system_prompt(self.agent, self.workspace, [spec.name for spec in specs])
        await self.log.append(SystemPrompt(text=self._secrets.mask(text), tools=tool_schemas(specs)))

    async def run(self) -> ConversationState:
        if self.is_running:
            raise UsageError("The conversation is already running.")
        if not any(isinstance(event, Message) for event in self.log.trajectory):
            raise UsageError("There is no message yet: call send_message first.")
        self.is_running, self.pause_requested = True, False
        try:
            await self.workspace.open_if_needed()
            await self._restore_work_tree()
            if isinstance(self.agent, CustomAgent) and not self._has_run:
                self.agent.reset()
            if (stopped := self.log.trajectory.agent_stopped) and stopped.reason in {"error", "limit"}:
                await self.log.append(Message(text=CONTINUED, source="resume"))
            loop = self._build_loop()
            self._has_run = True
            await loop.run(self.log)
        except PauseRequested:
            await self.log.append(Paused())
        except (ModelAccessDenied, SandboxError) as exc:
            await self.log.append(AgentStopped(reason="error", detail=str(exc)))
            raise
        finally:
            self.is_running = False
            while self._new_messages:  # They arrived after the last step.
                await self.log.append(self._new_messages.popleft())
        return self.get_state()

    def _build_loop(self) -> AgentLoop:
        earlier = Trajectory(self.log.trajectory.entries[: self.limits_after])
        loop = build_agent_loop(
            self.agent,
            self.workspace,
            self.run_id,
            self.log,
            self._logs,
            Safeguards(self._secrets, self.policy, build_limits(self.agent, earlier)),
            self.get_new_messages,
        )
        loop.is_uninterrupted = self._has_run or not self.log.trajectory.replies()
        return loop

    async def get_new_messages(self) -> tuple[Message, ...]:
        """Called before each step of the loop."""
        if self.pause_requested:
            raise PauseRequested
        return (self._new_messages.popleft(),) if self._new_messages else ()

    async def _restore_work_tree(self) -> None:
        """Writes the last checkpoint to a new container, unless the container has these changes already."""
        checkpoint = self.log.trajectory.last_checkpoint()
        if self._has_run or checkpoint is None or not isinstance(self.workspace, DockerWorkspace):
            return
        current = await self.workspace.take_patch()
        if current.is_empty and current.base_sha == checkpoint.base_sha:
            await self.workspace.restore(checkpoint)


def build_state(id: str, trajectory: Trajectory, *, is_running: bool) -> ConversationState:
    """Returns the state that a log shows. The log does not show whether an agent works on it now."""
    usage, waiting = trajectory.usage(), get_confirmation(trajectory)
    status, detail = ("running", WORKING) if is_running else _read_status(trajectory)
    return ConversationState(
        id=id,
        status=status,
        detail=detail,
        call=waiting.call if waiting else "",
        call_code=waiting.code if waiting else "",
        answer=find_answer(trajectory),
        steps=usage.steps,
        tokens=usage.prompt_tokens + usage.completion_tokens,
        cost=usage.usd,
    )


def _read_status(trajectory: Trajectory) -> tuple[Status, str]:
    if stopped := trajectory.agent_stopped:
        if stopped.confirmation:
            return "waiting_for_confirmation", stopped.detail
        return _STATUS[stopped.reason], stopped.detail
    last = trajectory.entries[-1].event if trajectory.entries else None
    if last is None or isinstance(last, SystemPrompt):
        return "idle", "There is no message yet."
    return ("idle", "Call run.") if isinstance(last, Message) else ("paused", "Call run to continue.")


_STATUS: dict[StopReason, Status] = {
    "finished": "finished",
    "input_required": "finished",
    "limit": "limit",
    "stuck": "stuck",
    "interrupted": "paused",
    "error": "error",
}


def build_decision(
    trajectory: Trajectory, *, approved: bool, all_like_this: bool = False, reason: str = "", code: str = ""
) -> Message:
    """Returns the message with a decision about the call that waits. Raises UsageError if there is none, or another one
    than the call with this code.
    """
    waiting = get_confirmation(trajectory)
    if waiting is None or (code and code != waiting.code):
        raise UsageError("This call does not wait for approval." if code else "No call waits for approval.")
    text = render_prompt(
        "call_decision.md.j2",
        approved=approved,
        is_expired=False,
        includes_similar=all_like_this,
        person="The person",
        remark=quote(reason, MAX_REASON),
    )
    similar = waiting.similar if approved and all_like_this else ""
    return Message(
        text=text,
        source="comment",
        trigger_id=JobId(f"decision-{secrets.token_hex(8)}"),
        decision=CallDecision(code=waiting.code, approved=approved, similar=similar),
    )


def find_answer(trajectory: Trajectory) -> str:
    """Returns the text with which the agent last ended its turn; empty before that."""
    for reply in reversed(trajectory.replies()):
        for call in reply.calls:
            if isinstance(call.action, Finish):
                parts = (call.action.cause, call.action.change, call.action.testing)
                return "\n\n".join(filter(None, parts))
        if not reply.calls:
            return reply.thought
    return ""
