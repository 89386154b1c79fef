"""What every queue does. On Redis it does more: see tests/bot/redis/test_queue.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.jobs import Again, Answered, Cancelled, Failed, Queue, Record, Result, Stop, stop_heard
from bot.redis.queue import ArqQueue
from resolver.domain import Job, JobId, Repo
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, Handlers, job, settled, working

NOON, SECOND = datetime(2026, 11, 20, 12, tzinfo=UTC), timedelta(seconds=1)


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.redis), "inline"])
async def queue(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[Queue]:
    if request.param == "inline":
        yield InlineQueue()
        return
    async with embedded_redis(short_tmp) as url:
        opened = ArqQueue(url, sole=True)
        yield opened
        await opened.close()


@pytest.fixture
def handler() -> Handlers:
    return Handlers()


async def test_a_job_is_known_while_it_waits_while_it_runs_and_after_it_ended(
    queue: Queue, handler: Handlers
) -> None:
    assert await queue.state(job().id) is None
    assert await queue.put(job()) is True
    assert await queue.put(job()) is False
    assert await queue.state(job().id) == Record(job=job(), state="queued")
    async with working(queue, handler):
        await handler.running.wait()
        assert await queue.put(job()) is False
        assert await queue.state(job().id) == Record(job=job(), state="running", tries=1)
        handler.go.set()
        ended = await settled(queue, job().id)
        assert ended == Record(job=job(), state="ended", tries=1, result=DONE)
        assert await queue.put(job()) is False
        await asyncio.sleep(0.6)
    assert await queue.state(job().id) == ended
    assert handler.begun == {job().id: 1}


async def test_the_same_job_put_a_hundred_times_at_once_is_done_once(queue: Queue, handler: Handlers) -> None:
    handler.go.set()
    async with working(queue, handler):
        stored = await asyncio.gather(*(queue.put(job()) for _ in range(100)))
        await settled(queue, job().id)
        await asyncio.sleep(0.6)
    assert stored.count(True) == 1
    assert handler.begun == {job().id: 1}


async def test_a_waiting_job_that_is_cancelled_never_begins(queue: Queue, handler: Handlers) -> None:
    await queue.put(job())
    assert await queue.cancel(job().id) is True
    assert await queue.cancel(job().id) is False
    async with working(queue, handler):
        await asyncio.sleep(0.6)
    assert (await settled(queue, job().id)).result == Cancelled()
    assert handler.begun == {}
    assert await queue.put(job()) is False


async def test_a_running_job_that_is_cancelled_ends_within_seconds(queue: Queue, handler: Handlers) -> None:
    await queue.put(job())
    async with working(queue, handler):
        await handler.running.wait()
        assert await queue.cancel(job().id) is True
        record = await settled(queue, job().id, seconds=5)
    assert record == Record(job=job(), state="ended", tries=1, result=Cancelled())


async def test_a_job_that_was_stopped_is_not_wanted_while_it_puts_its_work_away(queue: Queue) -> None:
    running, stopping, put_away = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(job: Job, tries: int) -> Result | Again:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await put_away.wait()
        return DONE

    await queue.put(job())
    async with working(queue, handler):
        await running.wait()
        assert await queue.is_wanted(job().id)
        await queue.cancel(job().id)
        assert not await queue.is_wanted(job().id)
        await stopping.wait()
        assert not await queue.is_wanted(job().id)
        put_away.set()
        await settled(queue, job().id)


async def test_what_nobody_knows_cannot_be_cancelled(queue: Queue) -> None:
    assert await queue.cancel(JobId("never-heard-of-1-0")) is False


async def test_a_worker_told_to_go_gives_its_job_back(queue: Queue, handler: Handlers) -> None:
    await queue.put(job())
    async with working(queue, handler):
        await handler.running.wait()
    assert await queue.state(job().id) == Record(job=job(), state="queued", tries=0)
    handler.go.set()
    async with working(queue, handler):
        await settled(queue, job().id)
    assert handler.tries == [1, 1]  # to be told to go is not to fail


async def test_a_job_to_be_tried_again_is_begun_again_after_a_while(queue: Queue, handler: Handlers) -> None:
    handler.ending = Again(seconds=0.1)
    handler.go.set()
    await queue.put(job())
    async with working(queue, handler):
        while len(handler.tries) < 2:
            await asyncio.sleep(0.02)
        handler.ending = DONE
        record = await settled(queue, job().id)
    assert record.result == DONE
    assert handler.tries == list(range(1, record.tries + 1))


async def test_a_handler_that_raises_ends_its_job_and_no_other(queue: Queue, handler: Handlers) -> None:
    handler.ending = RuntimeError("a secret may be in here")
    handler.go.set()
    other = job("acme-sample-8-000000000002")
    async with working(queue, handler):
        await queue.put(job())
        assert (await settled(queue, job().id)).result == Failed(error="RuntimeError")
        handler.ending = DONE
        await queue.put(other)
        assert (await settled(queue, other.id)).result == DONE


async def test_one_issue_is_worked_on_once_at_a_time_and_others_meanwhile(
    queue: Queue, handler: Handlers
) -> None:
    same, other = job("acme-sample-7-000000000002"), job("acme-sample-8-000000000003", number=8)
    await queue.put(job())
    async with working(queue, handler):
        await handler.running.wait()
        await queue.put(same)
        await queue.put(other)
        await asyncio.sleep(0.8)
        at_once = isinstance(queue, ArqQueue)
        assert handler.begun == {job().id: 1} | ({other.id: 1} if at_once else {})
        handler.go.set()
        for each in (job(), same, other):
            assert (await settled(queue, each.id)).result == DONE
    assert handler.begun == {job().id: 1, same.id: 1, other.id: 1}


async def test_what_somebody_waits_for_goes_before_what_nobody_waits_for(
    queue: Queue, handler: Handlers
) -> None:
    handler.go.set()
    jobs = [job(f"acme-sample-{number}-00000000000{number}", number=number) for number in (1, 2, 3)]
    for each, urgent in zip(jobs, (False, False, True), strict=True):
        await queue.put(each, urgent=urgent)
    async with working(queue, handler):
        for each in jobs:
            await settled(queue, each.id)
    assert list(handler.begun) == [jobs[2].id, jobs[0].id, jobs[1].id]


async def test_a_thread_shows_what_waits_and_runs_for_it_in_the_order_of_asking(
    queue: Queue, handler: Handlers
) -> None:
    late = job("acme-sample-7-000000000002")
    await queue.put(late, asked=NOON + SECOND)
    await queue.put(job(), asked=NOON)
    await queue.put(job("acme-sample-8-000000000003", number=8), asked=NOON)
    spelled = Repo(owner="Acme", name="Sample")
    assert [one.job.id for one in await queue.open(spelled, 7)] == [job().id, late.id]
    await queue.settle(late, Answered(run=job().id))
    assert [one.job.id for one in await queue.open(spelled, 7)] == [job().id]
    handler.go.set()
    async with working(queue, handler):
        await settled(queue, job().id)
        await asyncio.sleep(0.6)
    assert late.id not in handler.begun
    assert await queue.open(spelled, 7) == ()


async def test_what_was_dealt_with_without_being_put_is_known(queue: Queue) -> None:
    await queue.settle(job(), Answered())
    assert await queue.put(job()) is False
    assert await queue.state(job().id) == Record(job=job(), state="ended", result=Answered())


async def test_what_is_being_dealt_with_without_being_put_is_known_and_nobodys_work(queue: Queue) -> None:
    await queue.take_up(job())
    taken_up = await queue.state(job().id)
    assert taken_up is not None and (taken_up.state, taken_up.result) == ("running", None)
    assert await queue.everywhere() == ()
    await queue.settle(job(), Answered())
    ended = await queue.state(job().id)
    assert ended is not None and (ended.state, ended.result) == ("ended", Answered())


async def test_a_stop_counts_for_all_that_was_asked_for_before_it_and_for_nothing_after(queue: Queue) -> None:
    after, overtaken = job("acme-sample-7-000000000002"), job("acme-sample-7-000000000003")
    elsewhere = job("acme-sample-8-000000000004", number=8)
    await queue.put(job(), asked=NOON)
    await queue.put(after, asked=NOON + 2 * SECOND)
    await queue.put(elsewhere, asked=NOON)
    stopped = await queue.stop(job().repo, 7, NOON + SECOND)
    assert [one.job.id for one in stopped] == [job().id]
    assert await queue.put(overtaken, asked=NOON) is False
    assert await queue.state(overtaken.id) is None
    states = {one.id: await queue.state(one.id) for one in (job(), after, elsewhere)}
    assert {id: known.state for id, known in states.items() if known} == {
        job().id: "ended",
        after.id: "queued",
        elsewhere.id: "queued",
    }
    assert await queue.stop(job().repo, 7, NOON + SECOND) == ()


async def test_a_job_that_is_cancelled_between_two_tries_puts_its_work_away(queue: Queue) -> None:
    told: list[object] = []

    async def handler(job: Job, tries: int) -> Result | Again:
        if tries == 1:
            return Again(seconds=600)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            told.append(stop_heard())
            raise
        return DONE

    await queue.put(job())
    async with working(queue, handler):
        async with asyncio.timeout(10):
            while (known := await queue.state(job().id)) is None or (known.state, known.tries) != (
                "queued",
                1,
            ):
                await asyncio.sleep(0.02)
        assert await queue.cancel(job().id, "closed")
        assert (await settled(queue, job().id)).result == Cancelled(why="closed")
    assert told == [Stop(why="closed")]


async def test_a_label_taken_away_counts_for_what_a_label_asked_for_alone(queue: Queue) -> None:
    labelled = job(label="fix-me")
    said, late = job("acme-sample-7-000000000002"), job("acme-sample-7-000000000003", label="fix-me")
    for one in (labelled, said):
        await queue.put(one, asked=NOON)
    assert [one.job.id for one in await queue.stop(job().repo, 7, NOON + SECOND, "unlabelled")] == [
        labelled.id
    ]
    assert await queue.put(late, asked=NOON) is False
    assert await queue.put(late, asked=NOON + 2 * SECOND) is True
    assert (await settled(queue, labelled.id)).result == Cancelled(why="unlabelled")
    assert {one.job.id for one in await queue.everywhere()} == {said.id, late.id}


async def test_a_run_hears_why_it_is_not_to_go_on(queue: Queue) -> None:
    told: list[object] = []
    running = asyncio.Event()

    async def handler(job: Job, tries: int) -> Result | Again:
        running.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            told.append(stop_heard())
            raise
        return DONE

    await queue.put(job(label="fix-me"), asked=NOON)
    async with working(queue, handler):
        await running.wait()
        await queue.stop(job().repo, 7, NOON, "unlabelled")
        assert (await settled(queue, job().id)).result == Cancelled(why="unlabelled")
    assert told == [Stop(why="unlabelled")]


async def test_a_run_hears_it_too_when_something_has_swallowed_its_cancellation(queue: Queue) -> None:
    """As the client of a model may, which answers in that moment; the agent then ends its run by itself."""
    told: list[object] = []
    running = asyncio.Event()

    async def handler(job: Job, tries: int) -> Result | Again:
        running.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        told.append(stop_heard())
        raise asyncio.CancelledError

    await queue.put(job(), asked=NOON)
    async with working(queue, handler):
        await running.wait()
        await queue.stop(job().repo, 7, NOON)
        assert (await settled(queue, job().id)).result == Cancelled()
    assert told == [Stop(why="asked")]


async def test_a_run_whose_worker_goes_away_hears_of_no_stop(queue: Queue) -> None:
    told: list[object] = []
    running = asyncio.Event()

    async def handler(job: Job, tries: int) -> Result | Again:
        running.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            told.append(stop_heard())
            raise
        return DONE

    await queue.put(job())
    async with working(queue, handler):
        await running.wait()
    assert told == [None]
