"""Deliveries that reached nobody are asked for again, a bounded number of times, and arrive as they were."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.github.rest import Rest
from bot.http import Server, listening, url_of
from bot.reconcile.apart import Apart
from bot.reconcile.redelivery import MOST_ASKED, AppWebhook, Redelivery, RepositoryWebhook, Webhook, Webhooks
from bot.redis.inbox import Inbox
from bot.webhooks.intake import Intake
from bot.webhooks.receiver import Receiver
from demo.world import Delivery, World
from resolver.domain import Job
from tests.bot.reconcile.lookouts import PATIENT, SAMPLE, Place, a_place, with_token

pytestmark = pytest.mark.redis

SECRET = "s3cret"


@pytest.fixture
async def place(short_tmp: Path) -> AsyncIterator[Place]:
    async with a_place(short_tmp) as place:
        yield place


@asynccontextmanager
async def receiving(place: Place, port: int) -> AsyncIterator[Inbox]:
    """The receiver at this port, and a worker that deals with what it stores."""
    inbox = Inbox(place.url)
    with listening("127.0.0.1", port) as socket:
        server = Server(Receiver(inbox, SECRET))
        tasks = [
            asyncio.create_task(server.serve(sockets=[socket])),
            asyncio.create_task(Intake(inbox, place.desk, "one").run()),
        ]
        try:
            yield inbox
        finally:
            server.should_exit = True
            await tasks[0]
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await inbox.close()


async def dealt_with(world: World, inbox: Inbox) -> None:
    """Waits for what is being delivered, until it has become what it becomes."""
    await world.all_sent()
    while await inbox.size():
        await asyncio.sleep(0.02)


def free_port() -> int:
    with listening("127.0.0.1", 0) as socket:
        return int(url_of(socket).rpartition(":")[2])


async def told(world: World, place: Place, count: int) -> list[Job]:
    """Labels, mentions and things that ask for nothing."""
    jobs = []
    for number in range(count):
        thread = world.issue(place.repo, title=f"{number}", body="B", by="stranger")
        jobs.append(place.job_of(await world.label(thread, "fix-me", by="maintainer")))
        jobs.append(place.job_of(await world.comment(thread, "@agent mend it", by="maintainer")))
        await world.comment(thread, "Hello.", by="stranger")
    return jobs


async def arrived(place: Place, jobs: list[Job], seconds: float = 20) -> None:
    wanted = {job.id for job in jobs}
    async with asyncio.timeout(seconds):
        while await place.open() != wanted:
            await asyncio.sleep(0.05)


async def test_a_receiver_that_was_away_for_three_days_gets_everything(place: Place) -> None:
    world, port = place.world, free_port()
    hook = world.hook(f"http://127.0.0.1:{port}/webhook", SECRET)
    jobs: list[Job] = []
    for _ in range(5):
        jobs += await told(world, place, 4)
        world.pass_time(hours=14)
    world.pass_time(hours=1)  # 71 since the first
    lost = {one.guid for one in world.deliveries if one.hook is hook}
    async with receiving(place, port):
        asking = Redelivery(place.rest, AppWebhook(), clock=world.now)
        assert await asking.ask_again() == 50
        await world.all_sent()
        world.pass_time(minutes=1)
        while await asking.ask_again():
            await world.all_sent()
            world.pass_time(minutes=1)
        await arrived(place, jobs)
        again = [one for one in world.deliveries if one.hook is hook and one.redelivery]
        assert {one.status for one in again} == {202}
        assert {one.guid for one in again} == lost


async def test_what_is_older_is_left_to_looking(place: Place) -> None:
    world = place.world
    await told(world, place, 2)
    world.pass_time(days=3, minutes=1)
    asking = Redelivery(place.rest, AppWebhook(), clock=world.now)
    assert await asking.ask_again() == 0
    assert len(place.world.deliveries) == 6


async def test_what_never_arrives_is_asked_for_a_bounded_number_of_times(place: Place) -> None:
    world = place.world
    await told(world, place, 1)
    asking = Redelivery(place.rest, AppWebhook(), clock=world.now)
    times = [0.0]
    for minute in range(0, 400, 4):
        if await asking.ask_again():
            times.append(minute)
            await world.all_sent()
        world.pass_time(minutes=4)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(pauses) == MOST_ASKED
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 64
    tries = Counter(one.guid for one in world.deliveries)
    assert set(tries.values()) == {1 + MOST_ASKED}
    fresh = Redelivery(place.rest, AppWebhook(), clock=world.now)  # GitHub remembers for a worker that is new
    assert await fresh.ask_again() == 0


async def test_one_that_arrived_with_a_later_attempt_is_not_asked_for(place: Place) -> None:
    world, port = place.world, free_port()
    hook = world.hook(f"http://127.0.0.1:{port}/webhook", SECRET)
    jobs = await told(world, place, 2)
    async with receiving(place, port):
        sent: list[Delivery] = [one for one in world.deliveries if one.hook is hook]
        random.Random(1).shuffle(sent)
        for one in sent * 2:
            await world.redeliver(one)
        await arrived(place, jobs)
        seen = len([one for one in world.deliveries if one.hook is hook])
        asking = Redelivery(place.rest, AppWebhook(), clock=world.now)
        await asking.ask_again()
        await world.all_sent()
        assert len([one for one in world.deliveries if one.hook is hook]) == seen


async def listed(rest: Rest, url: str | None) -> list[Webhook]:
    return await Webhooks(rest, [SAMPLE], url, lambda one: Redelivery(rest, one)).listed(Apart())


async def test_a_webhook_of_a_repository_is_asked_with_a_token(short_tmp: Path) -> None:
    async with World() as world, embedded_redis(short_tmp):
        repo = world.repository("acme/sample", {"x": "y"}, permissions={"maintainer": "admin", "w": "write"})
        hook = world.hook("http://127.0.0.1:1/webhook", SECRET, repo)
        world.hook("http://127.0.0.1:1/somebody-elses", SECRET, repo)
        thread = world.issue(repo, title="T", body="B", by="stranger")
        await world.label(thread, "fix-me", by="maintainer")
        rest, weak = with_token(world, "maintainer"), with_token(world, "w")
        found = await listed(rest, hook.url)
        assert found == [RepositoryWebhook(SAMPLE, hook.id)]
        assert await listed(rest, None) == []
        assert await listed(weak, hook.url) == []  # said in the log; looking does without
        world.pass_time(minutes=2)
        assert await Redelivery(rest, found[0], clock=world.now).ask_again() == 1
        await world.all_sent()
        assert [one.hook for one in world.deliveries if one.redelivery] == [hook]
        await rest.aclose()
        await weak.aclose()


async def test_looking_and_asking_together_bring_everything_within_ten_minutes(place: Place) -> None:
    world, port = place.world, free_port()
    world.hook(f"http://127.0.0.1:{port}/webhook", SECRET)
    jobs = await told(world, place, 10)
    world.pass_time(days=2, hours=23)
    looker, begun = place.looker(PATIENT, redelivers=True), world.now()
    async with receiving(place, port) as inbox:
        while await place.open() != {job.id for job in jobs}:
            await looker.look()
            await dealt_with(world, inbox)
            world.pass_time(minutes=1)
            assert world.now() - begun < timedelta(minutes=10)
        await looker.look()
        await dealt_with(world, inbox)
        assert await place.open() == {job.id for job in jobs}
