"""Creates, runs and stops conversations in workspaces of this server.

Everything that has to survive is in Redis: agents, messages, logs, requests to run, and the files of workspaces. So
another server or worker continues a conversation whose process was killed. Only containers belong to one process.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from pydantic import ValidationError

from patchwright.bot.conversation_models import (
    ConversationActivity,
    ConversationRecord,
    RunRequest,
    StoredState,
    WorkspaceSpec,
)
from patchwright.bot.conversations.event_feed import EventFeeds
from patchwright.bot.conversations.server_runner import ServerRunner
from patchwright.bot.conversations.workspace_pool import WorkspacePool
from patchwright.bot.errors import Conflict, QueueDown, Unavailable
from patchwright.bot.redis.conversation_records import CHANGED_MEANWHILE, ConversationRecords
from patchwright.resolver.domain import JobId, RunId
from patchwright.resolver.errors import LogError, LogLocked, ResolverError, UsageError
from patchwright.resolver.events import AgentStopped, Message, ModelReply, ToolResult, Trajectory
from patchwright.resolver.run_events import Paused, SubagentSpawned
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.sandbox import Sandboxes
from patchwright.sdk.agents import BaseAgent
from patchwright.sdk.conversation import ConversationState
from patchwright.sdk.conversation_runner import WORKING, build_decision, build_state
from patchwright.sdk.llm import EXPOSE_SECRETS

logger = logging.getLogger(__name__)

MAX_RUNNING = 8
"""Agents that work on one server at the same time."""
CONTINUE_SECONDS = 2.0
"""Time between two checks for conversations whose process was killed."""
MAX_TRIES = 5
"""How often the work of a killed process is continued. The work itself may be what kills the processes."""


class ConversationLogs(LogStore, Protocol):
    """Stores the logs of conversations."""

    def delete(self, run: RunId) -> None:
        """Deletes what this machine has stored of a log. Blocks."""


class Cipher(Protocol):
    """Encrypts agents, which contain API keys."""

    def encrypt(self, plain: bytes) -> str: ...

    def decrypt(self, token: str) -> bytes | None:
        """Returns None if the token was encrypted with another key."""


class ConversationService:
    """The conversations of one server, or of a worker, which only continues those of killed processes."""

    def __init__(
        self,
        records: ConversationRecords,
        logs: ConversationLogs,
        build_sandboxes: Callable[[WorkspaceSpec], Sandboxes],
        cipher: Cipher,
    ) -> None:
        self.records = records
        self._logs = logs
        self._cipher = cipher
        self._feeds = EventFeeds(records)
        self._runners: dict[str, ServerRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.workspaces = WorkspacePool(records, build_sandboxes, own_conversations=self._tasks)

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
        )
        if await self.records.add_conversation(record):
            return record, True
        existing = await self.records.get_conversation(record.id)
        if existing is None:
            raise Conflict(CHANGED_MEANWHILE)
        if existing.workspace != workspace:
            raise Conflict(
                f"The conversation {existing.id} is in the workspace {existing.workspace}: name this workspace, or "
                "choose another id."
            )
        if self._cipher.decrypt(existing.agent) != text.encode():
            changed = existing.model_copy(update={"agent": record.agent})
            if not await self.records.replace_conversation(existing, changed):
                raise Conflict(CHANGED_MEANWHILE)
            existing = changed
        return existing, False

    async def list_states(self, records: Sequence[ConversationRecord]) -> tuple[ConversationState, ...]:
        """Returns the state of each conversation. Reads only logs that have grown since their state was stored."""
        activities = await self.records.list_activities(records)
        return tuple([await self._get_state(*pair) for pair in zip(records, activities, strict=True)])

    async def get_state(self, record: ConversationRecord) -> ConversationState:
        return (await self.list_states([record]))[0]

    async def _get_state(
        self, record: ConversationRecord, activity: ConversationActivity
    ) -> ConversationState:
        stored = activity.stored
        if stored is None or stored.log_length != activity.log_length:
            trajectory = await self._read_log(record.log)
            state = build_state(record.id, trajectory, is_running=False)
            stored = StoredState(log_length=activity.log_length, state=state)
            # The log may have grown since, and the local copy, which is read without Redis, may differ from the log.
            if len(trajectory) == activity.log_length:
                await self.records.save_state(record.log, stored)
        changes: dict[str, str] = {"workspace": record.workspace}
        if activity.is_running or record.id in self._tasks:
            changes |= {"status": "running", "detail": WORKING}
        elif activity.problem:
            changes |= {"status": "error", "detail": activity.problem}
        elif stored.state.status != "paused" and activity.has_messages:
            changes |= {"status": "idle", "detail": "Call run."}
        return stored.state.model_copy(update=changes)

    async def list_entries(self, log: RunId, after: int, limit: int) -> tuple[dict[str, Any], ...]:
        """Returns entries of the log as JSON values, without the first `after` ones."""
        entries = (await self._read_log(log)).entries[after : after + limit]
        return tuple(entry.model_dump(mode="json") for entry in entries)

    def follow(self, log: RunId, after: int) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Yields the entries of the log as JSON, past and future ones."""
        return self._feeds.follow(log, after)

    async def send(self, record: ConversationRecord, text: str) -> None:
        """Stores a message. A working agent reads it before its next step; otherwise, `run` starts the work."""
        message = Message(text=text, source="comment", trigger_id=JobId(f"message-{secrets.token_hex(8)}"))
        await self.records.add_message(record, message)

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
        log = await self._read_log(record.log)
        try:
            message = build_decision(
                log, approved=approved, all_like_this=all_like_this, reason=reason, code=code
            )
        except UsageError as exc:
            raise Conflict(str(exc)) from exc
        await self.records.add_message(record, message)

    async def run(self, record: ConversationRecord) -> None:
        """Starts the agent. If it works already, it continues, and reads all messages before it ends. If its process
        was killed, the work begins when the lease of this process has expired, after at most 15 seconds. Raises
        Conflict if there is no message, and Unavailable if too many agents work.
        """
        count = len(await self._read_log(record.log))
        if not count and not await self.records.list_messages(record.log):
            raise Conflict("There is no message yet. Send one first.")
        starts_here = not await self._is_worked_on(record)
        if starts_here and len(self._tasks) >= MAX_RUNNING:
            raise Unavailable(f"{MAX_RUNNING} agents are working on this server. Try again later.")
        await self.records.request_run(record, RunRequest(after=count))
        if starts_here:
            self._start(record)

    async def pause(self, record: ConversationRecord) -> None:
        """Lets the agent stop before its next step, on whichever server it works."""
        await self.records.request_pause(record)

    async def delete(self, record: ConversationRecord) -> None:
        """Deletes the conversation with its log. Raises Conflict while the agent works."""
        if await self._is_worked_on(record):
            raise Conflict("The agent is working. Pause it first.")
        events = await self._read_log(record.log)
        logs = (record.log, *(event.run for event in events if isinstance(event, SubagentSpawned)))
        if not await self.records.delete_conversation(record, logs):
            raise Conflict(CHANGED_MEANWHILE)
        self._runners.pop(record.id, None)
        for log in logs:
            await asyncio.to_thread(self._logs.delete, log)

    async def close(self) -> None:
        """Stops all agents where they are, and removes the containers. Other processes continue the conversations."""
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        with contextlib.suppress(QueueDown):
            for id in tasks:
                if (request := await self.records.get_run_request(id)) is not None:
                    # The shutdown of a process is not the fault of its work.
                    untried = request.model_copy(update={"tries": 0})
                    await self.records.replace_run_request(id, request, untried)
        await self.workspaces.close()

    # --- the agent's work ---

    async def keep_continuing(self) -> None:
        """Continues the conversations whose process was killed, until canceled."""
        earlier: dict[str, RunRequest] = {}
        while True:
            try:
                orphans = await self._list_orphans()
                for id, request in orphans.items():
                    if earlier.get(id) == request:  # Otherwise, a process may be starting with it right now.
                        await self._take_over(id, request)
                await self.workspaces.close_lost()
                earlier = orphans
            except QueueDown as exc:
                logger.warning("conversations not continued", extra={"reason": str(exc)})
            except (ResolverError, SandboxError) as exc:
                logger.warning("workspace not closed", extra={"error": str(exc)})
            await asyncio.sleep(CONTINUE_SECONDS)

    async def _list_orphans(self) -> dict[str, RunRequest]:
        """Returns the requests on which no process works."""
        orphans = {}
        for id, request in (await self.records.list_run_requests()).items():
            record = await self.records.get_conversation(id)
            if record is None or not await self._is_worked_on(record):
                orphans[id] = request
        return orphans

    async def _take_over(self, id: str, request: RunRequest) -> None:
        """Starts the agent here, unless another process does, or this one cannot."""
        record = await self.records.get_conversation(id)
        if record is None:
            await self.records.replace_run_request(id, request, None)
        elif request.tries >= MAX_TRIES:
            problem = f"The agent was started {MAX_TRIES} more times, and its process died each time."
            await self.records.fail_run(record, f"{problem} Call run to try again.")
        elif (
            len(self._tasks) < MAX_RUNNING
            and self._can_read_agent(record)
            and await self.workspaces.claim(record.workspace)
        ):
            next_try = request.model_copy(update={"tries": request.tries + 1})
            if await self.records.replace_run_request(id, request, next_try):
                logger.info("conversation taken over", extra={"conversation": id, "try": next_try.tries})
                self._start(record)

    async def _is_worked_on(self, record: ConversationRecord) -> bool:
        return record.id in self._tasks or await self.records.has_writer(record.log)

    def _start(self, record: ConversationRecord) -> None:
        self._tasks[record.id] = asyncio.create_task(self._work(record))

    async def _work(self, record: ConversationRecord) -> None:
        """Works until nothing is requested. If this task is canceled or the process is killed, the request stays."""
        try:
            async with self._logs.open(record.log) as log:
                while work := await self._find_work(record):
                    current, request = work
                    if not await self._has_ended(record.log, log.trajectory, request):
                        await self._run_agent(current, log, request)
                    await self.records.replace_run_request(record.id, request, None)
        except LogLocked:
            logger.info("conversation runs on another server", extra={"conversation": record.id})
        except QueueDown as exc:  # The request may be stored. If so, the work continues when Redis responds.
            logger.warning("conversation suspended", extra={"conversation": record.id, "error": str(exc)})
        except (ResolverError, SandboxError) as exc:
            logger.warning("conversation failed", extra={"conversation": record.id, "error": str(exc)})
            await self._fail(record, str(exc))
        except Exception as exc:  # An agent in Python may raise anything.
            await self._fail(record, f"The agent failed: {type(exc).__name__}.")
            raise
        finally:
            self._tasks.pop(record.id, None)

    async def _find_work(self, record: ConversationRecord) -> tuple[ConversationRecord, RunRequest] | None:
        """Returns the conversation with its present agent, and the request to run it. Returns None if there is no
        request, or the conversation was deleted before this process opened its log.
        """
        current = await self.records.get_conversation(record.id)
        request = await self.records.get_run_request(record.id)
        return (current, request) if current and request and current.log == record.log else None

    async def _run_agent(self, record: ConversationRecord, log: RunLog, request: RunRequest) -> None:
        workspace_record = await self.records.get_workspace(record.workspace)
        if workspace_record is None:
            raise Conflict("The workspace of this conversation was deleted.")
        async with self.workspaces.use(workspace_record) as workspace:
            runner = self._runners.get(record.id)
            if runner is None or runner.record != record or runner.workspace is not workspace:
                agent = self._read_agent(record)
                runner = ServerRunner(record, agent, workspace, log, self._logs, self.records)
                self._runners[record.id] = runner
            runner.log, runner.limits_after = log, request.after
            await runner.run()

    async def _has_ended(self, log: RunId, trajectory: Trajectory, request: RunRequest) -> bool:
        """Returns True if the work was done or paused after the request, and the process died before it removed it."""
        events = [entry.event for entry in trajectory.entries[request.after :]]
        kinds = AgentStopped | Paused | Message | ModelReply | ToolResult
        last = next((event for event in reversed(events) if isinstance(event, kinds)), None)
        if isinstance(last, AgentStopped):
            return not await self.records.list_messages(log)  # A message that came too late is read now.
        return isinstance(last, Paused)

    async def _fail(self, record: ConversationRecord, problem: str) -> None:
        with contextlib.suppress(QueueDown):
            await self.records.fail_run(record, problem)

    def _can_read_agent(self, record: ConversationRecord) -> bool:
        try:
            self._read_agent(record)
        except Conflict:  # Another process may have the key and the agent's package.
            return False
        return True

    def _read_agent(self, record: ConversationRecord) -> BaseAgent:
        plain = self._cipher.decrypt(record.agent)
        if plain is None:
            raise Conflict("The agent was stored with another credentials key (PATCHWRIGHT_CREDENTIALS_KEY).")
        try:
            return BaseAgent.model_validate_json(plain)
        except ValidationError as exc:
            reason = exc.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
            raise Conflict(f"This server cannot build the agent: {reason}.") from exc

    async def _read_log(self, log: RunId) -> Trajectory:
        try:
            return await asyncio.to_thread(self._logs.read, log)
        except LogError:
            return Trajectory()
