"""A run watched while it goes on: whoever comes late gets what was and then what comes, in order."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from bot.page.live import MOST_RUNS
from bot.page.source import MOST_LINE
from bot.redis.client import redis_client
from resolver.events import Call, Decided, Observed, Told, Usage
from runtime.actions import RunShell
from runtime.observations import Ran
from tests.page.conftest import SECRET, Room
from tests.page.streaming import watching
from tests.resolver.seen_runs import started, whole_run

pytestmark = pytest.mark.redis

RUN = "acme-calc-1-live"


def said(number: int) -> Told:
    return Told(text=f"word {number}", source="comment")


async def test_somebody_who_comes_late_gets_the_past_and_then_the_present_in_order(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started(), *map(said, range(1, 6)))
        async with watching(browser, RUN) as watch:
            assert watch.answer.headers["content-type"].startswith("text/event-stream")
            assert await watch.entries(6) == list("012345")
            await worker.write(said(6), said(7))
            assert await watch.entries(2) == ["6", "7"]


async def test_a_page_is_told_only_what_is_not_in_it(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started(), said(1))
        page = (await browser.get(f"/runs/{RUN}")).text
        assert f'data-events="/runs/{RUN}/events?after=1"' in page
        assert "word 1" in page
        async with watching(browser, RUN, after=1) as watch:
            await worker.write(said(2))
            told = await watch.until("entries")
            assert (told.id, list(told.data["items"])) == ("2", ["e2"])
            assert "word 2" in told.data["items"]["e2"]


async def test_a_connection_that_broke_goes_on_where_it_was(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started(), said(1))
        async with watching(browser, RUN, after=0) as watch:
            assert await watch.entries(1) == ["1"]
        await worker.write(said(2), said(3))
        async with watching(browser, RUN, after=0, last="1") as watch:
            assert await watch.entries(2) == ["2", "3"]


async def test_a_call_appears_when_it_is_made_and_is_answered_in_its_place(room: Room) -> None:
    browser = await room.operator()
    call = Call(id="a", action=RunShell(command="make test"))
    async with room.running(RUN) as worker, watching(browser, RUN) as watch:
        await worker.write(started(), Decided(thought="Look.", calls=(call,), usage=Usage(model="m")))
        await watch.until("entries")
        asked = (await watch.until("entries")).data["items"]
        assert list(asked) == ["e1", "e1.1"]
        assert "make test" in asked["e1.1"]
        await worker.write(
            Observed(call="a", observation=Ran(output="2 failed", exit_code=1, cwd="/", seconds=1))
        )
        answered = (await watch.until("entries")).data["items"]
        assert list(answered) == ["e1.1"]
        assert "2 failed" in answered["e1.1"]


async def test_what_the_run_has_come_to_is_told_beside(room: Room) -> None:
    browser = await room.operator()
    events = list(whole_run())
    async with room.running(RUN) as worker, watching(browser, RUN) as watch:
        await worker.write(*events)
        while "fixed" not in (told := await watch.until("head")).data["title"]:
            pass
        assert "Pull request #8 is open." in told.data["head"]
        assert "Reproduce it" in told.data["beside"]
        assert '<th scope="row">run shell</th><td>1</td>' in told.data["beside"]


async def test_the_stream_ends_with_the_run_and_that_is_told(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started(), said(1))
        job = worker.job
    await room.end(job)
    async with watching(browser, RUN, after=0) as watch:
        assert await watch.entries(1) == ["1"]
        assert (await watch.until("end")).data == {"last": 1, "cut": False}
        assert await watch.next() is None
    page = (await browser.get(f"/runs/{RUN}")).text
    assert "data-events" not in page


async def test_an_entry_too_large_to_show_ends_the_stream_and_the_page_says_so(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started(), said(1))
        async with watching(browser, RUN) as watch:
            assert await watch.entries(2) == ["0", "1"]
            await worker.write(Told(text="x" * MOST_LINE, source="comment"), said(3))
            assert (await watch.until("end")).data == {"last": 1, "cut": True}
        async with watching(browser, RUN) as late:
            assert await late.entries(2) == ["0", "1"]
            assert (await late.until("end")).data == {"last": 1, "cut": True}
        page = (await browser.get(f"/runs/{RUN}")).text
        assert ("The rest is too large to be shown here" in page, "data-events" in page) == (True, False)


async def test_many_watch_one_run_and_all_see_the_same(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started())

        async def watch() -> list[str]:
            async with watching(browser, RUN) as one:
                return await one.entries(11)

        seen = [asyncio.create_task(watch()) for _ in range(20)]
        for number in range(1, 11):
            await worker.write(said(number))
        assert await asyncio.gather(*seen) == [[str(number) for number in range(11)]] * 20


async def test_a_run_that_waits_is_watched_from_its_beginning(room: Room) -> None:
    browser = await room.operator()
    job = room.job(RUN)
    await room.queue.put(job)
    page = (await browser.get(f"/runs/{RUN}")).text
    assert "events?after=-1" in page
    async with watching(browser, RUN, after=-1) as watch, room.running(RUN) as worker:
        await worker.write(started())
        assert await watch.entries(1) == ["0"]


async def test_a_wiped_redis_repeats_nothing_and_loses_nothing(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started(), said(1))
        async with watching(browser, RUN) as watch:
            assert await watch.entries(2) == ["0", "1"]
            redis = redis_client(room.redis)
            await redis.delete(f"patchwright:log:{RUN}")
            await redis.aclose(close_connection_pool=True)
            await worker.write(said(2))  # its worker writes all of it again
            await worker.write(said(3))
            assert await watch.entries(2) == ["2", "3"]


async def test_no_secret_is_told(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker, watching(browser, RUN) as watch:
        await worker.write(
            started(title=f"The key is {SECRET}"), Told(text=f"x {SECRET} y", source="comment")
        )
        told = [await watch.until("entries"), await watch.until("entries"), await watch.until("head")]
        assert "x &lt;secret-hidden&gt; y" in told[1].data["items"]["e1"]
        assert SECRET not in str(told)
        assert SECRET not in (await browser.get(f"/runs/{RUN}")).text


async def test_a_place_that_there_cannot_be_is_refused(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker:
        await worker.write(started())
        for last in ("-2", "x", "1e3", "99999999999", "²"):
            answer = await browser.get(f"/runs/{RUN}/events", params={"after": last})
            assert (last, answer.status_code) == (last, 400)


async def test_a_place_behind_the_end_waits_for_it(room: Room) -> None:
    browser = await room.operator()
    async with room.running(RUN) as worker, watching(browser, RUN, after=2) as watch:
        await worker.write(started(), said(1), said(2), said(3))
        assert await watch.entries(1) == ["3"]


async def test_more_runs_than_are_followed_are_refused_with_a_sentence(room: Room) -> None:
    browser = await room.operator()
    async with AsyncExitStack() as stack:
        for number in range(MOST_RUNS + 1):
            run = f"acme-calc-{number}-live"
            await room.queue.put(room.job(run, number=number + 1))
            if number < MOST_RUNS:
                await stack.enter_async_context(watching(browser, run))
        status = 200
        async with asyncio.timeout(20):
            while status == 200:  # until the last of them has begun to be followed
                async with watching(browser, run) as one:
                    status = one.answer.status_code
                    told = await one.answer.aread() if status != 200 else b""
        assert (status, b"Too much at once" in told) == (503, True)
        async with watching(browser, "acme-calc-0-live") as one:  # which is followed already
            assert one.answer.status_code == 200
