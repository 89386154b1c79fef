"""Failed deliveries are requested again, a limited number of times, and arrive unchanged."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from patchwright.bot.http_server import HttpServer, listener_url, open_listener
from patchwright.bot.reconcile.redelivery import (
    MAX_REDELIVERIES,
    Redelivery,
)
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.triggers.delivery_processor import DeliveryProcessor
from patchwright.bot.webhooks.receiver import Receiver
from patchwright.demo.github import Delivery, FakeGitHub
from patchwright.resolver.domain import Job
from tests.bot.reconcile.deployments import WITH_GRACE, Deployment, open_deployment

pytestmark = pytest.mark.redis

SECRET = "s3cret"


@pytest.fixture
async def deployment(short_tmp: Path) -> AsyncIterator[Deployment]:
    async with open_deployment(short_tmp) as deployment:
        yield deployment


@asynccontextmanager
async def running_receiver(deployment: Deployment, port: int) -> AsyncIterator[DeliveryInbox]:
    """Runs a receiver at this port and a processor of its inbox."""
    inbox = DeliveryInbox(deployment.url)
    with open_listener("127.0.0.1", port) as socket:
        server = HttpServer(Receiver(inbox, SECRET))
        tasks = [
            asyncio.create_task(server.serve(sockets=[socket])),
            asyncio.create_task(DeliveryProcessor(inbox, deployment.handler, "one").run()),
        ]
        try:
            yield inbox
        finally:
            server.should_exit = True
            await tasks[0]
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await inbox.close()


async def wait_until_processed(fake_github: FakeGitHub, inbox: DeliveryInbox) -> None:
    """Waits until all deliveries have arrived and are processed."""
    await fake_github.wait_for_deliveries()
    while await inbox.size():
        await asyncio.sleep(0.02)


def free_port() -> int:
    with open_listener("127.0.0.1", 0) as socket:
        return int(listener_url(socket).rpartition(":")[2])


async def send_events(fake_github: FakeGitHub, deployment: Deployment, count: int) -> list[Job]:
    """Sends labels, mentions and comments without a mention, and returns the jobs that they request."""
    jobs = []
    for number in range(count):
        thread = fake_github.create_issue(deployment.repo, title=f"{number}", body="B", by="stranger")
        jobs.append(deployment.job_of(await fake_github.add_label(thread, "fix-me", by="maintainer")))
        jobs.append(
            deployment.job_of(await fake_github.add_comment(thread, "@agent fix it", by="maintainer"))
        )
        await fake_github.add_comment(thread, "Hello.", by="stranger")
    return jobs


async def wait_for_jobs(deployment: Deployment, jobs: list[Job], seconds: float = 20) -> None:
    wanted = {job.id for job in jobs}
    async with asyncio.timeout(seconds):
        while await deployment.open() != wanted:
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_receiver_that_was_down_for_three_days_gets_every_delivery(deployment: Deployment) -> None:
    fake_github, port = deployment.fake_github, free_port()
    webhook = fake_github.add_webhook(f"http://127.0.0.1:{port}/webhook", SECRET)
    jobs: list[Job] = []
    for _ in range(5):
        jobs += await send_events(fake_github, deployment, 4)
        fake_github.advance_time(hours=14)
    fake_github.advance_time(hours=1)  # 71 hours since the first
    lost = {delivery.guid for delivery in fake_github.deliveries if delivery.hook is webhook}
    async with running_receiver(deployment, port):
        redelivery = Redelivery(deployment.rest, clock=fake_github.now)
        assert await redelivery.redeliver() == 50
        await fake_github.wait_for_deliveries()
        fake_github.advance_time(minutes=1)
        while await redelivery.redeliver():
            await fake_github.wait_for_deliveries()
            fake_github.advance_time(minutes=1)
        await wait_for_jobs(deployment, jobs)
        redelivered = [
            delivery
            for delivery in fake_github.deliveries
            if delivery.hook is webhook and delivery.redelivery
        ]
        assert {delivery.status for delivery in redelivered} == {202}
        assert {delivery.guid for delivery in redelivered} == lost


async def test_older_deliveries_are_left_to_polling(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    await send_events(fake_github, deployment, 2)
    fake_github.advance_time(days=3, minutes=1)
    redelivery = Redelivery(deployment.rest, clock=fake_github.now)
    assert await redelivery.redeliver() == 0
    assert len(deployment.fake_github.deliveries) == 6


@pytest.mark.slow
async def test_redeliveries_of_one_delivery_are_limited(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    await send_events(fake_github, deployment, 1)
    redelivery = Redelivery(deployment.rest, clock=fake_github.now)
    times = [0.0]
    for minute in range(0, 400, 4):
        if await redelivery.redeliver():
            times.append(minute)
            await fake_github.wait_for_deliveries()
        fake_github.advance_time(minutes=4)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(pauses) == MAX_REDELIVERIES
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 64
    tries = Counter(delivery.guid for delivery in fake_github.deliveries)
    assert set(tries.values()) == {1 + MAX_REDELIVERIES}
    another = Redelivery(
        deployment.rest, clock=fake_github.now
    )  # a new worker reads the attempts from GitHub
    assert await another.redeliver() == 0


async def test_a_delivery_that_arrived_later_is_not_requested_again(deployment: Deployment) -> None:
    fake_github, port = deployment.fake_github, free_port()
    webhook = fake_github.add_webhook(f"http://127.0.0.1:{port}/webhook", SECRET)
    jobs = await send_events(fake_github, deployment, 2)
    async with running_receiver(deployment, port):
        sent: list[Delivery] = [delivery for delivery in fake_github.deliveries if delivery.hook is webhook]
        random.Random(1).shuffle(sent)
        for delivery in sent * 2:
            await fake_github.redeliver(delivery)
        await wait_for_jobs(deployment, jobs)
        count = len([delivery for delivery in fake_github.deliveries if delivery.hook is webhook])
        redelivery = Redelivery(deployment.rest, clock=fake_github.now)
        await redelivery.redeliver()
        await fake_github.wait_for_deliveries()
        assert len([delivery for delivery in fake_github.deliveries if delivery.hook is webhook]) == count


@pytest.mark.slow
async def test_polling_and_redelivery_recover_everything_within_ten_minutes(deployment: Deployment) -> None:
    fake_github, port = deployment.fake_github, free_port()
    fake_github.add_webhook(f"http://127.0.0.1:{port}/webhook", SECRET)
    jobs = await send_events(fake_github, deployment, 10)
    fake_github.advance_time(days=2, hours=23)
    reconciler, started_at = deployment.build_reconciler(WITH_GRACE, has_webhook=True), fake_github.now()
    async with running_receiver(deployment, port) as inbox:
        while await deployment.open() != {job.id for job in jobs}:
            await reconciler.reconcile()
            await wait_until_processed(fake_github, inbox)
            fake_github.advance_time(minutes=1)
            assert fake_github.now() - started_at < timedelta(minutes=10)
        await reconciler.reconcile()
        await wait_until_processed(fake_github, inbox)
        assert await deployment.open() == {job.id for job in jobs}
