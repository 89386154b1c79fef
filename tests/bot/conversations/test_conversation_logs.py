"""The logs of conversations: apart from runs, kept until they are deleted, and gone afterwards."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchwright import LLM, default_agent
from patchwright.bot.api.authentication import ApiDependencies
from patchwright.bot.conversation_models import ConversationRecord
from patchwright.bot.conversations.conversation_service import ConversationService
from patchwright.bot.errors import QueueDown
from patchwright.bot.observe.archive import Archiver
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.bot.web.application import create_application
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Message
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

    async def write(self, record: ConversationRecord, *events: Message | SubagentSpawned) -> None:
        async with self.logs.open(record.log) as log:
            for event in events:
                await log.append(event)

    async def texts(self, record: ConversationRecord) -> list[str]:
        return await self.service.list_entries(record.log, 0)


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
    assert (await server.texts(new), await server.texts(old)) == ([], [])
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
        assert await server.texts(conversation) == []
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
