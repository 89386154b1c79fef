"""The logs of conversations: apart from runs, kept until they are deleted, and gone afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from patchwright import LLM, default_agent
from patchwright.bot.api import conversation_routes
from patchwright.bot.api.authentication import ApiDependencies
from patchwright.bot.conversation_models import ConversationRecord, RunRequest
from patchwright.bot.conversations.conversation_service import ConversationService
from patchwright.bot.errors import Conflict, QueueDown
from patchwright.bot.observe.archive import Archiver
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.conversation_records import CHANGED_MEANWHILE, ConversationRecords
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.bot.web.application import create_application
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import AgentStopped, Event, Message
from patchwright.resolver.run_events import SubagentSpawned
from patchwright.resolver.run_log import FileLogStore
from tests.bot.conversations.test_conversation_service import ClearText

pytestmark = pytest.mark.redis

TOKEN = "an operator's own token"
AGENT = default_agent(LLM(model="openai/m", api_key="sk-of-a-test"))


class LostRedis(ConversationRecords):
    async def wait_for_entries(self, positions: Mapping[RunId, str]) -> dict[RunId, list[tuple[str, str]]]:
        raise QueueDown("Redis does not respond")


@dataclass
class Server:
    service: ConversationService
    logs: SharedLogStore

    async def create(self, id: str) -> ConversationRecord:
        return (await self.service.create(id, AGENT, "workspace"))[0]

    async def write(self, record: ConversationRecord, *events: Event) -> None:
        async with self.logs.open(record.log) as log:
            for event in events:
                await log.append(event)

    async def entries(self, record: ConversationRecord) -> tuple[dict[str, Any], ...]:
        return await self.service.list_entries(record.log, 0, 10)


@pytest.fixture
async def server(url: str, tmp_path: Path) -> AsyncIterator[Server]:
    records = ConversationRecords(url)
    logs = SharedLogStore(FileLogStore(tmp_path / "conversations"), url, read_archived=None)
    yield Server(
        ConversationService(records, logs, lambda spec: pytest.fail("no container"), ClearText()), logs
    )
    await logs.close()
    await records.close()


def message(text: str) -> Message:
    return Message(text=text, source="comment")


async def test_a_deleted_conversation_leaves_nothing_for_a_new_one_with_its_id(
    server: Server, url: str, tmp_path: Path
) -> None:
    old = await server.create("c")
    subagent = RunId(f"{old.log}-browse-1")
    await server.write(
        old, message("secret"), SubagentSpawned(call_id="1", run=subagent, role="browse", task="Look.")
    )
    await server.write(old.model_copy(update={"log": subagent}), message("secret"))
    await server.service.delete(old)
    new = await server.create("c")
    assert (await server.entries(new), await server.entries(old)) == ((), ())
    assert (await server.service.get_state(new)).detail == "There is no message yet."
    assert list((tmp_path / "conversations").iterdir()) == []
    redis = redis_client(url)
    assert await redis.keys("patchwright:log:*") == []
    await redis.aclose(close_connection_pool=True)


async def test_a_conversation_with_the_name_of_a_run_does_not_touch_the_run(
    server: Server, url: str, tmp_path: Path
) -> None:
    run, runs = RunId("nightly-7"), SharedLogStore(FileLogStore(tmp_path / "runs"), url)
    async with runs.open(run) as log:
        await log.append(message("private"))
        conversation = await server.create(run)
        assert (await server.service.get_state(conversation)).status == "idle"
        assert await server.entries(conversation) == ()
        await server.service.delete(conversation)
    assert len(await runs.read_lines(run)) == 1
    await runs.close()


async def test_a_watcher_who_left_while_redis_was_lost_causes_no_error(server: Server, url: str) -> None:
    await server.create("c")
    records = LostRedis(url)
    service = ConversationService(records, server.logs, lambda spec: pytest.fail("no container"), ClearText())
    deps = ApiDependencies(None, None, None, TOKEN, service)  # type: ignore[arg-type]
    headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "websocket", "path": "/conversations/c/events", "headers": headers, "query_string": b""}
    sent: list[str] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"} if not sent else await asyncio.Future()

    async def send(event: Any) -> None:
        sent.append(event["type"])
        if event["type"] == "websocket.close":
            raise OSError("the connection is broken")

    async with asyncio.timeout(20):
        await create_application(deps)(scope, receive, send)
    assert sent == ["websocket.accept", "websocket.close"]
    await records.close()


async def test_workers_do_not_archive_conversations(server: Server, url: str, tmp_path: Path) -> None:
    await server.write(await server.create("c"), message("Hello."))
    directory = FileLogStore(tmp_path / "worker")
    worker = SharedLogStore(directory, url)
    assert await worker.list_idle(-1, 10) == ()
    assert await Archiver(worker, directory, None, idle_seconds=0).sweep() == 0
    await worker.close()


async def test_a_list_reads_only_the_logs_that_have_grown(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [await server.create(f"c-{number}") for number in range(3)]
    for record in records:
        await server.write(record, message("Hello."))
    before = await server.service.list_states(records)
    assert [(state.id, state.status, state.detail) for state in before] == [
        (f"c-{number}", "idle", "Call run.") for number in range(3)
    ]
    read: list[RunId] = []
    read_log = server.logs.read
    monkeypatch.setattr(server.logs, "read", lambda log: read.append(log) or read_log(log))
    assert await server.service.list_states(records) == before
    assert read == []
    await server.write(records[1], message("And this?"), AgentStopped(reason="finished", detail="Done."))
    changed = await server.service.list_states(records)
    assert [state.status for state in changed] == ["idle", "finished", "idle"]
    assert read == [records[1].log]


async def test_the_state_of_a_log_that_grew_while_it_was_read_is_not_stored(server: Server) -> None:
    record = await server.create("c")
    (before,) = await server.service.records.list_activities([record])
    await server.write(record, message("Hello."))
    assert (await server.service._get_state(record, before)).detail == "Call run."
    (after,) = await server.service.records.list_activities([record])
    assert (after.log_length, after.stored) == (1, None)


async def test_a_deleted_conversation_does_not_come_back_with_another_agent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await server.create("c")
    agent = AGENT.model_copy(update={"max_steps": 3})
    get_conversation = server.service.records.get_conversation

    async def delete_after_reading(id: str) -> ConversationRecord | None:
        found = await get_conversation(id)
        await server.service.delete(record)
        return found

    monkeypatch.setattr(server.service.records, "get_conversation", delete_after_reading)
    with pytest.raises(Conflict, match="deleted at the same time"):
        await server.service.create("c", agent, "workspace")
    assert await get_conversation("c") is None


async def test_conversations_are_listed_in_pages(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_routes, "CONVERSATIONS_PAGE_SIZE", 2)
    for number in (3, 1, 2, 4):
        await server.create(f"c-{number}")
    await server.create("c-1")  # Exists already, so it keeps its place.
    app = create_application(ApiDependencies(None, None, None, TOKEN, server.service))  # type: ignore[arg-type]
    pages: list[list[str]] = []
    after = [0]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as http:
        http.headers["authorization"] = f"Bearer {TOKEN}"
        while len(after) < 2 or after[-1] != after[-2]:
            page = (await http.get("/conversations", params={"after": after[-1]})).json()
            pages.append([one["id"] for one in page["conversations"]])
            after.append(page["next"])
            if len(pages) == 1:  # No later conversation takes its place on the first page.
                await server.service.delete(await server.create("c-3"))
        assert (await http.get("/conversations?before=1")).status_code == 422
    assert pages == [["c-3", "c-1"], ["c-2", "c-4"], []]


async def test_a_conversation_that_is_deleted_while_it_is_found_is_not_returned(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await server.create("c")
    add_conversation = server.service.records.add_conversation

    async def delete_after_adding(added: ConversationRecord) -> bool:
        is_new = await add_conversation(added)
        await server.service.delete(record)
        return is_new

    monkeypatch.setattr(server.service.records, "add_conversation", delete_after_adding)
    with pytest.raises(Conflict, match="deleted at the same time"):
        await server.create("c")


async def test_the_second_of_two_deletions_leaves_the_new_conversation_with_this_id(server: Server) -> None:
    old = await server.create("c")
    await server.service.delete(old)
    new = await server.create("c")
    await server.service.send(new, "Hello.")
    with pytest.raises(Conflict, match="deleted at the same time"):
        await server.service.delete(old)
    assert await server.service.records.get_conversation("c") == new
    assert len(await server.service.records.list_messages(new.log)) == 1


async def send_everything(service: ConversationService, record: ConversationRecord) -> list[Exception]:
    """Stores a message and requests to pause and to run. Returns the errors."""
    requests = [
        service.send(record, "Hello."),
        service.pause(record),
        service.records.request_run(record, RunRequest(after=0)),
    ]
    return [error for error in await asyncio.gather(*requests, return_exceptions=True) if error]


async def test_what_is_sent_to_a_deleted_conversation_does_not_reach_a_new_one_with_its_id(
    server: Server, url: str
) -> None:
    service, redis = server.service, redis_client(url)
    old = await server.create("c")
    await service.delete(old)
    deleted = await send_everything(service, old)
    new = await server.create("c")
    deleted += await send_everything(service, old)
    await service.records.fail_run(old, "The agent failed.")  # Reported after the lease of its log has ended.
    assert [(type(error), str(error)) for error in deleted] == [(Conflict, CHANGED_MEANWHILE)] * 6
    assert await redis.keys("patchwright:conversation:*") == []
    assert (await service.get_state(new)).detail == "There is no message yet."
    assert await send_everything(service, new) == []
    assert (await service.get_state(new)).status == "running"
    await service.records.fail_run(new, "The agent failed.")
    assert (await service.get_state(new)).detail == "The agent failed."
    await redis.aclose(close_connection_pool=True)


async def test_a_conversation_is_not_deleted_if_an_agent_starts_at_the_same_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await server.create("c")
    async with contextlib.AsyncExitStack() as stack:
        delete_conversation = server.service.records.delete_conversation

        async def start_before(*arguments: Any) -> bool:
            await stack.enter_async_context(server.logs.open(record.log))
            return await delete_conversation(*arguments)

        monkeypatch.setattr(server.service.records, "delete_conversation", start_before)
        with pytest.raises(Conflict, match="started"):
            await server.service.delete(record)
    assert await server.service.records.get_conversation("c") == record


async def test_a_stored_state_that_another_version_wrote_is_replaced(server: Server, url: str) -> None:
    record = await server.create("c")
    before = await server.service.get_state(record)
    redis = redis_client(url)
    (key,) = await redis.keys("patchwright:conversation_state:*")
    stored = await redis.get(key)
    await redis.set(key, stored.replace(b'"steps"', b'"count_of_steps"'))
    assert await server.service.get_state(record) == before
    assert await redis.get(key) == stored
    await redis.aclose(close_connection_pool=True)
