"""Deliveries stay in the inbox until they are processed, and each leads to its job once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox, StoredDelivery
from patchwright.bot.thread_forge import NullForge
from patchwright.bot.triggers.delivery_processor import DELIVERY_TIMEOUT_SECONDS, DeliveryProcessor
from patchwright.bot.webhooks.delivery import InstallationChanged
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.resolver.authorization import Permission
from patchwright.resolver.domain import Repo, User
from patchwright.resolver.errors import ForgeError
from tests.bot.deliveries import COMMENTED, ISSUE, LABELED, SENDER, signed
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import RecordingHandler, running_worker, wait_for_state
from tests.bot.local_services import local_handler

pytestmark = pytest.mark.redis


@asynccontextmanager
async def processing_inbox(
    inbox: DeliveryInbox, queue: InlineQueue | ArqQueue, name: str = "one"
) -> AsyncIterator[None]:
    task = asyncio.create_task(
        DeliveryProcessor(inbox, local_handler(queue, Triggers(), NullForge()), name).run()
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def put(inbox: DeliveryInbox, event: str, payload: object, guid: str = "g-1") -> None:
    _, body = signed(event, payload)
    await inbox.put(guid, event, body)


async def wait_until_empty(inbox: DeliveryInbox) -> None:
    async with asyncio.timeout(20):
        while await inbox.size():
            await asyncio.sleep(0.05)


async def test_a_label_and_its_redeliveries_become_one_job(inbox: DeliveryInbox, url: str) -> None:
    queue, handler = ArqQueue(url, is_only_worker=True), RecordingHandler()
    handler.go.set()
    for _ in range(100):
        await put(inbox, "issues", LABELED)
    async with running_worker(queue, handler), processing_inbox(inbox, queue):
        await wait_until_empty(inbox)
        (job,) = handler.started or [(await asyncio.wait_for(wait_for_first_job(handler), 10))]
        record = await wait_for_state(queue, job)
        await put(inbox, "issues", LABELED)
        await wait_until_empty(inbox)
        await asyncio.sleep(0.6)
    assert (str(record.job.repo), record.job.number, record.job.installation_id) == ("acme/sample", 7, 31)
    assert list(handler.started.values()) == [1]
    await queue.close()


async def wait_for_first_job(handler: RecordingHandler) -> str:
    await handler.running.wait()
    return next(iter(handler.started))


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
async def test_malformed_deliveries_and_those_without_a_request_are_dropped(
    inbox: DeliveryInbox, event: str, payload: object
) -> None:
    queue = InlineQueue()
    await put(inbox, event, payload)
    await put(inbox, "issue_comment", COMMENTED | {"sender": SENDER}, "g-2")
    async with processing_inbox(inbox, queue):
        await wait_until_empty(inbox)
    assert len(queue.known) == 1


async def test_deliveries_of_a_dead_consumer_are_claimed(url: str) -> None:
    inbox = DeliveryInbox(url, claim_idle_ms=300)
    await put(inbox, "issues", LABELED)
    (delivery,) = await inbox.read("dead")
    assert isinstance(delivery, StoredDelivery)
    queue = InlineQueue()
    async with processing_inbox(inbox, queue, "living"):
        await wait_until_empty(inbox)
    assert len(queue.known) == 1
    await inbox.close()


class InterruptedInbox(DeliveryInbox):
    """An inbox that cannot be read at first."""

    is_down = True

    async def read(self, consumer: str) -> tuple[StoredDelivery, ...]:
        if self.is_down:
            self.is_down = False
            raise QueueDown("Redis does not respond")
        return await super().read(consumer)


async def test_the_processor_survives_an_interruption_of_redis(url: str) -> None:
    inbox, queue = InterruptedInbox(url), InlineQueue()
    await put(inbox, "issues", LABELED)
    async with processing_inbox(inbox, queue):
        await wait_until_empty(inbox)
    assert not inbox.is_down and len(queue.known) == 1
    await inbox.close()


class HangingForge(NullForge):
    """A forge whose first response waits for an event."""

    def __init__(self) -> None:
        self.check_started = asyncio.Event()
        self.go = asyncio.Event()

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        if not self.check_started.is_set():
            self.check_started.set()
            await self.go.wait()
        return "write"


async def test_a_delivery_whose_forge_hangs_does_not_delay_later_ones(inbox: DeliveryInbox) -> None:
    queue, forge = InlineQueue(), HangingForge()
    processing = asyncio.create_task(
        DeliveryProcessor(inbox, local_handler(queue, Triggers(), forge), "one").run()
    )
    comment = COMMENTED | {"sender": SENDER}
    await put(inbox, "issue_comment", comment | {"comment": COMMENTED["comment"] | {"body": "@agent stop"}})
    async with asyncio.timeout(20):
        await forge.check_started.wait()
    await put(inbox, "issues", LABELED, "g-2")
    async with asyncio.timeout(DELIVERY_TIMEOUT_SECONDS / 2):
        while not queue.known:
            await asyncio.sleep(0.02)
    forge.go.set()
    await wait_until_empty(inbox)
    processing.cancel()
    await asyncio.gather(processing, return_exceptions=True)


class InstallationAccess:
    """Knows the App's installation in every repository."""

    def __init__(self, installation_id: int, error: ForgeError | None = None) -> None:
        self.installation_id = installation_id
        self.error = error

    async def has_access(self, repo: Repo) -> bool:
        return True

    async def is_own_installation(self, repo: Repo, installation_id: int) -> bool:
        if self.error is not None:
            raise self.error
        return installation_id == self.installation_id

    async def log_missing_permissions(self, change: InstallationChanged) -> None:
        return


@pytest.mark.parametrize(
    ("access", "queued"),
    [
        (InstallationAccess(32), 0),
        (InstallationAccess(31), 1),
        (InstallationAccess(32, ForgeError("GitHub is down")), 1),
        (None, 1),  # Positive control: without the check, the delivery is processed.
    ],
)
async def test_a_delivery_of_another_installation_is_ignored(
    inbox: DeliveryInbox, access: InstallationAccess | None, queued: int, caplog: pytest.LogCaptureFixture
) -> None:
    queue = InlineQueue()
    processor = DeliveryProcessor(inbox, local_handler(queue, Triggers(), NullForge()), "one", access)
    _, body = signed("issues", LABELED)
    await processor.process(StoredDelivery(entry_id="1-1", guid="g-1", event="issues", body=body))
    assert len(queue.known) == queued
    assert ("delivery of another installation ignored" in caplog.text) == (not queued)
