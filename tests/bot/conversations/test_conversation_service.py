"""Requests to run outlive the process that works on them, and exactly one other process continues the work."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchwright import AgentState, CustomAgent, ToolRequest
from patchwright.bot.conversation_models import ConversationRecord, RunRequest, WorkspaceSpec
from patchwright.bot.conversations.conversation_service import MAX_TRIES, ConversationService
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.resolver.domain import JobId
from patchwright.resolver.events import (
    AgentStopped,
    Event,
    Message,
    ModelReply,
    ReplyUsage,
    SystemPrompt,
    ToolCall,
    ToolResult,
)
from patchwright.resolver.run_events import Paused
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.actions import RunShell
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import ShellResult

pytestmark = pytest.mark.redis

PROMPT = SystemPrompt(text="You work.", tools=())
TASK = Message(text="Look.", source="comment", trigger_id=JobId("message-1"))


STEPS: list[int] = []
"""The numbers of the steps that agents made, in all processes of a test."""
HOOKS: list[Callable[[int], Awaitable[None]]] = []
"""Called with the number of each step."""


class LookingAgent(CustomAgent):
    """Looks this many times, and then answers each message."""

    looks: int = 1
    fails: bool = False

    async def step(self, state: AgentState) -> ToolRequest | str:
        STEPS.append(state.steps)
        for hook in HOOKS:
            await hook(state.steps)
        if self.fails:
            raise RuntimeError("a mistake in the agent")
        if len(state.outputs) < self.looks:
            return ToolRequest(tool="run_shell", arguments={"command": "echo once >> marks; cat marks"})
        return f"Answer {len(state.messages)}."


class ClearText:
    """Encrypts nothing."""

    def encrypt(self, plain: bytes) -> str:
        return plain.decode()

    def decrypt(self, token: str) -> bytes | None:
        return token.encode()


@dataclass
class Deployment:
    """Processes that share a Redis, each with its own disk."""

    url: str
    place: Path
    stack: contextlib.AsyncExitStack

    async def start(self, name: str, *, continues: bool = True) -> ConversationService:
        """Returns the conversations of a new process. If `continues`, it looks for the work of killed processes."""
        records = ConversationRecords(self.url)
        logs = SharedLogStore(FileLogStore(self.place / name), self.url, read_archived=None)
        sandboxes = LocalSandboxes(self.place, os.environ)
        service = ConversationService(records, logs, lambda spec: sandboxes, ClearText())
        for store in (records, logs, service):
            self.stack.push_async_callback(store.close)
        if continues:
            continuing = asyncio.create_task(service.keep_continuing())
            self.stack.callback(continuing.cancel)
        return service


@pytest.fixture
async def deployment(url: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    STEPS.clear()
    HOOKS.clear()
    async with contextlib.AsyncExitStack() as stack:
        yield Deployment(url, tmp_path, stack)


async def create(service: ConversationService, agent: CustomAgent, *events: Event) -> ConversationRecord:
    """Creates a conversation with this log."""
    workspace = await service.workspaces.create(WorkspaceSpec(network="none"))
    record, _ = await service.create("talk", agent, workspace.id)
    async with service._logs.open(record.log) as log:
        for event in events:
            await log.append(event)
    return record


async def wait_for_end(service: ConversationService, record: ConversationRecord) -> list[str]:
    """Waits until no agent works. Returns the kinds of the events."""
    async with asyncio.timeout(25):
        while (await service.get_state(record)).status == "running":
            await asyncio.sleep(0.1)
    entries = (await service._read_log(record.log)).entries
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    return [entry.event.kind for entry in entries]


async def test_one_of_two_processes_continues_the_work_of_a_killed_one(deployment: Deployment) -> None:
    killed = await deployment.start("killed", continues=False)
    record = await create(killed, LookingAgent(), PROMPT)
    await killed.send(record, "Look.")
    await killed.records.request_run(record, RunRequest(after=1))
    others = [await deployment.start(name) for name in ("one", "two")]
    kinds = await wait_for_end(others[0], record)
    assert kinds == [
        *("system_prompt", "message", "model_reply", "checkpoint", "tool_result", "model_reply"),
        "agent_stopped",
    ]
    assert [(await service.get_state(record)).status for service in others] == ["finished"] * 2
    assert STEPS == [0, 1]
    assert await killed.records.list_run_requests() == {}


@pytest.mark.parametrize("stop", [Paused(), AgentStopped(reason="finished", detail="The agent answered.")])
async def test_work_that_ended_right_before_the_kill_is_not_started_again(
    deployment: Deployment, stop: Event
) -> None:
    killed = await deployment.start("killed", continues=False)
    record = await create(killed, LookingAgent(), PROMPT, TASK, stop)
    await killed.records.request_run(record, RunRequest(after=0))
    if isinstance(stop, Paused):
        await killed.send(record, "One more thing.")
    other = await deployment.start("other")
    assert await wait_for_end(other, record) == ["system_prompt", "message", stop.kind]
    assert (await other.get_state(record)).status == ("paused" if isinstance(stop, Paused) else "finished")
    assert STEPS == []


async def test_a_pause_that_the_killed_process_had_no_time_for_is_obeyed(deployment: Deployment) -> None:
    killed = await deployment.start("killed", continues=False)
    record = await create(killed, LookingAgent(), PROMPT, TASK)
    await killed.records.request_run(record, RunRequest(after=0))
    await killed.pause(record)
    other = await deployment.start("other")
    assert await wait_for_end(other, record) == ["system_prompt", "message", "paused"]
    assert (await other.get_state(record)).status == "paused"
    assert STEPS == []
    assert not await other.records.has_pause_request(record.log)


async def test_the_limits_of_a_run_include_its_work_before_the_kill(deployment: Deployment) -> None:
    killed = await deployment.start("killed", continues=False)
    call = ToolCall(id="a", action=RunShell(command="true"))
    reply = ModelReply(thought="", calls=(call,), usage=ReplyUsage(model="LookingAgent"))
    result = ToolResult(call_id="a", observation=ShellResult(output="", exit_code=0, cwd="/", seconds=0.0))
    record = await create(killed, LookingAgent(looks=9, max_steps=2), PROMPT, TASK, reply, result)
    await killed.records.request_run(record, RunRequest(after=1))
    other = await deployment.start("other")
    assert (await wait_for_end(other, record))[-1] == "agent_stopped"
    assert (await other.get_state(record)).status == "limit"
    assert STEPS == [1]


async def test_work_that_kills_every_process_is_given_up_until_somebody_asks_again(
    deployment: Deployment,
) -> None:
    killed = await deployment.start("killed", continues=False)
    record = await create(killed, LookingAgent(), PROMPT, TASK)
    await killed.records.request_run(record, RunRequest(after=0, tries=MAX_TRIES))
    other = await deployment.start("other")
    await wait_for_end(other, record)
    state = await killed.get_state(record)
    assert (state.status, state.detail) == (
        "error",
        "The agent was started 5 more times, and its process died each time. Call run to try again.",
    )
    assert STEPS == []
    await other.run(record)
    await wait_for_end(other, record)
    assert (await killed.get_state(record)).status == "finished"


async def test_every_server_knows_why_a_run_failed(deployment: Deployment) -> None:
    one, two = [await deployment.start(name) for name in ("one", "two")]
    record = await create(one, LookingAgent(fails=True), PROMPT, TASK)
    await one.run(record)
    await wait_for_end(two, record)
    state = await two.get_state(record)
    assert (state.status, state.detail) == ("error", "The agent failed: RuntimeError.")
    assert await one.records.list_run_requests() == {}


async def test_a_run_that_is_requested_during_the_last_reply_reads_the_message_sent_before_it(
    deployment: Deployment,
) -> None:
    one, two = [await deployment.start(name) for name in ("one", "two")]
    record = await create(one, LookingAgent(looks=0), PROMPT, TASK)

    async def ask(step: int) -> None:
        if step == 0:
            await two.send(record, "And now?")
            await two.run(record)

    HOOKS.append(ask)
    await one.run(record)
    kinds = await wait_for_end(two, record)
    assert kinds == ["system_prompt", *("message", "model_reply", "agent_stopped") * 2]
    assert (await two.get_state(record)).answer == "Answer 2."


async def test_a_process_that_stops_leaves_its_work_to_another_one(deployment: Deployment) -> None:
    one = await deployment.start("one", continues=False)
    record = await create(one, LookingAgent(), PROMPT, TASK)
    working = asyncio.Event()

    async def wait(step: int) -> None:
        if not working.is_set():
            working.set()
            await asyncio.Event().wait()

    HOOKS.append(wait)
    await one.run(record)
    async with asyncio.timeout(30):
        await working.wait()
    await one.close()
    assert (await one.records.list_run_requests())["talk"].tries == 0
    two = await deployment.start("two")
    assert (await wait_for_end(two, record))[-1] == "agent_stopped"
    assert (await two.get_state(record)).status == "finished"
    assert STEPS == [0, 0, 1]


async def test_conversations_of_one_workspace_are_continued_by_one_process(deployment: Deployment) -> None:
    killed = await deployment.start("killed", continues=False)
    workspace = await killed.workspaces.create(WorkspaceSpec(network="none"))
    found = []
    for id in ("first", "second"):
        record, _ = await killed.create(id, LookingAgent(), workspace.id)
        found.append(record)
        await killed.send(record, "Look.")
        await killed.records.request_run(record, RunRequest(after=0))
    others = [await deployment.start(name) for name in ("one", "two")]
    for record in found:
        await wait_for_end(others[0], record)
        assert (await others[0].get_state(record)).status == "finished"
    assert sorted(STEPS) == [0, 0, 1, 1]
    assert sum(bool(service.workspaces._open) for service in others) == 1


async def test_a_container_is_removed_when_another_process_has_the_workspace(deployment: Deployment) -> None:
    one, two = [await deployment.start(name) for name in ("one", "two")]
    record = await one.workspaces.create(WorkspaceSpec(network="none"))
    for service in (one, two):
        async with service.workspaces.use(record):
            pass
    async with asyncio.timeout(10):
        while one.workspaces._open:
            await asyncio.sleep(0.1)
    assert list(two.workspaces._open) == [record.id]


async def test_a_replaced_agent_works_in_the_next_run_on_any_server(deployment: Deployment) -> None:
    one, two = [await deployment.start(name, continues=False) for name in ("one", "two")]
    record = await create(one, LookingAgent(looks=0), PROMPT, TASK)
    await one.run(record)
    await wait_for_end(one, record)
    replaced, _ = await two.create("talk", LookingAgent(looks=2), record.workspace)
    await one.send(record, "Look.")
    await one.run(replaced)
    assert "tool_result" in await wait_for_end(one, record)  # The first agent never looks.


async def test_an_agent_does_not_start_in_a_conversation_that_is_deleted_at_the_same_time(
    deployment: Deployment,
) -> None:
    one, two = [await deployment.start(name, continues=False) for name in ("one", "two")]
    record = await create(one, LookingAgent(), PROMPT, TASK)
    await one.records.request_run(record, RunRequest(after=0))
    await two.delete(record)
    await one._work(record)
    assert STEPS == []
    assert (await one.create("talk", LookingAgent(), record.workspace))[0].log != record.log
