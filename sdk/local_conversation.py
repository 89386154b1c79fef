"""A conversation whose agent works in this process."""

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from patchwright.resolver.agent.agent import Agent as AgentLoop
from patchwright.resolver.domain import JobId, RunId, StopReason
from patchwright.resolver.errors import UsageError
from patchwright.resolver.events import (
    Entry,
    Message,
    Paused,
    SystemPrompt,
    Trajectory,
)
from patchwright.resolver.llm.prompt_fingerprint import tool_schemas
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.sdk import environment
from patchwright.sdk.agent_loop import build_agent_loop, build_system_prompt
from patchwright.sdk.agents import Agent, BaseAgent, CustomAgent
from patchwright.sdk.background_loop import run_blocking, run_in_background
from patchwright.sdk.conversation import Conversation, ConversationState, Status
from patchwright.sdk.workspaces.base import BaseWorkspace
from patchwright.sdk.workspaces.docker import DockerWorkspace
from patchwright.sdk.workspaces.local import LocalWorkspace
from patchwright.sdk.workspaces.sandbox_workspace import SandboxWorkspace


class _PauseRequested(Exception):
    """Raised between two steps of the loop."""


class LocalConversation(Conversation):
    """A conversation whose agent works in this process. Each event is stored before the next step, so a killed
    conversation continues where its log ends.
    """

    def __init__(
        self,
        agent: BaseAgent,
        workspace: BaseWorkspace | str | Path,
        *,
        id: str | None = None,
        persistence_dir: str | Path | None = None,
        callbacks: Iterable[Callable[[Entry], object]] = (),
    ) -> None:
        if isinstance(workspace, str | Path):
            workspace = LocalWorkspace(workspace)
        if not isinstance(workspace, SandboxWorkspace):
            raise TypeError(f"a local conversation cannot use a {type(workspace).__name__}")
        self.id = id or f"conversation-{secrets.token_hex(8)}"
        self.agent = agent
        self.workspace = workspace
        self._callbacks = tuple(callbacks)
        self._new_messages: deque[Message] = deque()
        self._is_running = False
        self._pause_requested = False
        self._has_run = False
        directory = (
            Path(persistence_dir) if persistence_dir else environment.data_directory() / "conversations"
        )
        self._logs = FileLogStore(directory)
        self._stack = contextlib.AsyncExitStack()
        self._log = run_blocking(
            self._stack.enter_async_context(self._logs.open(RunId(self.id), (self._notify,)))
        )
        self._secrets = Secrets(agent.llm.api_keys() if isinstance(agent, Agent) else ())

    @property
    def state(self) -> ConversationState:
        trajectory = self._log.trajectory
        usage = trajectory.usage()
        status, detail = self._read_status(trajectory)
        return ConversationState(
            id=self.id,
            status=status,
            detail=detail,
            answer=find_answer(trajectory),
            steps=usage.steps,
            tokens=usage.prompt_tokens + usage.completion_tokens,
            cost=usage.usd,
        )

    @property
    def events(self) -> tuple[Entry, ...]:
        return self._log.trajectory.entries

    def send_message(self, text: str) -> None:
        if not text.strip():
            raise ValueError("the message is empty")
        run_blocking(self._send(text))

    async def asend_message(self, text: str) -> None:
        await run_in_background(self._send(text))

    def run(self) -> ConversationState:
        return run_blocking(self._run())

    async def arun(self) -> ConversationState:
        return await run_in_background(self._run())

    def pause(self) -> None:
        self._pause_requested = True

    def close(self) -> None:
        run_blocking(self._stack.aclose())

    def _notify(self, entry: Entry) -> None:
        for callback in self._callbacks:
            callback(entry)

    async def _send(self, text: str) -> None:
        message = Message(
            text=self._secrets.mask(text),
            source="comment",
            trigger_id=JobId(f"message-{secrets.token_hex(8)}"),
        )
        if self._is_running:
            self._new_messages.append(message)
            return
        if not any(isinstance(event, SystemPrompt) for event in self._log.trajectory):
            await self._record_system_prompt()
        await self._log.append(message)

    async def _record_system_prompt(self) -> None:
        await self.workspace.open_if_needed()
        specs = self._build_loop().tools.specs
        text = build_system_prompt(self.agent, self.workspace, [spec.name for spec in specs])
        await self._log.append(SystemPrompt(text=self._secrets.mask(text), tools=tool_schemas(specs)))

    async def _run(self) -> ConversationState:
        if self._is_running:
            raise UsageError("The conversation is already running.")
        if not any(isinstance(event, Message) for event in self._log.trajectory):
            raise UsageError("There is no message yet: call send_message first.")
        self._is_running, self._pause_requested = True, False
        try:
            await self.workspace.open_if_needed()
            await self._restore_work_tree()
            if isinstance(self.agent, CustomAgent) and not self._has_run:
                self.agent.reset()
            loop = self._build_loop()
            self._has_run = True
            await loop.run(self._log)
        except _PauseRequested:
            await self._log.append(Paused())
        finally:
            self._is_running = False
        while self._new_messages:  # They arrived after the last step.
            await self._log.append(self._new_messages.popleft())
        return self.state

    def _build_loop(self) -> AgentLoop:
        loop = build_agent_loop(
            self.agent,
            self.workspace,
            RunId(self.id),
            self._log,
            self._logs,
            self._secrets,
            self._get_new_messages,
        )
        loop.is_uninterrupted = self._has_run or not self._log.trajectory.replies()
        return loop

    async def _get_new_messages(self) -> tuple[Message, ...]:
        """Called before each step of the loop."""
        if self._pause_requested:
            raise _PauseRequested
        return (self._new_messages.popleft(),) if self._new_messages else ()

    async def _restore_work_tree(self) -> None:
        """Writes the last checkpoint to a new container, unless the container has these changes already."""
        checkpoint = self._log.trajectory.last_checkpoint()
        if self._has_run or checkpoint is None or not isinstance(self.workspace, DockerWorkspace):
            return
        current = await self.workspace.take_patch()
        if current.is_empty and current.base_sha == checkpoint.base_sha:
            await self.workspace.restore(checkpoint)

    def _read_status(self, trajectory: Trajectory) -> tuple[Status, str]:
        if self._is_running:
            return "running", "The agent is working."
        if stopped := trajectory.agent_stopped:
            return _STATUS[stopped.reason], stopped.detail
        last = trajectory.entries[-1].event if trajectory.entries else None
        if last is None or isinstance(last, SystemPrompt | Message):
            return "idle", "Call run." if isinstance(last, Message) else "There is no message yet."
        return "paused", "Call run to continue."


_STATUS: dict[StopReason, Status] = {
    "finished": "finished",
    "input_required": "finished",
    "limit": "limit",
    "stuck": "stuck",
    "interrupted": "paused",
    "error": "error",
}


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
