"""What the queue on Redis does beyond the contract: nothing is lost or doubled, whoever is killed."""

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

from bot.embedded import embedded_redis
from bot.errors import QueueDown
from bot.jobs import Cancelled, Record, thread_of
from bot.redis.client import answers
from bot.redis.queue import ArqQueue
from bot.redis.records import OPEN
from bot.redis.taking import QUEUE
from resolver.domain import Job
from resolver.errors import SettingsError
from tests.bot.jobs import DONE, Handlers, job, settled, working

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[3]
HOUR = 3600


@pytest.fixture
async def queue(url: str) -> AsyncIterator[ArqQueue]:
    queue = ArqQueue(url, sole=True)
    yield queue
    await queue.close()


@pytest.fixture
def handler() -> Handlers:
    return Handlers()


async def test_what_is_stored_is_json(queue: ArqQueue) -> None:
    await queue.put(job())
    stored = json.loads(await queue._redis.get(job_key_prefix + job().id))
    assert Job.model_validate_json(stored["a"][0]) == job()
    assert Record.model_validate_json(await queue._redis.get(f"patchwright:job:{job().id}")) == Record(
        job=job()
    )


async def test_arqs_limits_are_out_of_the_way(queue: ArqQueue, handler: Handlers) -> None:
    worker = queue.worker(handler)
    function = worker.functions["resolve"]
    assert (function.timeout_s or worker.job_timeout_s) > 24 * HOUR
    assert (function.max_tries or worker.max_tries) > 1000
    assert worker.keep_result_s == 0
    assert worker.in_progress_timeout_s <= 60
    await queue.put(job())
    assert await queue._redis.pttl(job_key_prefix + job().id) > 365 * 24 * HOUR * 1000
    assert await queue._redis.ttl(f"patchwright:job:{job().id}") == -1  # kept for good


async def test_after_its_end_a_job_leaves_its_record_alone(queue: ArqQueue, handler: Handlers) -> None:
    handler.go.set()
    await queue.put(job())
    async with working(queue, handler):
        await settled(queue, job().id)
        async with asyncio.timeout(5):
            while await queue._redis.zcard(QUEUE):
                await asyncio.sleep(0.02)
    keys = {key.decode() for key in await queue._redis.keys("*")} - {f"{QUEUE}:health-check"}
    assert keys == {f"patchwright:job:{job().id}"}


WORKER = """
import asyncio, sys
from bot.redis.queue import ArqQueue
from tests.bot.jobs import DONE

async def resolve(job, tries):
    print("begun", tries, flush=True)
    if tries == 1:
        await asyncio.sleep(600)
    return DONE

url, sole, lease = sys.argv[1:]
asyncio.run(ArqQueue(url, sole=sole == "sole", lease_seconds=float(lease)).work(resolve))
"""


@pytest.mark.parametrize(("sole", "lease", "within"), [("sole", 600, 10), ("shared", 3, 15)])
async def test_a_killed_workers_job_goes_on_once(
    url: str, queue: ArqQueue, sole: str, lease: float, within: float
) -> None:
    """The only worker knows at once that its earlier self is dead; one of many waits for the lease to end."""

    async def start() -> asyncio.subprocess.Process:
        command = (sys.executable, "-c", WORKER, url, sole, str(lease))
        return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)

    await queue.put(job())
    killed = await start()
    assert killed.stdout is not None
    assert await killed.stdout.readline() == b"begun 1\n"
    killed.kill()
    await killed.wait()
    assert await settled(queue, job().id, "running") == Record(job=job(), state="running", tries=1)

    second = await start()
    assert second.stdout is not None
    try:
        record = await settled(queue, job().id, seconds=within)
        assert record == Record(job=job(), state="ended", tries=2, result=DONE)
        await asyncio.sleep(1)
    finally:
        second.kill()
        await second.wait()
    assert await second.stdout.read() == b"begun 2\n"


SLEEPER = """
import asyncio, sys
from pathlib import Path
from bot.jobs import Failed
from bot.redis.queue import ArqQueue

async def resolve(job, tries):
    print("begun", flush=True)
    while not Path(sys.argv[2]).exists():
        await asyncio.sleep(0.05)
    return Failed(error="a late word")

class Telling(ArqQueue):
    async def _perform(self, handler, job):
        try:
            await super()._perform(handler, job)
        finally:
            print("said", flush=True)

asyncio.run(Telling(sys.argv[1], lease_seconds=5).work(resolve))
"""


async def changed(queue: ArqQueue, running: Record) -> object:
    """What is known of a job that runs, once that is not that it runs, and has its thread's turn."""
    turn = f"patchwright:turn:{thread_of(running.job.repo, running.job.number)}"
    while True:
        known = await queue.state(running.job.id), await queue._redis.get(turn)
        if known != (running, running.job.id.encode()):
            return known
        await asyncio.sleep(0.01)


async def test_a_worker_that_was_thought_dead_changes_nothing_about_a_job_that_goes_on_elsewhere(
    url: str, handler: Handlers, short_tmp: Path
) -> None:
    queue = ArqQueue(url, lease_seconds=5)
    sleeper = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SLEEPER, url, str(short_tmp / "go")), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert sleeper.stdout is not None
    try:
        await queue.put(job())
        assert await sleeper.stdout.readline() == b"begun\n"
        sleeper.send_signal(signal.SIGSTOP)
        async with working(queue, handler):
            async with asyncio.timeout(30):
                await handler.running.wait()
            running = Record(job=job(), state="running", tries=2)
            # Watched all the time: whoever runs the job soon puts right what another one has spoilt.
            watching = asyncio.create_task(changed(queue, running))
            sleeper.send_signal(signal.SIGCONT)
            (short_tmp / "go").touch()
            async with asyncio.timeout(30):
                assert await sleeper.stdout.readline() == b"said\n"
            await asyncio.wait((watching,), timeout=0.2)
            assert not watching.done(), watching.result()
            watching.cancel()
            handler.go.set()
            assert await settled(queue, job().id) == running.after(DONE)
        assert handler.tries == [2]
        assert await queue.state(job().id) == running.after(DONE)
    finally:
        sleeper.kill()
        await sleeper.wait()
        await queue.close()


async def test_a_worker_that_is_given_its_own_job_once_more_begins_it_once(
    queue: ArqQueue, handler: Handlers
) -> None:
    """As arq does when it was blocked for longer than a lease before it came to note that it has the job."""
    await queue.put(job())
    perform = queue.worker(handler).functions["resolve"].coroutine
    text = job().model_dump_json()
    first, second = (asyncio.create_task(perform({}, text)) for _ in range(2))
    async with asyncio.timeout(10):
        await handler.running.wait()
        await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
    assert isinstance(second.exception(), arq.Retry)
    handler.go.set()
    await asyncio.wait_for(first, 10)
    assert handler.tries == [1]
    assert await queue.state(job().id) == Record(job=job(), state="ended", tries=1, result=DONE)


async def test_a_job_that_runs_longer_than_its_lease_is_not_begun_twice(url: str, handler: Handlers) -> None:
    first, second = (ArqQueue(url, lease_seconds=2) for _ in range(2))
    await first.put(job())
    async with working(first, handler), working(second, handler):
        await handler.running.wait()
        await asyncio.sleep(3.5)
        handler.go.set()
        await settled(first, job().id)
    assert handler.tries == [1]
    await first.close()
    await second.close()


async def test_a_waiting_job_survives_the_death_of_redis(short_tmp: Path, handler: Handlers) -> None:
    handler.go.set()
    async with embedded_redis(short_tmp) as url:
        queue = ArqQueue(url, sole=True)
        await queue.put(job())
        os.kill((await queue._redis.info())["process_id"], signal.SIGKILL)
        await queue.close()
    async with embedded_redis(short_tmp) as url:
        queue = ArqQueue(url, sole=True)
        assert await queue.put(job()) is False
        async with working(queue, handler):
            assert (await settled(queue, job().id)).result == DONE
        await queue.close()
    assert handler.tries == [1]


async def test_a_running_job_does_not_notice_the_death_of_redis(queue: ArqQueue, handler: Handlers) -> None:
    other = job("acme-sample-8-000000000002")
    async with working(queue, handler):
        await queue.put(job())
        await handler.running.wait()
        os.kill((await queue._redis.info())["process_id"], signal.SIGKILL)
        async with asyncio.timeout(10):
            while not await answers(queue._redis):
                await asyncio.sleep(0.02)
        handler.go.set()
        assert (await settled(queue, job().id)).result == DONE
        await queue.put(other)  # and the worker goes on
        assert (await settled(queue, other.id)).result == DONE
    assert handler.begun == {job().id: 1, other.id: 1}


async def test_what_arq_lost_is_queued_again_by_the_next_worker(queue: ArqQueue, handler: Handlers) -> None:
    handler.go.set()
    await queue.put(job())
    await queue._redis.delete(QUEUE, job_key_prefix + job().id)
    async with working(queue, handler):
        assert (await settled(queue, job().id)).result == DONE


async def test_a_receiver_that_died_half_way_is_made_good_by_the_redelivery(
    queue: ArqQueue, handler: Handlers
) -> None:
    handler.go.set()
    async with working(queue, handler):
        await asyncio.sleep(0.5)
        await queue._redis.sadd(OPEN, job().id)
        await queue._redis.set(f"patchwright:job:{job().id}", Record(job=job()).model_dump_json())
        assert await queue.put(job()) is False
        assert (await settled(queue, job().id)).result == DONE


async def test_a_job_cancelled_in_the_moment_it_begins_is_cancelled(
    queue: ArqQueue, handler: Handlers
) -> None:
    """The receiver still saw it waiting, and wrote its end over the worker's beginning."""
    async with working(queue, handler):
        await queue.put(job())
        await handler.running.wait()
        await queue._redis.set(f"patchwright:unwanted:{job().id}", b"1")
        await queue._records.write(Record(job=job()).after(Cancelled()), keep_unwanted=True)
        async with asyncio.timeout(5):
            while await queue._redis.exists(in_progress_key_prefix + job().id):
                await asyncio.sleep(0.02)
    assert (await settled(queue, job().id)).result == Cancelled()


async def test_a_redis_that_does_not_answer_is_said_at_once(short_tmp: Path) -> None:
    queue = ArqQueue(f"unix://{short_tmp}/nobody.sock")
    assert await answers(queue._redis) is False
    with pytest.raises(QueueDown):
        await queue.put(job())
    with pytest.raises(QueueDown):
        await queue.state(job().id)
    with pytest.raises(QueueDown):
        await queue.cancel(job().id)


@pytest.mark.parametrize("url", ["", "http://localhost", "localhost:6379"])
def test_what_is_no_redis_url_names_the_setting(url: str) -> None:
    with pytest.raises(SettingsError, match="REDIS_URL"):
        ArqQueue(url)
