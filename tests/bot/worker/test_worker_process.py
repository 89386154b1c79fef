"""A worker that receives requests while its sandboxes are still being prepared."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.worker.worker_process import WorkerGitHub, WorkerHooks, run_worker
from patchwright.resolver.domain import Job, JobId, Rejected
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import EngineUnavailable
from tests.bot.handler_scenario import HandlerScenario
from tests.bot.handler_scenario import scenario as scenario  # the fixture
from tests.bot.jobs import DONE, wait_for_state

pytestmark = pytest.mark.redis

WAITS = (
    "Queued: the container images are being built first, which takes a minute or two. To stop this run, "
    "comment `@agent stop`."
)


@dataclass
class SlowImageBuild:
    """A worker for a scenario; its image build takes as long as the test wants."""

    scenario: HandlerScenario
    url: str
    data: Path
    made: asyncio.Event = field(default_factory=asyncio.Event)
    lines: list[str] = field(default_factory=list)
    failure: Exception | None = None

    async def prepare(self) -> None:
        await self.made.wait()
        if self.failure is not None:
            raise self.failure

    async def resolve(self, job: Job) -> Rejected:
        await self.scenario.forge.upsert_comment(job.repo, job.number, job.id, render_reply("working.md.j2"))
        return DONE

    async def report_failure(self, job: Job, error: Exception) -> None:
        raise AssertionError(error)

    async def run(self) -> None:
        await run_worker(
            Settings(data=self.data, redis_url=self.url),
            self.resolve,
            self.report_failure,
            WorkerGitHub(forge=self.scenario.forge),
            WorkerHooks(prepare=self.prepare),
            announce=self.lines.append,
        )

    @asynccontextmanager
    async def running_worker(self) -> AsyncIterator[None]:
        worker = asyncio.create_task(self.run())
        try:
            yield
        finally:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    async def add_label(self) -> JobId:
        """Adds the label, delivers the event, and returns the job once it is queued."""
        delivery = await self.scenario.fake_github.add_label(self.scenario.issue, "fix-me", by="maintainer")
        inbox, queue = DeliveryInbox(self.url), ArqQueue(self.url)
        try:
            await inbox.put(delivery.guid, delivery.event, delivery.body)
            async with asyncio.timeout(20):
                while not (known := await queue.all_active_jobs()):
                    await asyncio.sleep(0.02)
        finally:
            await inbox.close()
            await queue.close()
        return known[0].job.id


@pytest.fixture
async def slow(scenario: HandlerScenario, short_tmp: Path) -> AsyncIterator[SlowImageBuild]:
    async with run_embedded_redis(short_tmp) as url:
        yield SlowImageBuild(scenario, url, short_tmp)


async def test_a_label_during_the_image_build_gets_a_notice_in_the_status_comment(
    slow: SlowImageBuild,
) -> None:
    queue, presence = ArqQueue(slow.url), Heartbeats(slow.url)
    async with slow.running_worker():
        job = await slow.add_label()
        assert await slow.scenario.wait_for_reply("Queued: ") == WAITS
        assert (slow.lines, await presence.count_workers()) == ([], 0)
        slow.made.set()
        assert (await wait_for_state(queue, job)).result == DONE
        assert slow.lines[0].startswith("patchwright worker ready as ")
        assert slow.scenario.replies == [render_reply("working.md.j2").strip()]
    await queue.close()
    await presence.close()


@pytest.mark.slow
async def test_the_image_build_is_not_mentioned_if_another_worker_takes_the_job(slow: SlowImageBuild) -> None:
    other = SlowImageBuild(slow.scenario, slow.url, slow.data)
    other.made.set()
    queue = ArqQueue(slow.url)
    async with slow.running_worker(), other.running_worker():
        assert (await wait_for_state(queue, await slow.add_label())).result == DONE
        await asyncio.sleep(3)  # Longer than the delay of a queue notice.
    assert slow.scenario.replies == [render_reply("working.md.j2").strip()]
    await queue.close()


async def test_a_worker_without_an_engine_exits_with_the_engines_error(slow: SlowImageBuild) -> None:
    slow.failure = EngineUnavailable("no Docker engine answers")
    slow.made.set()
    async with asyncio.timeout(20):
        with pytest.raises(EngineUnavailable, match="no Docker engine answers"):
            await slow.run()
    assert slow.lines == []
