"""The contract of all job queues. For more tests of the Redis queue, see tests/bot/redis/test_arq_queue.py."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from patchwright.bot.jobs import (
    Answered,
    Cancellation,
    Failed,
    JobQueue,
    JobRecord,
    JobResult,
    Retry,
    Stopped,
    current_cancellation,
)
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.resolver.domain import Job, JobId, Repo
from tests.bot.jobs import DONE, RecordingHandler, job, running_worker, wait_for_state

NOON, SECOND = datetime(2026, 11, 20, 12, tzinfo=UTC), timedelta(seconds=1)
UNLABELED = Cancellation(reason="unlabeled", by="triager")


@pytest.fixture
def handler() -> RecordingHandler:
    return RecordingHandler()


async def test_a_job_has_a_record_while_queued_running_and_completed(
    queue: JobQueue, handler: RecordingHandler
) -> None:
    assert await queue.get_record(job().id) is None
    assert await queue.put(job()) is True
    assert await queue.put(job()) is False
    assert await queue.get_record(job().id) == JobRecord(job=job(), state="queued")
    async with running_worker(queue, handler):
        await handler.running.wait()
        assert await queue.put(job()) is False
        assert await queue.get_record(job().id) == JobRecord(job=job(), state="running", tries=1)
        handler.go.set()
        ended = await wait_for_state(queue, job().id)
        assert ended == JobRecord(job=job(), state="completed", tries=1, result=DONE)
        assert await queue.put(job()) is False
        await asyncio.sleep(0.6)
    assert await queue.get_record(job().id) == ended
    assert handler.started == {job().id: 1}


async def test_the_same_job_put_a_hundred_times_at_once_runs_once(
    queue: JobQueue, handler: RecordingHandler
) -> None:
    handler.go.set()
    async with running_worker(queue, handler):
        stored = await asyncio.gather(*(queue.put(job()) for _ in range(100)))
        await wait_for_state(queue, job().id)
        await asyncio.sleep(0.6)
    assert stored.count(True) == 1
    assert handler.started == {job().id: 1}


async def test_a_queued_job_that_is_canceled_never_starts(queue: JobQueue, handler: RecordingHandler) -> None:
    await queue.put(job())
    assert await queue.cancel(job().id) is True
    assert await queue.cancel(job().id) is False
    async with running_worker(queue, handler):
        await asyncio.sleep(0.6)
    assert (await wait_for_state(queue, job().id)).result == Stopped()
    assert handler.started == {}
    assert await queue.put(job()) is False


async def test_a_running_job_that_is_canceled_ends_within_seconds(
    queue: JobQueue, handler: RecordingHandler
) -> None:
    await queue.put(job())
    async with running_worker(queue, handler):
        await handler.running.wait()
        assert await queue.cancel(job().id) is True
        record = await wait_for_state(queue, job().id, seconds=5)
    assert record == JobRecord(job=job(), state="completed", tries=1, result=Stopped())


async def test_a_canceled_job_should_not_continue_while_it_cleans_up(queue: JobQueue) -> None:
    running, stopping, cleaned_up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await cleaned_up.wait()
        return DONE

    await queue.put(job())
    async with running_worker(queue, handler):
        await running.wait()
        assert await queue.should_continue(job().id)
        await queue.cancel(job().id)
        assert not await queue.should_continue(job().id)
        await stopping.wait()
        assert not await queue.should_continue(job().id)
        cleaned_up.set()
        await wait_for_state(queue, job().id)


async def test_an_unknown_job_cannot_be_canceled(queue: JobQueue) -> None:
    assert await queue.cancel(JobId("never-heard-of-1-0")) is False


async def test_a_worker_that_shuts_down_returns_its_job_to_the_queue(
    queue: JobQueue, handler: RecordingHandler
) -> None:
    await queue.put(job())
    async with running_worker(queue, handler):
        await handler.running.wait()
    assert await queue.get_record(job().id) == JobRecord(job=job(), state="queued", tries=0)
    handler.go.set()
    async with running_worker(queue, handler):
        await wait_for_state(queue, job().id)
    assert handler.tries == [1, 1]  # a shutdown does not count as a try


async def test_a_job_to_retry_starts_again_after_its_delay(
    queue: JobQueue, handler: RecordingHandler
) -> None:
    handler.ending = Retry(delay_seconds=0.1)
    handler.go.set()
    await queue.put(job())
    async with running_worker(queue, handler):
        while len(handler.tries) < 2:
            await asyncio.sleep(0.02)
        handler.ending = DONE
        record = await wait_for_state(queue, job().id)
    assert record.result == DONE
    assert handler.tries == list(range(1, record.tries + 1))


async def test_a_handler_that_raises_fails_only_its_own_job(
    queue: JobQueue, handler: RecordingHandler
) -> None:
    handler.ending = RuntimeError("a secret may be in here")
    handler.go.set()
    other = job("acme-sample-8-000000000002")
    async with running_worker(queue, handler):
        await queue.put(job())
        assert (await wait_for_state(queue, job().id)).result == Failed(error="RuntimeError")
        handler.ending = DONE
        await queue.put(other)
        assert (await wait_for_state(queue, other.id)).result == DONE


@pytest.mark.slow
async def test_one_job_runs_per_thread_at_a_time(queue: JobQueue, handler: RecordingHandler) -> None:
    same, other = job("acme-sample-7-000000000002"), job("acme-sample-8-000000000003", number=8)
    await queue.put(job())
    async with running_worker(queue, handler):
        await handler.running.wait()
        await queue.put(same)
        await queue.put(other)
        await asyncio.sleep(0.8)
        is_concurrent = isinstance(queue, ArqQueue)
        assert handler.started == {job().id: 1} | ({other.id: 1} if is_concurrent else {})
        handler.go.set()
        for each in (job(), same, other):
            assert (await wait_for_state(queue, each.id)).result == DONE
    assert handler.started == {job().id: 1, same.id: 1, other.id: 1}


async def test_urgent_jobs_run_before_the_others(queue: JobQueue, handler: RecordingHandler) -> None:
    handler.go.set()
    jobs = [job(f"acme-sample-{number}-00000000000{number}", number=number) for number in (1, 2, 3)]
    for each, urgent in zip(jobs, (False, False, True), strict=True):
        await queue.put(each, urgent=urgent)
    async with running_worker(queue, handler):
        for each in jobs:
            await wait_for_state(queue, each.id)
    assert list(handler.started) == [jobs[2].id, jobs[0].id, jobs[1].id]


async def test_a_threads_active_jobs_are_listed_in_order_of_request(
    queue: JobQueue, handler: RecordingHandler
) -> None:
    late = job("acme-sample-7-000000000002")
    await queue.put(late, requested_at=NOON + SECOND)
    await queue.put(job(), requested_at=NOON)
    await queue.put(job("acme-sample-8-000000000003", number=8), requested_at=NOON)
    other_case = Repo(owner="Acme", name="Sample")
    assert [record.job.id for record in await queue.active_jobs(other_case, 7)] == [job().id, late.id]
    await queue.complete(late, Answered(run=job().id))
    assert [record.job.id for record in await queue.active_jobs(other_case, 7)] == [job().id]
    handler.go.set()
    async with running_worker(queue, handler):
        await wait_for_state(queue, job().id)
        await asyncio.sleep(0.6)
    assert late.id not in handler.started
    assert await queue.active_jobs(other_case, 7) == ()


async def test_a_job_completed_without_being_put_has_a_record(queue: JobQueue) -> None:
    await queue.complete(job(), Answered())
    assert await queue.put(job()) is False
    assert await queue.get_record(job().id) == JobRecord(job=job(), state="completed", result=Answered())


async def test_a_job_marked_running_without_being_put_has_a_record_and_is_not_queued(queue: JobQueue) -> None:
    await queue.mark_running(job())
    record = await queue.get_record(job().id)
    assert record is not None and (record.state, record.result) == ("running", None)
    assert await queue.all_active_jobs() == ()
    await queue.complete(job(), Answered())
    ended = await queue.get_record(job().id)
    assert ended is not None and (ended.state, ended.result) == ("completed", Answered())


async def test_a_stop_cancels_only_jobs_requested_before_it(
    queue: JobQueue,
) -> None:
    after, overtaken = job("acme-sample-7-000000000002"), job("acme-sample-7-000000000003")
    elsewhere = job("acme-sample-8-000000000004", number=8)
    await queue.put(job(), requested_at=NOON)
    await queue.put(after, requested_at=NOON + 2 * SECOND)
    await queue.put(elsewhere, requested_at=NOON)
    stopped = await queue.cancel_thread(job().repo, 7, NOON + SECOND)
    assert [each.job.id for each in stopped] == [job().id]
    assert await queue.put(overtaken, requested_at=NOON) is False
    assert await queue.get_record(overtaken.id) is None
    states = {each.id: await queue.get_record(each.id) for each in (job(), after, elsewhere)}
    assert {id: record.state for id, record in states.items() if record} == {
        job().id: "completed",
        after.id: "queued",
        elsewhere.id: "queued",
    }
    assert await queue.cancel_thread(job().repo, 7, NOON + SECOND) == ()


async def test_a_job_canceled_between_two_tries_cleans_up(queue: JobQueue) -> None:
    cancellations: list[object] = []

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        if tries == 1:
            return Retry(delay_seconds=600)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancellations.append(current_cancellation())
            raise
        return DONE

    await queue.put(job())
    async with running_worker(queue, handler):
        async with asyncio.timeout(60):
            while (known := await queue.get_record(job().id)) is None or (known.state, known.tries) != (
                "queued",
                1,
            ):
                await asyncio.sleep(0.02)
        assert await queue.cancel(job().id, Cancellation(reason="closed"))
        assert (await wait_for_state(queue, job().id)).result == Stopped(reason="closed")
    assert cancellations == [Cancellation(reason="closed")]


async def test_a_removed_label_cancels_only_jobs_that_a_label_started(queue: JobQueue) -> None:
    labeled = job(label="fix-me")
    mentioned, late = job("acme-sample-7-000000000002"), job("acme-sample-7-000000000003", label="fix-me")
    for each in (labeled, mentioned):
        await queue.put(each, requested_at=NOON)
    assert [each.job.id for each in await queue.cancel_thread(job().repo, 7, NOON + SECOND, UNLABELED)] == [
        labeled.id
    ]
    assert await queue.put(late, requested_at=NOON) is False
    assert await queue.put(late, requested_at=NOON + 2 * SECOND) is True
    assert (await wait_for_state(queue, labeled.id)).result == Stopped(reason="unlabeled", by="triager")
    assert {each.job.id for each in await queue.all_active_jobs()} == {mentioned.id, late.id}


async def test_a_handler_learns_why_its_job_is_canceled(queue: JobQueue) -> None:
    cancellations: list[object] = []
    running = asyncio.Event()

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        running.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancellations.append(current_cancellation())
            raise
        return DONE

    await queue.put(job(label="fix-me"), requested_at=NOON)
    async with running_worker(queue, handler):
        await running.wait()
        await queue.cancel_thread(job().repo, 7, NOON, UNLABELED)
        assert (await wait_for_state(queue, job().id)).result == Stopped(reason="unlabeled", by="triager")
    assert cancellations == [UNLABELED]


async def test_a_handler_learns_why_even_if_its_cancellation_was_swallowed(queue: JobQueue) -> None:
    """A model client may swallow it when it responds in that moment; the agent then ends its run by itself."""
    cancellations: list[object] = []
    running = asyncio.Event()

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        running.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        cancellations.append(current_cancellation())
        raise asyncio.CancelledError

    await queue.put(job(), requested_at=NOON)
    async with running_worker(queue, handler):
        await running.wait()
        await queue.cancel_thread(job().repo, 7, NOON)
        assert (await wait_for_state(queue, job().id)).result == Stopped()
    assert cancellations == [Cancellation(reason="requested")]


async def test_a_handler_whose_worker_shuts_down_sees_no_cancellation(queue: JobQueue) -> None:
    cancellations: list[object] = []
    running = asyncio.Event()

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        running.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancellations.append(current_cancellation())
            raise
        return DONE

    await queue.put(job())
    async with running_worker(queue, handler):
        await running.wait()
    assert cancellations == [None]
