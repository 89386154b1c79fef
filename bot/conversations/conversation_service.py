"""Creates, runs and stops conversations in workspaces of this server.

Everything that has to survive is in Redis: agents, messages, logs, and the files of workspaces. So a conversation
whose server was killed continues on any server. Only containers belong to one server.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from patchwright.bot.conversation_models import ConversationRecord, WorkspaceRecord, WorkspaceSpec
from patchwright.bot.conversations.event_feed import EventFeeds
from patchwright.bot.conversations.server_runner import ServerRunner
from patchwright.bot.conversations.server_workspace import ServerWorkspace
from patchwright.bot.errors import Conflict, QueueDown, Unavailable
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.resolver.domain import JobId, Patch, RunId
from patchwright.resolver.errors import LogError, LogLocked, ResolverError, UsageError
from patchwright.resolver.events import Message, Trajectory
from patchwright.resolver.run_events import SubagentSpawned
from patchwright.resolver.run_log import LogStore
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.sandbox import Sandboxes
from patchwright.sdk.agents import BaseAgent
from patchwright.sdk.conversation import ConversationState
from patchwright.sdk.conversation_runner import build_decision, build_state
from patchwright.sdk.llm import EXPOSE_SECRETS

logger = logging.getLogger(__name__)

MAX_OPEN_WORKSPACES = 16
"""Containers of one server. If there are more, the one that was not used for the longest time is closed."""
MAX_RUNNING = 8
"""Agents that work on one server at the same time."""


class ConversationLogs(LogStore, Protocol):
    """Stores the logs of conversations."""

    def delete(self, run: RunId) -> None:
        """Deletes what this machine has stored of a log. Blocks."""


class Cipher(Protocol):
    """Encrypts agents, which contain API keys."""

    def encrypt(self, plain: bytes) -> str: ...

    def decrypt(self, token: str) -> bytes | None:
        """Returns None if the token was encrypted with another key."""


@dataclass
class _OpenWorkspace:
    workspace: ServerWorkspace
    used_at: float = field(default_factory=time.monotonic)
    users: int = 0


class ConversationService:
    """The conversations of one server."""

    def __init__(
        self,
        records: ConversationRecords,
        logs: ConversationLogs,
        build_sandboxes: Callable[[WorkspaceSpec], Sandboxes],
        cipher: Cipher,
    ) -> None:
        self.records = records
        self._logs = logs
        self._build_sandboxes = build_sandboxes
        self._cipher = cipher
        self._server = secrets.token_hex(8)
        self._feeds = EventFeeds(records)
        self._open: dict[str, _OpenWorkspace] = {}
        self._runners: dict[str, ServerRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        """Why the latest run of a conversation failed on this server."""
        self._lock = asyncio.Lock()

    # --- workspaces ---

    async def create_workspace(self, spec: WorkspaceSpec) -> WorkspaceRecord:
        record = WorkspaceRecord(
            id=f"workspace-{secrets.token_hex(8)}", spec=spec, created_at=datetime.now(UTC)
        )
        await self.records.save_workspace(record)
        return record

    @contextlib.asynccontextmanager
    async def use_workspace(self, record: WorkspaceRecord) -> AsyncIterator[ServerWorkspace]:
        """Yields the workspace with a container on this server. Raises SandboxError, and Conflict while an agent works
        in it on another server.
        """
        async with self._lock:
            opened = await self._open_workspace(record.id)
            opened.users += 1
        try:
            yield opened.workspace
        finally:
            opened.users -= 1
            opened.used_at = time.monotonic()

    async def delete_workspace(self, id: str) -> None:
        """Removes the workspace and its container. Raises Conflict while an agent works in it."""
        async with self._lock:
            if (opened := self._open.get(id)) is not None and opened.users:
                raise Conflict("The workspace is in use. Pause its conversation first.")
            await self.records.delete_workspace(id)
            await self._close_workspace(id)

    async def _open_workspace(self, id: str) -> _OpenWorkspace:
        record = await self.records.get_workspace(id)
        if record is None:
            raise Conflict(f"The workspace {id} was deleted.")
        if id in self._open and record.server == self._server:
            return self._open[id]
        if record.server and record.server != self._server and await self._is_busy_elsewhere(id):
            raise Conflict(
                "An agent is working in this workspace on another server: pause it first. If its server was killed, "
                "try again in 15 seconds."
            )
        await self._close_workspace(id)  # Another server has changed the files since.
        await self._make_room()

        async def save_patch(patch: Patch) -> None:
            await self.records.save_workspace(record.model_copy(update=owned | {"patch": patch}))

        owned: dict[str, Any] = {"server": self._server}
        workspace = ServerWorkspace(record, self._build_sandboxes(record.spec), save_patch)
        await workspace.open()
        await self.records.save_workspace(record.model_copy(update=owned))
        self._open[id] = _OpenWorkspace(workspace)
        return self._open[id]

    async def _is_busy_elsewhere(self, workspace: str) -> bool:
        conversations = await self.records.list_conversations()
        busy = [
            await self.records.has_writer(record.log)
            for record in conversations
            if record.workspace == workspace and record.id not in self._tasks
        ]
        return any(busy)

    async def _make_room(self) -> None:
        while len(self._open) >= MAX_OPEN_WORKSPACES:
            idle = [(opened.used_at, id) for id, opened in self._open.items() if not opened.users]
            if not idle:
                raise Unavailable("All workspaces of this server are in use. Try again later.")
            await self._close_workspace(min(idle)[1])

    async def _close_workspace(self, id: str) -> None:
        if (opened := self._open.pop(id, None)) is not None:
            for conversation in [
                key for key, runner in self._runners.items() if runner.workspace is opened.workspace
            ]:
                del self._runners[conversation]
            await opened.workspace.close()

    # --- conversations ---

    async def create(
        self, id: str | None, agent: BaseAgent, workspace: str
    ) -> tuple[ConversationRecord, bool]:
        """Returns the conversation, and whether it is new. An existing conversation keeps its log, and gets this agent
        from its next run on. Raises Conflict if it is in another workspace.
        """
        text = agent.model_dump_json(context=EXPOSE_SECRETS)
        record = ConversationRecord(
            id=(name := id or f"conversation-{secrets.token_hex(8)}"),
            log=RunId(f"{name}.{secrets.token_hex(8)}"),
            workspace=workspace,
            agent=self._cipher.encrypt(text.encode()),
            created_at=datetime.now(UTC),
        )
        is_new = await self.records.add_conversation(record)
        existing = None if is_new else await self.records.get_conversation(record.id)
        if existing is None:
            return record, is_new
        if existing.workspace != workspace:
            raise Conflict(
                f"The conversation {existing.id} is in the workspace {existing.workspace}: name this workspace, or "
                "choose another id."
            )
        if self._cipher.decrypt(existing.agent) != text.encode():
            existing = existing.model_copy(update={"agent": record.agent})
            await self.records.save_conversation(existing)
            if existing.id not in self._tasks:
                self._runners.pop(existing.id, None)
        return existing, is_new

    async def get_state(self, record: ConversationRecord) -> ConversationState:
        is_running = record.id in self._tasks or await self.records.has_writer(record.log)
        state = build_state(record.id, await self._read_log(record.log), is_running=is_running)
        changes: dict[str, str] = {"workspace": record.workspace}
        if not is_running and (problem := self._problems.get(record.id)):
            changes |= {"status": "error", "detail": problem}
        elif not is_running and state.status != "paused" and await self.records.list_messages(record.id):
            changes |= {"status": "idle", "detail": "Call run."}
        return state.model_copy(update=changes)

    async def list_entries(self, log: RunId, after: int) -> list[str]:
        """Returns the entries of the log as JSON, without the first `after` ones."""
        return [entry.model_dump_json() for entry in (await self._read_log(log)).entries[after:]]

    def follow(self, log: RunId, after: int) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Yields the entries of the log as JSON, past and future ones."""
        return self._feeds.follow(log, after)

    async def send(self, id: str, text: str) -> None:
        """Stores a message. A working agent reads it before its next step; otherwise, `run` starts the work."""
        message = Message(text=text, source="comment", trigger_id=JobId(f"message-{secrets.token_hex(8)}"))
        await self._add_message(id, message)

    async def _add_message(self, id: str, message: Message) -> None:
        if not await self.records.add_message(id, message):
            raise Unavailable("Too many messages wait for the agent. Start it, or wait.")

    async def decide(
        self,
        record: ConversationRecord,
        code: str,
        *,
        approved: bool,
        all_like_this: bool = False,
        reason: str = "",
    ) -> None:
        """Stores a decision about the call with this code, which waits for approval; `run` continues the work. Raises
        Conflict if this call does not wait.
        """
        try:
            message = build_decision(
                await self._read_log(record.log),
                approved=approved,
                all_like_this=all_like_this,
                reason=reason,
                code=code,
            )
        except UsageError as exc:
            raise Conflict(str(exc)) from exc
        await self._add_message(record.id, message)

    async def run(self, record: ConversationRecord) -> None:
        """Starts the agent. Does nothing if it works already. If its server was killed, the work begins when the lease
        of this server has expired, after at most 15 seconds. Raises Conflict if there is no message, and Unavailable
        if too many agents work.
        """
        if record.id in self._tasks:
            return
        if not await self.records.list_messages(record.id) and not (await self._read_log(record.log)).entries:
            raise Conflict("There is no message yet. Send one first.")
        if len(self._tasks) >= MAX_RUNNING:
            raise Unavailable(f"{MAX_RUNNING} agents are working on this server. Try again later.")
        self._problems.pop(record.id, None)
        await self.records.take_pause_request(record.id)
        self._tasks[record.id] = asyncio.create_task(self._work(record))

    async def pause(self, id: str) -> None:
        """Lets the agent stop before its next step, on whichever server it works."""
        await self.records.request_pause(id)

    async def delete(self, record: ConversationRecord) -> None:
        """Deletes the conversation with its log. Raises Conflict while the agent works."""
        if record.id in self._tasks or await self.records.has_writer(record.log):
            raise Conflict("The agent is working. Pause it first.")
        events = await self._read_log(record.log)
        logs = (record.log, *(event.run for event in events if isinstance(event, SubagentSpawned)))
        await self.records.delete_conversation(record.id, logs)
        self._runners.pop(record.id, None)
        self._problems.pop(record.id, None)
        for log in logs:
            await asyncio.to_thread(self._logs.delete, log)

    async def close(self) -> None:
        """Stops all agents where they are, and removes the containers. Their conversations can be continued."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for id in list(self._open):
            with contextlib.suppress(SandboxError, ResolverError):
                await self._close_workspace(id)

    async def _work(self, record: ConversationRecord) -> None:
        try:
            workspace_record = await self.records.get_workspace(record.workspace)
            if workspace_record is None:
                raise Conflict("The workspace of this conversation was deleted.")
            async with (
                self._logs.open(record.log) as log,
                self.use_workspace(workspace_record) as workspace,
            ):
                runner = self._runners.get(record.id)
                if runner is None:
                    runner = ServerRunner(
                        record, self._read_agent(record), workspace, log, self._logs, self.records
                    )
                    self._runners[record.id] = runner
                runner.log = log
                await runner.run()
        except LogLocked:
            logger.info("conversation runs on another server", extra={"conversation": record.id})
        except (ResolverError, SandboxError, QueueDown) as exc:
            logger.warning("conversation failed", extra={"conversation": record.id, "error": str(exc)})
            self._problems[record.id] = str(exc)
        finally:
            self._tasks.pop(record.id, None)

    def _read_agent(self, record: ConversationRecord) -> BaseAgent:
        plain = self._cipher.decrypt(record.agent)
        if plain is None:
            raise Conflict("The agent was stored with another credentials key (PATCHWRIGHT_CREDENTIALS_KEY).")
        return BaseAgent.model_validate_json(plain)

    async def _read_log(self, log: RunId) -> Trajectory:
        try:
            return await asyncio.to_thread(self._logs.read, log)
        except LogError:
            return Trajectory()
