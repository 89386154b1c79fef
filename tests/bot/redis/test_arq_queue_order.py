"""The order of jobs on Redis, and jobs that an incompatible version wrote."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix, retry_key_prefix

from patchwright.bot.jobs import JobResult, Retry, UnreadableJob
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.arq_worker import end_pause
from patchwright.resolver.domain import Job, JobId
from tests.bot.jobs import DONE, RecordingHandler, job, running_worker, wait_for_state

pytestmark = pytest.mark.redis


@pytest.fixture
async def queue(url: str) -> AsyncIterator[ArqQueue]:
    queue = ArqQueue(url)
    yield queue
    await queue.close()


class GatedHandler:
    """A handler that records the order of starts, and lets each job end when its gate opens."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.retries: dict[str, Retry] = {}

    async def __call__(self, job: Job, tries: int) -> JobResult | Retry:
        self.started.append(job.id)
        if retry := self.retries.pop(job.id, None):
            return retry
        await self.gates[job.id].wait()
        return DONE

    async def wait_for_start(self, *names: str) -> None:
        async with asyncio.timeout(30):
            while not set(names) <= set(self.started):
                await asyncio.sleep(0.02)


def job_on(number: int, name: str) -> Job:
    """Returns a job on the issue with this number."""
    return job(f"{name}-{number}", number=number)


async def wait_for_pause(queue: ArqQueue, job: JobId) -> None:
    """Waits until a worker has paused the job."""
    async with asyncio.timeout(30):
        while await queue._redis.get(in_progress_key_prefix + job) != b"paused":
            await asyncio.sleep(0.02)


async def wait_for_pause_end(queue: ArqQueue, job: JobId) -> None:
    async with asyncio.timeout(30):
        while await queue._redis.exists(in_progress_key_prefix + job):
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_an_urgent_job_that_waits_for_its_thread_keeps_its_place_in_the_queue(
    queue: ArqQueue,
) -> None:
    gated = GatedHandler()
    first, behind, other, checks = (
        job_on(7, "first"),
        job_on(7, "behind"),
        job_on(8, "other"),
        job_on(9, "checks"),
    )
    async with running_worker(queue, gated):
        await queue.put(first)
        await gated.wait_for_start(first.id)
        await queue.put(behind)
        await wait_for_pause(queue, behind.id)
        await queue.put(other)
        await gated.wait_for_start(other.id)  # the worker now runs as many jobs as it can
        await queue.put(checks, urgent=False)
        await wait_for_pause_end(queue, behind.id)
        gated.gates[first.id].set()
        await gated.wait_for_start(behind.id)
        gated.gates[behind.id].set()
        await gated.wait_for_start(checks.id)
    assert gated.started.index(behind.id) < gated.started.index(checks.id)


async def test_an_urgent_job_to_retry_keeps_its_place_in_the_queue(url: str) -> None:
    queue, gated = ArqQueue(url, max_concurrent_jobs=1), GatedHandler()
    retried, other, checks = job_on(7, "again"), job_on(8, "other"), job_on(9, "checks")
    gated.retries[retried.id] = Retry(delay_seconds=1)
    async with running_worker(queue, gated):
        await queue.put(retried)
        await gated.wait_for_start(retried.id)
        await wait_for_pause(queue, retried.id)
        await queue.put(other)
        await gated.wait_for_start(other.id)
        await queue.put(checks, urgent=False)
        await wait_for_pause_end(queue, retried.id)
        for name in (other.id, retried.id, checks.id):
            gated.gates[name].set()
        await wait_for_state(queue, checks.id)
    assert gated.started == [retried.id, other.id, retried.id, checks.id]
    await queue.close()


async def test_a_paused_job_does_not_start_until_a_cancellation_ends_the_pause(queue: ArqQueue) -> None:
    gated, retried, checks = GatedHandler(), job_on(7, "again"), job_on(9, "checks")
    async with running_worker(queue, gated):
        for job, urgent in ((retried, True), (checks, False)):
            gated.retries[job.id] = Retry(delay_seconds=600)
            await queue.put(job, urgent=urgent)
            await wait_for_pause(queue, job.id)
        await asyncio.sleep(1)
        assert gated.started == [retried.id, checks.id]
        for job in (retried, checks):
            await queue.cancel(job.id)
            await gated.wait_for_start(job.id)
            assert (await wait_for_state(queue, job.id)).result is not None


async def test_a_free_worker_takes_a_job_behind_many_that_run_elsewhere(queue: ArqQueue) -> None:
    for number in range(130):
        await queue.put(job_on(number, "elsewhere"))
        await queue._redis.set(f"{in_progress_key_prefix}elsewhere-{number}", b"1", px=60_000)
    await queue.put(job_on(999, "free"))
    gated = GatedHandler()
    async with running_worker(queue, gated):
        await gated.wait_for_start("free-999")
    assert gated.started == ["free-999"]


@pytest.mark.slow
async def test_a_job_that_waits_for_its_thread_does_not_count_as_backlog(url: str) -> None:
    queue, gated = ArqQueue(url, max_concurrent_jobs=1), GatedHandler()
    async with running_worker(queue, gated):
        await queue.put(job_on(7, "first"))
        await gated.wait_for_start("first-7")
        await queue.put(job_on(7, "behind"))
        await asyncio.sleep(1.5)
        assert await queue.measure_backlog() == ({"running": 1, "queued": 1}, 0)
        for urgent, number in ((True, 8), (False, 9)):
            await queue.put(job_on(number, "other"), urgent=urgent)
        await asyncio.sleep(1)
        states, age = await queue.measure_backlog()
        assert states == {"running": 1, "queued": 3}
        assert 1 <= age < 60
    await queue.close()


async def test_an_unreadable_record_affects_no_other_job_and_its_job_runs(
    queue: ArqQueue, handler: RecordingHandler
) -> None:
    handler.go.set()
    other = job_on(9, "other")
    await queue.put(other)
    await queue._redis.set(f"patchwright:job:{other.id}", b'{"state": "of another version"}')
    await queue.put(job())
    assert [record.job for record in await queue.all_active_jobs()] == [job()]
    assert (await queue.measure_backlog())[0] == {"queued": 1}
    assert await queue.cancel_thread(other.repo, other.number, datetime.now(UTC)) == ()
    assert (
        await queue.unreadable_jobs(other.repo, other.number) == ()
    )  # none of the record's fields can be read
    assert await queue.put(other) is False
    async with running_worker(queue, handler):
        assert (await wait_for_state(queue, other.id)).result == DONE


async def test_a_job_of_a_newer_version_is_left_in_the_queue(
    queue: ArqQueue, handler: RecordingHandler
) -> None:
    other = job_on(9, "other")
    newer = await put_newer_job(queue, other)
    async with running_worker(queue, handler):
        await wait_for_pause(queue, other.id)
    assert await queue._redis.get(job_key_prefix + other.id) == newer
    assert handler.started == {}


async def test_a_thread_lists_unreadable_jobs_with_their_readable_fields(
    queue: ArqQueue,
) -> None:
    other = job_on(9, "other")
    for each in (other, job_on(9, "known"), job()):
        await queue.put(each)
    key = f"patchwright:job:{other.id}"
    newer = json.loads(await queue._redis.get(key))
    newer["job"]["of_tomorrow"] = 1
    await queue._redis.set(key, json.dumps(newer))
    assert [each.job.id for each in await queue.active_jobs(other.repo, 9)] == ["known-9"]
    assert await queue.unreadable_jobs(other.repo, 9) == (
        UnreadableJob(**other.model_dump(include={"id", "repo", "number", "requester"})),
    )
    assert await queue.unreadable_jobs(other.repo, 7) == ()


@pytest.mark.parametrize("was_started", [False, True])
async def test_an_unreadable_job_is_reported_at_its_second_attempt(
    queue: ArqQueue, handler: RecordingHandler, was_started: bool
) -> None:
    other = job_on(9, "other")
    await put_newer_job(queue, other)
    if was_started:  # by a worker that could read it, whose run has already commented in the thread
        record = b'{"state": "queued", "tries": 1, "of_tomorrow": 1}'
        await queue._redis.set(f"patchwright:job:{other.id}", record)
    reported: list[UnreadableJob] = []

    async def report(job: UnreadableJob) -> None:
        reported.append(job)

    worker = asyncio.create_task(queue.process_jobs(handler, report))
    await wait_for_pause(queue, other.id)
    assert reported == []
    await end_pause(queue._redis, other.id)
    async with asyncio.timeout(30):
        while int(await queue._redis.get(retry_key_prefix + other.id)) < 2:
            await asyncio.sleep(0.02)
    await wait_for_pause(queue, other.id)
    assert (
        reported == []
        if was_started
        else [UnreadableJob(**other.model_dump(include={"id", "repo", "number", "requester"}))]
    )
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def put_newer_job(queue: ArqQueue, job: Job) -> bytes:
    """Puts a job as a newer version would, and returns what is stored of it."""
    await queue.put(job)
    key = job_key_prefix + job.id
    stored = json.loads(await queue._redis.get(key))
    newer = json.dumps(stored | {"a": [json.dumps(json.loads(stored["a"][0]) | {"of_tomorrow": 1})]})
    await queue._redis.set(key, newer)
    return newer.encode()


@pytest.fixture
def handler() -> RecordingHandler:
    return RecordingHandler()
