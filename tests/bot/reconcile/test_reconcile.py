"""What no delivery has told, or what Redis has forgotten, is found again at GitHub, and done once."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bot.ci.watch import CiWatch
from bot.desk import Desk, is_under_way
from bot.github.rest import Rest
from bot.reconcile.reconcile import NOWHERE_SECONDS, Rhythm
from bot.redis.client import redis_client
from bot.redis.inbox import Inbox, Letter
from bot.redis.queue import ArqQueue
from bot.webhooks.delivery import Labelled, read
from bot.webhooks.intake import Intake
from bot.webhooks.triggers import names_of
from demo.world import Issue, Pull
from resolver import prose
from resolver.errors import RateLimited
from tests.bot.jobs import Handlers, settled, working
from tests.bot.reconcile.lookouts import PATIENT, PERMISSIONS, QUICK, Place, a_place, access

pytestmark = pytest.mark.redis


@pytest.fixture
async def place(short_tmp: Path) -> AsyncIterator[Place]:
    async with a_place(short_tmp) as place:
        yield place


def issue(place: Place) -> Issue:
    return place.world.issue(place.repo, title="add() subtracts", body="It does.", by="stranger")


def pull(place: Place) -> Pull:
    place.repo.commit("topic", {"calc.py": "x = 1\ny = 3\n"})
    return place.world.pull(place.repo, "topic", by="stranger")


async def test_what_no_delivery_told_becomes_the_job_that_it_would_have_become(place: Place) -> None:
    world, on_issue, on_pull = place.world, issue(place), pull(place)
    review = world.reviewed(on_pull, ("calc.py", 2, "@agent why 3?"), by="maintainer", body="Hm.")
    missed = [
        await world.label(on_issue, "fix-me", by="maintainer"),
        await world.comment(on_issue, "@agent mend it", by="maintainer"),
        await world.label(on_pull, "fix-me", by="maintainer"),
        await world.comment(on_pull, "@agent rebase", by="maintainer"),
        (await world.tell_review(on_pull, review))[1],
    ]
    alone = world.reviewed(on_pull, by="maintainer", body="@agent mind this")
    missed += await world.tell_review(on_pull, alone)
    jobs = [place.job_of(one) for one in missed]
    looker = place.looker()
    await looker.look()
    assert await place.open() == {job.id for job in jobs}
    for job in jobs:
        record = await place.queue.state(job.id)
        assert record is not None and record.job == job
    await looker.look()
    assert len(await place.open()) == len(jobs)


ACTS = {
    "a mention in code": "Say `@agent go`.",
    "a mention in a quotation": "> @agent go\n\nNo.",
    "a mention that nobody sees": "<!-- @agent go -->",
    "a word that only looks so": "mail me@agent.com",
    "our own words": "<!-- patchwright:x -->\n@agent go",
}


@pytest.mark.parametrize("text", ACTS.values(), ids=ACTS)
async def test_what_is_no_mention_is_none_when_it_is_found(place: Place, text: str) -> None:
    place.world.said(issue(place), text, by="maintainer")
    await place.looker().look()
    assert await place.open() == set()


async def test_what_was_taken_back_or_done_by_a_machine_is_not_found(place: Place) -> None:
    world = place.world
    bot = issue(place)
    world.user("robot[bot]").kind = "Bot"
    world.said(bot, "@agent go", by="robot[bot]")
    world.labelled(bot, "fix-me", by="robot[bot]")
    edited = issue(place)
    world.edit(edited, world.said(edited, "Hello.", by="maintainer"), "@agent go")
    removed = issue(place)
    world.labelled(removed, "fix-me", by="maintainer")
    await world.unlabel(removed, "fix-me", by="maintainer")
    closed = issue(place)
    world.labelled(closed, "fix-me", by="maintainer")
    world.said(closed, "@agent go", by="maintainer")
    world.close(closed)
    other = issue(place)
    world.labelled(other, "bug", by="maintainer")
    await place.looker().look()
    assert await place.open() == set()


async def test_what_is_young_is_left_to_its_delivery_and_found_later(place: Place) -> None:
    world, looker = place.world, place.looker(PATIENT)
    told = await world.label(issue(place), "fix-me", by="maintainer")
    world.pass_time(seconds=100)
    await looker.look()
    assert await place.open() == set()
    world.pass_time(seconds=40)
    await looker.look()
    assert await place.open() == {place.job_of(told).id}


async def test_what_was_left_to_its_delivery_is_looked_at_again_when_that_is_late(place: Place) -> None:
    rarely = Rhythm(every=600, all=600, grace=2, settle=0)
    told = await place.world.label(issue(place), "fix-me", by="maintainer")
    running = asyncio.create_task(place.looker(rarely).run())
    async with asyncio.timeout(60):  # a tenth of what the next look of all would take
        while not await place.open():
            await asyncio.sleep(0.02)
    assert await place.open() == {place.job_of(told).id}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_a_webhook_who_is_installed_nowhere_looks_again_soon(place: Place) -> None:
    app = place.world.app("later", PERMISSIONS)
    rest = Rest(access(app), place.world.api_url, None, QUICK)
    seldom = Rhythm(every=600, all=0, grace=0, settle=0)
    nowhere = replace(place, rest=rest).looker(seldom)
    assert await nowhere._turn() == NOWHERE_SECONDS
    place.world.install(app, place.repo)
    assert await nowhere._turn() == 600
    await rest.aclose()


async def test_nothing_is_found_twice_however_it_comes(place: Place) -> None:
    world, looker, inbox = place.world, place.looker(), Inbox(place.url)
    intake = Intake(inbox, place.desk, "one")
    told = []
    for number in range(6):
        thread = issue(place)
        told.append(await world.label(thread, "fix-me", by="maintainer"))
        told.append(await world.comment(thread, "@agent mend it", by="maintainer"))
        letters = [Letter(id="1", guid=one.guid, event=one.event, body=one.body) for one in told] * 2
        random.Random(number).shuffle(letters)
        for letter in letters[: len(letters) // 2]:
            await intake.deal_with(letter)
        await looker.look()
        for letter in letters:
            await intake.deal_with(letter)
        assert await place.open() == {place.job_of(one).id for one in told}
    await inbox.close()


async def test_a_label_that_its_delivery_dates_a_second_later_is_the_same(place: Place) -> None:
    world, inbox = place.world, Inbox(place.url)
    told = await world.label(issue(place), "fix-me", by="maintainer")
    await place.looker().look()
    at = read(told.event, told.body)
    assert isinstance(at, Labelled)
    later = (datetime.fromisoformat(at.at) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = told.body.replace(f'"updated_at": "{at.at}"'.encode(), f'"updated_at": "{later}"'.encode())
    assert body != told.body
    intake = Intake(inbox, place.desk, "one")
    await intake.deal_with(Letter(id="1", guid="g", event="issues", body=body))
    assert await place.open() == {place.job_of(told).id}
    assert place.job_of(told).id in names_of(read("issues", body), place.job_of(told))
    await inbox.close()


async def test_a_label_put_on_again_asks_again(place: Place) -> None:
    world, looker, thread = place.world, place.looker(), issue(place)
    world.labelled(thread, "fix-me", by="maintainer")
    await looker.look()
    (first,) = await place.open()
    await world.unlabel(thread, "fix-me", by="maintainer")
    world.labelled(thread, "fix-me", by="maintainer")
    await looker.look()
    assert len(await place.open() - {first}) == 1


async def test_a_label_in_another_case_is_found_as_the_job_that_its_delivery_made_and_taken_away_as_well(
    place: Place,
) -> None:
    world, looker, thread = place.world, place.looker(), issue(place)
    told = await world.label(thread, "Fix-Me", by="maintainer")
    await place.desk.take(read(told.event, told.body))
    (job,) = await place.open()
    await looker.look()
    assert await place.open() == {job}
    away = await world.unlabel(thread, "Fix-Me", by="maintainer")
    await place.desk.take(read(away.event, away.body))
    assert await place.open() == set()


async def wipe(url: str) -> None:
    redis = redis_client(url)
    await redis.flushall()
    await redis.aclose()


async def test_a_wiped_redis_is_rebuilt_while_jobs_wait_and_run_and_none_is_done_twice(place: Place) -> None:
    world, handler = place.world, Handlers()
    queue = ArqQueue(place.url, at_once=1, lease_seconds=3)
    other = ArqQueue(place.url, at_once=4, lease_seconds=3)
    told = [await world.label(issue(place), "fix-me", by="maintainer") for _ in range(3)]
    jobs = {place.job_of(one).id for one in told}
    looker = place.looker()
    async with working(queue, handler):
        await looker.look()
        await asyncio.wait_for(handler.running.wait(), 10)
        (running,) = handler.begun
        await wipe(place.url)
        await settled(queue, running, "running", 60)  # whoever does it has said so again
        async with working(other, handler):
            await looker.look()
            assert await place.open() == jobs
            async with asyncio.timeout(60):
                while set(handler.begun) != jobs:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(4)  # longer than a lease: nobody takes what is held
            handler.go.set()
            for job in jobs:
                assert (await settled(queue, job)).state == "ended"
            await looker.look()
    assert handler.begun == dict.fromkeys(jobs, 1)
    await queue.close()
    await other.close()


async def test_what_our_comment_shows_to_be_done_is_not_done_again(place: Place) -> None:
    world, looker = place.world, place.looker()
    threads = [issue(place) for _ in range(3)]
    done, under_way, forged = [
        place.job_of(await world.label(one, "fix-me", by="maintainer")) for one in threads
    ]
    said = "<!-- patchwright:{} -->\n{}"
    refusal = prose.refused("You may not.")
    world.said(threads[0], said.format(done.id, refusal), by="patchwright[bot]")
    world.said(threads[1], said.format(under_way.id, prose.working()), by="patchwright[bot]")
    world.said(threads[2], said.format(forged.id, refusal), by="stranger")
    await looker.look()
    assert await place.known(done, under_way, forged) == [False, True, True]


def test_a_status_comment_shows_whether_its_run_has_ended() -> None:
    assert is_under_way(prose.working())
    assert not is_under_way(prose.refused("You may not."))
    assert not is_under_way(prose.failed("No model answers.", "run"))


async def test_a_quiet_minute_costs_one_question_a_repository(place: Place) -> None:
    world, looker, thread = place.world, place.looker(), issue(place)
    world.labelled(thread, "fix-me", by="maintainer")
    for _ in range(3):
        await looker.look()
    # Were one of these asked for now, the look would fail.
    for path in ("/issues/comments", "/events", "/pulls/comments", "/installation/repositories"):
        world.refuse_next("GET", path, status=429, headers={"retry-after": "60"}, times=4)
    for _ in range(3):
        await looker.look()
    world.said(thread, "@agent and this", by="maintainer")
    with pytest.raises(RateLimited):
        await looker.look()


async def test_a_quiet_look_counts_against_no_rate_limit_and_what_comes_next_is_seen(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    world, watch = place.world, CiWatch(place.queue, place.forge, "patchwright/", clock=place.world.now)
    place.desk = Desk(place.queue, place.rules, place.forge, checks=watch)
    place.repo.commit("patchwright/issue-1", {"calc.py": "x = 2\n"})
    ours = world.pull(place.repo, "patchwright/issue-1", by="patchwright[bot]")
    looker = place.looker()
    for _ in range(3):
        await looker.look()
    caplog.set_level(logging.INFO, "httpx")
    await looker.look()
    asked = [one.getMessage() for one in caplog.records if one.name == "httpx"]
    assert len(asked) == 3
    assert all("304 Not Modified" in one for one in asked), asked
    new = place.repo.commit("patchwright/issue-1", {"calc.py": "x = 3\n"})
    world.ci.check(place.repo, new, "test")
    await looker.look()
    (job,) = [record.job for record in await place.queue.everywhere()]
    assert (job.number, job.checks) == (ours.number, new)
    await place.desk.close()


async def test_one_worker_looks_and_another_goes_on_when_it_leaves(place: Place) -> None:
    first, second = place.looker(name="first"), place.looker(name="second")
    running = asyncio.create_task(first.run())
    async with asyncio.timeout(60):
        while not await place.lookout.seen():
            await asyncio.sleep(0.02)
    assert not await place.lookout.is_mine("second")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    place.world.labelled(issue(place), "fix-me", by="maintainer")
    running = asyncio.create_task(second.run())
    async with asyncio.timeout(60):
        while not await place.open():
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_cannot_be_looked_at_does_not_hide_the_rest(place: Place) -> None:
    world = place.world
    gone = world.repository("acme/another", {"x": "y"}, permissions={"maintainer": "write"})
    world.install(place.app, gone)
    world.refuse_next("GET", "/acme/sample/issues", status=404)
    thread = world.issue(gone, title="T", body="B", by="stranger")
    world.labelled(thread, "fix-me", by="maintainer")
    looker = place.looker()
    await looker.look()
    assert [name.split("-")[1] for name in await place.open()] == ["another"]
    world.refuse_next("GET", "/acme/sample/issues", status=502, times=9)
    running = asyncio.create_task(looker.run())
    await asyncio.sleep(0.5)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
