"""Who goes first on Redis, who is let through, and what is said of those that wait."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix, retry_key_prefix

from bot.jobs import Again, Result, Unread
from bot.redis.queue import ArqQueue
from bot.redis.taking import wake
from resolver.domain import Job, JobId
from tests.bot.jobs import DONE, Handlers, job, settled, working

pytestmark = pytest.mark.redis


@pytest.fixture
async def queue(url: str) -> AsyncIterator[ArqQueue]:
    queue = ArqQueue(url)
    yield queue
    await queue.close()


class Doors:
    """Begins jobs in an order that it notes; each ends when its door is opened."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.open: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.again: dict[str, Again] = {}

    async def __call__(self, job: Job, tries: int) -> Result | Again:
        self.order.append(job.id)
        if again := self.again.pop(job.id, None):
            return again
        await self.open[job.id].wait()
        return DONE

    async def begun(self, *names: str) -> None:
        async with asyncio.timeout(30):
            while not set(names) <= set(self.order):
                await asyncio.sleep(0.02)


def on(number: int, name: str) -> Job:
    """A job on the issue of this number."""
    return job(f"{name}-{number}", number=number)


async def paused(queue: ArqQueue, job: JobId) -> None:
    """Wait until a worker has put it off."""
    async with asyncio.timeout(30):
        while await queue._redis.get(in_progress_key_prefix + job) != b"paused":
            await asyncio.sleep(0.02)


async def pause_over(queue: ArqQueue, job: JobId) -> None:
    async with asyncio.timeout(30):
        while await queue._redis.exists(in_progress_key_prefix + job):
            await asyncio.sleep(0.02)


async def test_who_waits_behind_their_own_thread_still_goes_before_what_nobody_waits_for(
    queue: ArqQueue,
) -> None:
    doors = Doors()
    first, behind, other, checks = on(7, "first"), on(7, "behind"), on(8, "other"), on(9, "checks")
    async with working(queue, doors):
        await queue.put(first)
        await doors.begun(first.id)
        await queue.put(behind)
        await paused(queue, behind.id)
        await queue.put(other)
        await doors.begun(other.id)  # now both of the worker's hands are full
        await queue.put(checks, urgent=False)
        await pause_over(queue, behind.id)
        doors.open[first.id].set()
        await doors.begun(behind.id)
        doors.open[behind.id].set()
        await doors.begun(checks.id)
    assert doors.order.index(behind.id) < doors.order.index(checks.id)


async def test_who_is_to_try_again_goes_before_what_nobody_waits_for(url: str) -> None:
    queue, doors = ArqQueue(url, at_once=1), Doors()
    again, other, checks = on(7, "again"), on(8, "other"), on(9, "checks")
    doors.again[again.id] = Again(seconds=1)
    async with working(queue, doors):
        await queue.put(again)
        await doors.begun(again.id)
        await paused(queue, again.id)
        await queue.put(other)
        await doors.begun(other.id)
        await queue.put(checks, urgent=False)
        await pause_over(queue, again.id)
        for name in (other.id, again.id, checks.id):
            doors.open[name].set()
        await settled(queue, checks.id)
    assert doors.order == [again.id, other.id, again.id, checks.id]
    await queue.close()


async def test_nothing_begins_before_its_pause_is_over_and_its_end_ends_the_pause(queue: ArqQueue) -> None:
    doors, again, checks = Doors(), on(7, "again"), on(9, "checks")
    async with working(queue, doors):
        for one, urgent in ((again, True), (checks, False)):
            doors.again[one.id] = Again(seconds=600)
            await queue.put(one, urgent=urgent)
            await paused(queue, one.id)
        await asyncio.sleep(1)
        assert doors.order == [again.id, checks.id]
        for one in (again, checks):
            await queue.cancel(one.id)
            await doors.begun(one.id)
            assert (await settled(queue, one.id)).result is not None


async def test_however_many_jobs_run_elsewhere_a_free_worker_takes_what_waits(queue: ArqQueue) -> None:
    for number in range(130):
        await queue.put(on(number, "elsewhere"))
        await queue._redis.set(f"{in_progress_key_prefix}elsewhere-{number}", b"1", px=60_000)
    await queue.put(on(999, "free"))
    doors = Doors()
    async with working(queue, doors):
        await doors.begun("free-999")
    assert doors.order == ["free-999"]


async def test_what_runs_or_waits_for_its_own_thread_does_not_wait_for_a_worker(url: str) -> None:
    queue, doors = ArqQueue(url, at_once=1), Doors()
    async with working(queue, doors):
        await queue.put(on(7, "first"))
        await doors.begun("first-7")
        await queue.put(on(7, "behind"))
        await asyncio.sleep(1.5)
        assert await queue.waiting() == ({"running": 1, "queued": 1}, 0)
        for urgent, number in ((True, 8), (False, 9)):
            await queue.put(on(number, "other"), urgent=urgent)
        await asyncio.sleep(1)
        states, age = await queue.waiting()
        assert states == {"running": 1, "queued": 3}
        assert 1 <= age < 60
    await queue.close()


async def test_a_record_of_another_version_breaks_nothing_else_and_its_job_is_done(
    queue: ArqQueue, handler: Handlers
) -> None:
    handler.go.set()
    other = on(9, "other")
    await queue.put(other)
    await queue._redis.set(f"patchwright:job:{other.id}", b'{"state": "of another version"}')
    await queue.put(job())
    assert [one.job for one in await queue.everywhere()] == [job()]
    assert (await queue.waiting())[0] == {"queued": 1}
    assert await queue.stop(other.repo, other.number, datetime.now(UTC)) == ()
    assert await queue.unread(other.repo, other.number) == ()  # of what it is about, nothing can be read
    assert await queue.put(other) is False
    async with working(queue, handler):
        assert (await settled(queue, other.id)).result == DONE


async def test_a_job_of_another_version_is_left_to_a_worker_of_that(
    queue: ArqQueue, handler: Handlers
) -> None:
    other = on(9, "other")
    newer = await put_tomorrow(queue, other)
    async with working(queue, handler):
        await paused(queue, other.id)
    assert await queue._redis.get(job_key_prefix + other.id) == newer
    assert handler.begun == {}


async def test_a_record_of_another_version_is_known_by_its_thread_as_far_as_it_can_be_read(
    queue: ArqQueue,
) -> None:
    other = on(9, "other")
    for one in (other, on(9, "known"), job()):
        await queue.put(one)
    key = f"patchwright:job:{other.id}"
    newer = json.loads(await queue._redis.get(key))
    newer["job"]["of_tomorrow"] = 1
    await queue._redis.set(key, json.dumps(newer))
    assert [one.job.id for one in await queue.open(other.repo, 9)] == ["known-9"]
    assert await queue.unread(other.repo, 9) == (
        Unread(**other.model_dump(include={"id", "repo", "number", "requester"})),
    )
    assert await queue.unread(other.repo, 7) == ()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_job_of_another_version_is_told_of_when_it_still_waits_at_the_second_look(
    queue: ArqQueue, handler: Handlers, begun: bool
) -> None:
    other = on(9, "other")
    await put_tomorrow(queue, other)
    if begun:  # by a worker that could read it: then its run has spoken in the thread
        record = b'{"state": "queued", "tries": 1, "of_tomorrow": 1}'
        await queue._redis.set(f"patchwright:job:{other.id}", record)
    told: list[Unread] = []

    async def hear(job: Unread) -> None:
        told.append(job)

    worker = asyncio.create_task(queue.work(handler, hear))
    await paused(queue, other.id)
    assert told == []
    await wake(queue._redis, other.id)
    async with asyncio.timeout(30):
        while int(await queue._redis.get(retry_key_prefix + other.id)) < 2:
            await asyncio.sleep(0.02)
    await paused(queue, other.id)
    assert (
        told == [] if begun else [Unread(**other.model_dump(include={"id", "repo", "number", "requester"}))]
    )
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def put_tomorrow(queue: ArqQueue, job: Job) -> bytes:
    """Put a job as a later version may; what is stored of it."""
    await queue.put(job)
    key = job_key_prefix + job.id
    stored = json.loads(await queue._redis.get(key))
    newer = json.dumps(stored | {"a": [json.dumps(json.loads(stored["a"][0]) | {"of_tomorrow": 1})]})
    await queue._redis.set(key, newer)
    return newer.encode()


@pytest.fixture
def handler() -> Handlers:
    return Handlers()
