"""Live event streams of runs."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from patchwright.bot.dashboard.live_runs import MAX_FOLLOWED_RUNS
from patchwright.bot.dashboard.log_reader import MAX_ENTRY_BYTES
from patchwright.bot.redis.connection import redis_client
from patchwright.resolver.events import Message, ModelReply, ReplyUsage, ToolCall, ToolResult
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult
from tests.bot.dashboard.conftest import SECRET, DashboardServer
from tests.bot.dashboard.event_stream import watch_run
from tests.resolver.sample_runs import full_run, started

pytestmark = pytest.mark.redis

RUN = "acme-calc-1-live"


def comment(number: int) -> Message:
    return Message(text=f"comment {number}", source="comment")


async def test_a_late_watcher_gets_old_and_new_entries_in_order(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started(), *map(comment, range(1, 6)))
        async with watch_run(browser, RUN) as watch:
            assert watch.answer.headers["content-type"].startswith("text/event-stream")
            assert await watch.entries(6) == list("012345")
            await worker.write(comment(6), comment(7))
            assert await watch.entries(2) == ["6", "7"]


async def test_a_stream_starts_after_the_entries_of_the_page(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started(), comment(1))
        page = (await browser.get(f"/runs/{RUN}")).text
        assert f'data-events="/runs/{RUN}/events?after=1"' in page
        assert "comment 1" in page
        async with watch_run(browser, RUN, after=1) as watch:
            await worker.write(comment(2))
            event = await watch.until("entries")
            assert (event.id, list(event.data["items"])) == ("2", ["e2"])
            assert "comment 2" in event.data["items"]["e2"]


async def test_a_reconnected_stream_resumes_after_the_last_entry(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started(), comment(1))
        async with watch_run(browser, RUN, after=0) as watch:
            assert await watch.entries(1) == ["1"]
        await worker.write(comment(2), comment(3))
        async with watch_run(browser, RUN, after=0, last="1") as watch:
            assert await watch.entries(2) == ["2", "3"]


async def test_a_tool_result_updates_the_item_of_its_call(server: DashboardServer) -> None:
    browser = await server.operator()
    call = ToolCall(id="a", action=RunShell(command="make test"))
    async with server.add_running_run(RUN) as worker, watch_run(browser, RUN) as watch:
        await worker.write(started(), ModelReply(thought="Look.", calls=(call,), usage=ReplyUsage(model="m")))
        await watch.until("entries")
        request = (await watch.until("entries")).data["items"]
        assert list(request) == ["e1", "e1.1"]
        assert "make test" in request["e1.1"]
        await worker.write(
            ToolResult(
                call_id="a", observation=ShellResult(output="2 failed", exit_code=1, cwd="/", seconds=1)
            )
        )
        answered = (await watch.until("entries")).data["items"]
        assert list(answered) == ["e1.1"]
        assert "2 failed" in answered["e1.1"]


async def test_the_header_and_the_sidebar_are_updated(server: DashboardServer) -> None:
    browser = await server.operator()
    events = list(full_run())
    async with server.add_running_run(RUN) as worker, watch_run(browser, RUN) as watch:
        await worker.write(*events)
        while "fixed" not in (event := await watch.until("head")).data["title"]:
            pass
        assert "Pull request #8 is open." in event.data["header"]
        assert "Reproduce it" in event.data["sidebar"]
        assert '<th scope="row">run shell</th><td>1</td>' in event.data["sidebar"]


async def test_the_stream_ends_with_the_run(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started(), comment(1))
        job = worker.job
    await server.end_job(job)
    async with watch_run(browser, RUN, after=0) as watch:
        assert await watch.entries(1) == ["1"]
        while "The run is in progress." in (head := await watch.until("head")).data["header"]:
            pass
        assert "The run stopped before it finished." in head.data["header"]
        assert (await watch.until("end")).data == {"last": 1, "is_truncated": False}
        assert await watch.next() is None
    page = (await browser.get(f"/runs/{RUN}")).text
    assert "data-events" not in page


async def test_an_entry_that_is_too_large_ends_the_stream(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started(), comment(1))
        async with watch_run(browser, RUN) as watch:
            assert await watch.entries(2) == ["0", "1"]
            await worker.write(Message(text="x" * MAX_ENTRY_BYTES, source="comment"), comment(3))
            assert (await watch.until("end")).data == {"last": 1, "is_truncated": True}
        async with watch_run(browser, RUN) as late:
            assert await late.entries(2) == ["0", "1"]
            assert (await late.until("end")).data == {"last": 1, "is_truncated": True}
        page = (await browser.get(f"/runs/{RUN}")).text
        assert ("The rest of this run is too large to show here" in page, "data-events" in page) == (
            True,
            False,
        )


async def test_many_watchers_get_the_same_entries(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started())

        async def watch() -> list[str]:
            async with watch_run(browser, RUN) as one:
                return await one.entries(11)

        tasks = [asyncio.create_task(watch()) for _ in range(20)]
        for number in range(1, 11):
            await worker.write(comment(number))
        assert await asyncio.gather(*tasks) == [[str(number) for number in range(11)]] * 20


async def test_a_queued_run_can_be_watched(server: DashboardServer) -> None:
    browser = await server.operator()
    job = server.job(RUN)
    await server.queue.put(job)
    page = (await browser.get(f"/runs/{RUN}")).text
    assert "events?after=-1" in page
    async with watch_run(browser, RUN, after=-1) as watch, server.add_running_run(RUN) as worker:
        await worker.write(started())
        assert await watch.entries(1) == ["0"]


async def test_a_wiped_redis_neither_repeats_nor_loses_entries(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started(), comment(1))
        async with watch_run(browser, RUN) as watch:
            assert await watch.entries(2) == ["0", "1"]
            redis = redis_client(server.redis)
            await redis.delete(f"patchwright:log:{RUN}")
            await redis.aclose(close_connection_pool=True)
            await worker.write(comment(2))  # the worker writes the whole log again
            await worker.write(comment(3))
            assert await watch.entries(2) == ["2", "3"]


async def test_secrets_are_masked_in_the_stream(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker, watch_run(browser, RUN) as watch:
        await worker.write(
            started(title=f"The key is {SECRET}"), Message(text=f"x {SECRET} y", source="comment")
        )
        events = [await watch.until("entries"), await watch.until("entries"), await watch.until("head")]
        assert "x &lt;secret-hidden&gt; y" in events[1].data["items"]["e1"]
        assert SECRET not in str(events)
        assert SECRET not in (await browser.get(f"/runs/{RUN}")).text


async def test_an_invalid_entry_number_is_rejected(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker:
        await worker.write(started())
        for last in ("-2", "x", "1e3", "99999999999", "²"):
            answer = await browser.get(f"/runs/{RUN}/events", params={"after": last})
            assert (last, answer.status_code) == (last, 400)


async def test_a_stream_can_start_after_a_future_entry(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run(RUN) as worker, watch_run(browser, RUN, after=2) as watch:
        await worker.write(started(), comment(1), comment(2), comment(3))
        assert await watch.entries(1) == ["3"]


async def test_the_number_of_followed_runs_is_limited(server: DashboardServer) -> None:
    browser = await server.operator()
    async with AsyncExitStack() as stack:
        for number in range(MAX_FOLLOWED_RUNS + 1):
            run = f"acme-calc-{number}-live"
            await server.queue.put(server.job(run, number=number + 1))
            if number < MAX_FOLLOWED_RUNS:
                await stack.enter_async_context(watch_run(browser, run))
        status = 200
        async with asyncio.timeout(20):
            while status == 200:  # until all the others are followed
                async with watch_run(browser, run) as one:
                    status = one.answer.status_code
                    event = await one.answer.aread() if status != 200 else b""
        assert (status, b"Too many live runs" in event) == (503, True)
        async with watch_run(browser, "acme-calc-0-live") as one:  # already followed
            assert one.answer.status_code == 200
