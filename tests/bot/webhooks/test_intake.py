"""Deliveries wait in the inbox until they are dealt with, and each leads to what it asks for once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.desk import Desk, Mute
from bot.redis.inbox import Inbox, Letter
from bot.redis.queue import ArqQueue
from bot.webhooks.intake import DEAL_SECONDS, Intake
from bot.webhooks.triggers import Triggers
from resolver.domain import Repo, User
from resolver.forge import Permission
from tests.bot.deliveries import COMMENTED, ISSUE, LABELED, SENDER, signed
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import Handlers, settled, working

pytestmark = pytest.mark.redis


@asynccontextmanager
async def reading(inbox: Inbox, queue: InlineQueue | ArqQueue, name: str = "one") -> AsyncIterator[None]:
    task = asyncio.create_task(Intake(inbox, Desk(queue, Triggers(), Mute()), name).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def put(inbox: Inbox, event: str, payload: object, guid: str = "g-1") -> None:
    _, body = signed(event, payload)
    await inbox.put(guid, event, body)


async def emptied(inbox: Inbox) -> None:
    async with asyncio.timeout(20):
        while await inbox.size():
            await asyncio.sleep(0.05)


async def test_a_label_becomes_a_job_and_a_redelivery_is_the_same_one(inbox: Inbox, url: str) -> None:
    queue, handler = ArqQueue(url, sole=True), Handlers()
    handler.go.set()
    for _ in range(100):
        await put(inbox, "issues", LABELED)
    async with working(queue, handler), reading(inbox, queue):
        await emptied(inbox)
        (job,) = handler.begun or [(await asyncio.wait_for(first(handler), 10))]
        record = await settled(queue, job)
        await put(inbox, "issues", LABELED)
        await emptied(inbox)
        await asyncio.sleep(0.6)
    assert (str(record.job.repo), record.job.number, record.job.installation) == ("acme/sample", 7, 31)
    assert list(handler.begun.values()) == [1]
    await queue.close()


async def first(handler: Handlers) -> str:
    await handler.running.wait()
    return next(iter(handler.begun))


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("issues", LABELED | {"label": {"name": "bug"}}),
        ("issues", LABELED | {"action": "opened"}),
        ("issue_comment", COMMENTED),
        ("workflow_run", {"action": "completed"}),
        ("issues", LABELED | {"issue": ISSUE | {"number": "7"}}),
        ("issues", b"[" * 1_000_000),
    ],
)
async def test_what_asks_for_nothing_or_makes_no_sense_is_put_aside(
    inbox: Inbox, event: str, payload: object
) -> None:
    queue = InlineQueue()
    await put(inbox, event, payload)
    await put(inbox, "issue_comment", COMMENTED | {"sender": SENDER}, "g-2")
    async with reading(inbox, queue):
        await emptied(inbox)
    assert len(queue.known) == 1


async def test_what_a_dead_reader_took_is_taken_over(url: str) -> None:
    inbox = Inbox(url, dead_ms=300)
    await put(inbox, "issues", LABELED)
    (taken,) = await inbox.take("dead")
    assert isinstance(taken, Letter)
    queue = InlineQueue()
    async with reading(inbox, queue, "living"):
        await emptied(inbox)
    assert len(queue.known) == 1
    await inbox.close()


class Hanging(Mute):
    """A forge whose first answer waits until it is let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def permission(self, repo: Repo, user: User) -> Permission:
        if not self.asked.is_set():
            self.asked.set()
            await self.go.wait()
        return "write"


async def test_a_delivery_whose_forge_hangs_keeps_no_later_one_waiting(inbox: Inbox) -> None:
    queue, forge = InlineQueue(), Hanging()
    intake = asyncio.create_task(Intake(inbox, Desk(queue, Triggers(), forge), "one").run())
    asks = COMMENTED | {"sender": SENDER}
    await put(inbox, "issue_comment", asks | {"comment": COMMENTED["comment"] | {"body": "@agent stop"}})
    async with asyncio.timeout(20):
        await forge.asked.wait()
    await put(inbox, "issues", LABELED, "g-2")
    async with asyncio.timeout(DEAL_SECONDS / 2):
        while not queue.known:
            await asyncio.sleep(0.02)
    forge.go.set()
    await emptied(inbox)
    intake.cancel()
    await asyncio.gather(intake, return_exceptions=True)
