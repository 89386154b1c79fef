"""The Redis queue beyond the contract: no job is lost or run twice when a process is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import arq
import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import JobRecord, Stopped, thread_key
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.arq_worker import QUEUE_NAME
from patchwright.bot.redis.connection import can_write
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.job_records import OPEN_JOBS_KEY
from patchwright.resolver.domain import Job
from patchwright.resolver.errors import SettingsError
from tests.bot.jobs import DONE, RecordingHandler, job, running_worker, wait_for_state

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[3]
HOUR = 3600


@pytest.fixture
async def queue(url: str) -> AsyncIterator[ArqQueue]:
    queue = ArqQueue(url, is_only_worker=True)
    yield queue
    await queue.close()


@pytest.fixture
def handler() -> RecordingHandler:
    return RecordingHandler()


async def test_jobs_and_records_are_stored_as_json(queue: ArqQueue) -> None:
    await queue.put(job())
    stored = json.loads(await queue._redis.get(job_key_prefix + job().id))
    assert Job.model_validate_json(stored["a"][0]) == job()
    assert JobRecord.model_validate_json(await queue._redis.get(f"patchwright:job:{job().id}")) == JobRecord(
        job=job()
    )


async def test_arqs_own_limits_never_apply(queue: ArqQueue, handler: RecordingHandler) -> None:
    worker = queue.build_worker(handler)
    function = worker.functions["resolve"]
    assert (function.timeout_s or worker.job_timeout_s) > 24 * HOUR
    assert (function.max_tries or worker.max_tries) > 1000
    assert worker.keep_result_s == 0
    assert worker.in_progress_timeout_s <= 60
    await queue.put(job())
    assert await queue._redis.pttl(job_key_prefix + job().id) > 365 * 24 * HOUR * 1000
    assert await queue._redis.ttl(f"patchwright:job:{job().id}") == -1  # never expires


async def test_a_completed_job_leaves_only_its_record(queue: ArqQueue, handler: RecordingHandler) -> None:
    handler.go.set()
    await queue.put(job())
    async with running_worker(queue, handler):
        await wait_for_state(queue, job().id)
        async with asyncio.timeout(5):
            while await queue._redis.zcard(QUEUE_NAME):
                await asyncio.sleep(0.02)
    keys = {key.decode() for key in await queue._redis.keys("*")} - {f"{QUEUE_NAME}:health-check"}
    assert keys == {f"patchwright:job:{job().id}"}


WORKER = """
import asyncio, sys
from patchwright.bot.redis.arq_queue import ArqQueue
from tests.bot.jobs import DONE

async def resolve(job, tries):
    print("started", tries, flush=True)
    if tries == 1:
        await asyncio.sleep(600)
    return DONE

url, sole, lease = sys.argv[1:]
queue = ArqQueue(url, is_only_worker=sole == "sole", lease_seconds=float(lease))
asyncio.run(queue.process_jobs(resolve))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sole", "lease", "within"), [("sole", 600, 10), ("shared", 3, 15)])
async def test_the_job_of_a_killed_worker_runs_once_more(
    url: str, queue: ArqQueue, sole: str, lease: float, within: float
) -> None:
    """The only worker frees the job at once; one of many waits until the lease expires."""

    async def start() -> asyncio.subprocess.Process:
        command = (sys.executable, "-c", WORKER, url, sole, str(lease))
        return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)

    await queue.put(job())
    killed = await start()
    assert killed.stdout is not None
    assert await killed.stdout.readline() == b"started 1\n"
    killed.kill()
    await killed.wait()
    assert await wait_for_state(queue, job().id, "running") == JobRecord(job=job(), state="running", tries=1)

    second = await start()
    assert second.stdout is not None
    try:
        record = await wait_for_state(queue, job().id, seconds=within)
        assert record == JobRecord(job=job(), state="completed", tries=2, result=DONE)
        await asyncio.sleep(1)
    finally:
        second.kill()
        await second.wait()
    assert await second.stdout.read() == b"started 2\n"


SLEEPER = """
import asyncio, sys
from pathlib import Path
from patchwright.bot.jobs import Failed
from patchwright.bot.redis.arq_queue import ArqQueue

async def resolve(job, tries):
    print("started", flush=True)
    while not Path(sys.argv[2]).exists():
        await asyncio.sleep(0.05)
    return Failed(error="too late")

class PrintingQueue(ArqQueue):
    async def _run_unless_running(self, handler, job):
        try:
            await super()._run_unless_running(handler, job)
        finally:
            print("ended", flush=True)

asyncio.run(PrintingQueue(sys.argv[1], lease_seconds=5).process_jobs(resolve))
"""


async def wait_for_change(queue: ArqQueue, running: JobRecord) -> object:
    """Returns the state of a running job and its thread lock as soon as it differs from what is expected."""
    lock_key = f"patchwright:thread_lock:{thread_key(running.job.repo, running.job.number)}"
    while True:
        state = await queue.get_record(running.job.id), await queue._redis.get(lock_key)
        if state != (running, running.job.id.encode()):
            return state
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_stalled_worker_does_not_change_a_job_that_another_worker_took_over(
    url: str, handler: RecordingHandler, short_tmp: Path
) -> None:
    queue = ArqQueue(url, lease_seconds=5)
    sleeper = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SLEEPER, url, str(short_tmp / "go")), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert sleeper.stdout is not None
    try:
        await queue.put(job())
        assert await sleeper.stdout.readline() == b"started\n"
        sleeper.send_signal(signal.SIGSTOP)
        async with running_worker(queue, handler):
            async with asyncio.timeout(30):
                await handler.running.wait()
            running = JobRecord(job=job(), state="running", tries=2)
            # Watched continuously: the worker that runs the job soon corrects a wrong state.
            watcher = asyncio.create_task(wait_for_change(queue, running))
            sleeper.send_signal(signal.SIGCONT)
            (short_tmp / "go").touch()
            async with asyncio.timeout(30):
                assert await sleeper.stdout.readline() == b"ended\n"
            await asyncio.wait((watcher,), timeout=0.2)
            assert not watcher.done(), watcher.result()
            watcher.cancel()
            handler.go.set()
            assert await wait_for_state(queue, job().id) == running.with_result(DONE)
        assert handler.tries == [2]
        assert await queue.get_record(job().id) == running.with_result(DONE)
    finally:
        sleeper.kill()
        await sleeper.wait()
        await queue.close()


async def test_a_worker_that_gets_its_own_job_again_runs_it_once(
    queue: ArqQueue, handler: RecordingHandler
) -> None:
    """arq does this if it is blocked for longer than a lease before it records that it has the job."""
    await queue.put(job())
    run_entry = queue.build_worker(handler).functions["resolve"].coroutine
    text = job().model_dump_json()
    first, second = (asyncio.create_task(run_entry({}, text)) for _ in range(2))
    async with asyncio.timeout(60):
        await handler.running.wait()
        await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
    assert isinstance(second.exception(), arq.Retry)
    handler.go.set()
    await asyncio.wait_for(first, 10)
    assert handler.tries == [1]
    assert await queue.get_record(job().id) == JobRecord(job=job(), state="completed", tries=1, result=DONE)


@pytest.mark.slow
async def test_a_job_that_runs_longer_than_its_lease_starts_once(url: str, handler: RecordingHandler) -> None:
    first, second = (ArqQueue(url, lease_seconds=2) for _ in range(2))
    await first.put(job())
    async with running_worker(first, handler), running_worker(second, handler):
        await handler.running.wait()
        await asyncio.sleep(3.5)
        handler.go.set()
        await wait_for_state(first, job().id)
    assert handler.tries == [1]
    await first.close()
    await second.close()


async def test_a_queued_job_survives_a_crash_of_redis(short_tmp: Path, handler: RecordingHandler) -> None:
    handler.go.set()
    async with run_embedded_redis(short_tmp) as url:
        queue = ArqQueue(url, is_only_worker=True)
        await queue.put(job())
        os.kill((await queue._redis.info())["process_id"], signal.SIGKILL)
        await queue.close()
    async with run_embedded_redis(short_tmp) as url:
        queue = ArqQueue(url, is_only_worker=True)
        assert await queue.put(job()) is False
        async with running_worker(queue, handler):
            assert (await wait_for_state(queue, job().id)).result == DONE
        await queue.close()
    assert handler.tries == [1]


async def test_a_running_job_continues_through_a_crash_of_redis(
    queue: ArqQueue, handler: RecordingHandler
) -> None:
    other = job("acme-sample-8-000000000002")
    async with running_worker(queue, handler):
        await queue.put(job())
        await handler.running.wait()
        os.kill((await queue._redis.info())["process_id"], signal.SIGKILL)
        async with asyncio.timeout(60):
            while not await can_write(queue._redis):
                await asyncio.sleep(0.02)
        handler.go.set()
        assert (await wait_for_state(queue, job().id)).result == DONE
        await queue.put(other)  # the worker continues
        assert (await wait_for_state(queue, other.id)).result == DONE
    assert handler.started == {job().id: 1, other.id: 1}


async def test_the_next_worker_queues_jobs_again_that_arq_lost(
    queue: ArqQueue, handler: RecordingHandler
) -> None:
    handler.go.set()
    await queue.put(job())
    await queue._redis.delete(QUEUE_NAME, job_key_prefix + job().id)
    async with running_worker(queue, handler):
        assert (await wait_for_state(queue, job().id)).result == DONE


async def test_a_redelivery_completes_a_put_that_was_interrupted(
    queue: ArqQueue, handler: RecordingHandler
) -> None:
    handler.go.set()
    async with running_worker(queue, handler):
        await asyncio.sleep(0.5)
        await queue._redis.sadd(OPEN_JOBS_KEY, job().id)
        await queue._redis.set(f"patchwright:job:{job().id}", JobRecord(job=job()).model_dump_json())
        assert await queue.put(job()) is False
        assert (await wait_for_state(queue, job().id)).result == DONE


async def test_a_job_canceled_while_it_starts_is_canceled(queue: ArqQueue, handler: RecordingHandler) -> None:
    """The receiver still saw the job as queued, and wrote its result over the worker's start."""
    async with running_worker(queue, handler):
        await queue.put(job())
        await handler.running.wait()
        await queue._redis.set(f"patchwright:cancellation:{job().id}", b"1")
        await queue._records.write(JobRecord(job=job()).with_result(Stopped()), keep_cancellation=True)
        async with asyncio.timeout(5):
            while await queue._redis.exists(in_progress_key_prefix + job().id):
                await asyncio.sleep(0.02)
    assert (await wait_for_state(queue, job().id)).result == Stopped()


async def test_an_unreachable_redis_fails_at_once(short_tmp: Path) -> None:
    queue = ArqQueue(f"unix://{short_tmp}/nobody.sock")
    assert await can_write(queue._redis) is False
    with pytest.raises(QueueDown):
        await queue.put(job())
    with pytest.raises(QueueDown):
        await queue.get_record(job().id)
    with pytest.raises(QueueDown):
        await queue.cancel(job().id)


@pytest.mark.parametrize("url", ["", "http://localhost", "localhost:6379"])
def test_an_invalid_redis_url_names_the_setting(url: str) -> None:
    with pytest.raises(SettingsError, match="REDIS_URL"):
        ArqQueue(url)
