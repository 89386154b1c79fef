"""The contract of all job queues for jobs that wait for the end of an outage of GitHub."""

import asyncio
from datetime import UTC, datetime, timedelta

from patchwright.bot.jobs import (
    Cancellation,
    GitHubWait,
    JobQueue,
    JobResult,
    Retry,
    Stopped,
    current_cancellation,
)
from patchwright.resolver.domain import Job
from tests.bot.jobs import DONE, job, running_worker, wait_for_state

NOON, SECOND = datetime(2026, 11, 20, 12, tzinfo=UTC), timedelta(seconds=1)


async def test_a_job_that_waits_for_github_keeps_its_tries_and_starts_when_the_wait_ends(
    queue: JobQueue,
) -> None:
    tries_seen: list[int] = []
    wait = GitHubWait(since=NOON, next_try=NOON + 600 * SECOND)

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        tries_seen.append(tries)
        if len(tries_seen) < 3:
            return Retry(delay_seconds=600, counts_as_try=False, github_wait=wait)
        return DONE

    await queue.put(job())
    async with running_worker(queue, handler):
        for failed in (1, 2):
            async with asyncio.timeout(20):
                while (known := await queue.get_record(job().id)) is None or known.outage_tries < failed:
                    await asyncio.sleep(0.02)
            assert (known.state, known.github_wait) == ("queued", wait)
            assert known in await queue.all_active_jobs()
            await asyncio.sleep(0.5)
            assert len(tries_seen) == failed  # the control: it waits
            await queue.end_github_waits()
        assert (await wait_for_state(queue, job().id)).result == DONE
    assert tries_seen == [1, 1, 1]


async def test_a_job_that_waits_for_github_cleans_up_when_it_is_canceled(queue: JobQueue) -> None:
    tries_seen: list[int] = []
    cancellations: list[object] = []
    wait = GitHubWait(since=NOON, next_try=NOON + 600 * SECOND)

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        tries_seen.append(tries)
        if len(tries_seen) == 1:
            return Retry(delay_seconds=600, counts_as_try=False, github_wait=wait)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancellations.append(current_cancellation())
            raise
        return DONE

    await queue.put(job())
    async with running_worker(queue, handler):
        async with asyncio.timeout(20):
            while (known := await queue.get_record(job().id)) is None or not known.outage_tries:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # the Redis queue pauses the job after it stores the record
        assert await queue.cancel(job().id, Cancellation(reason="closed"))
        assert (await wait_for_state(queue, job().id)).result == Stopped(reason="closed")
    assert cancellations == [Cancellation(reason="closed")]
