"""A job waits while GitHub is down, and continues when GitHub responds again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patchwright.bot.composition import composition_root
from patchwright.bot.github.auth import RequestPolicy
from patchwright.bot.job_runner import JobRunner, TryLimits
from patchwright.bot.jobs import Failed, JobRecord
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.run_summary import summarize_record
from patchwright.bot.status_comment import comment_reporter, report_failure
from patchwright.resolver.domain import Job, Outcome, Published
from patchwright.resolver.forge import MaskingForge
from patchwright.resolver.pipeline.resolve import resolve_job
from tests.bot.dashboard.browsing import UnreliableProxy
from tests.bot.jobs import running_worker, wait_for_state
from tests.end_to_end.conftest import FIX_TURNS, Scenario

pytestmark = [pytest.mark.redis, pytest.mark.slow]

# A fiftieth of the product's first wait. With five tries at growing intervals, a job would fail after 3 s.
FIRST_RETRY_SECONDS = 0.2
OUTAGE_SECONDS = 6.0
MODEL_REQUESTS = len(FIX_TURNS)  # without an outage


@pytest.fixture
async def github(scenario: Scenario) -> AsyncIterator[UnreliableProxy]:
    """The connection of the scenario's bot to GitHub, which can be cut."""
    server = scenario.fake_github.server_url
    async with UnreliableProxy(server) as proxy:
        scenario.environment["GITHUB_SERVER_URL"] = proxy.url
        yield proxy


@asynccontextmanager
async def run_worker(scenario: Scenario, url: str, **limits: float) -> AsyncIterator[ArqQueue]:
    """Runs a new worker with a scaled clock, and yields its queue."""
    settings = composition_root.read_settings({}, scenario.environment, None, None)
    queue = ArqQueue(url, is_only_worker=True)
    async with (
        composition_root.build_run_dependencies(settings, notify=print) as dependencies,
        composition_root.open_forge(settings, RequestPolicy(write_interval=0, initial_backoff=0.01)) as forge,
    ):
        masked = MaskingForge(forge, dependencies.secrets.mask)

        async def resolve(job: Job) -> Outcome:
            return await resolve_job(job, dependencies, masked, comment_reporter(masked, settings))

        runner = JobRunner(
            resolve,
            lambda job, error: report_failure(masked, job, error, dependencies),
            limits=TryLimits(first_retry_seconds=FIRST_RETRY_SECONDS, **limits),  # type: ignore[arg-type]
            get_record=queue.get_record,
        )
        async with running_worker(queue, runner.run):
            yield queue
    await queue.close()


async def wait_for(queue: ArqQueue, job: Job, is_reached: Callable[[JobRecord], bool]) -> JobRecord:
    async with asyncio.timeout(60):
        while (record := await queue.get_record(job.id)) is None or not is_reached(record):
            await asyncio.sleep(0.02)
    return record


def cut_at_last_turn(github: UnreliableProxy) -> Callable[[int, object], Awaitable[None]]:
    async def cut(turn: int, body: object) -> None:
        if turn == len(FIX_TURNS) - 1:
            await github.cut()

    return cut


@pytest.mark.parametrize("is_down_at", ["start", "delivery"])
async def test_a_job_survives_a_long_outage_and_a_restart_and_pays_the_model_once(
    scenario: Scenario, github: UnreliableProxy, short_tmp: Path, is_down_at: str
) -> None:
    if is_down_at == "start":
        await scenario.script_model(*FIX_TURNS)
        await github.cut()
    else:
        await scenario.script_model(*FIX_TURNS, on_request=cut_at_last_turn(github))
    job = scenario.job()
    async with run_embedded_redis(short_tmp) as url:
        async with run_worker(scenario, url) as queue:
            await queue.put(job)
            waiting = await wait_for(queue, job, lambda record: record.outage_tries >= 2)
            ended_at = asyncio.get_running_loop().time() + OUTAGE_SECONDS
        async with run_worker(scenario, url) as queue:  # the worker restarts during the outage
            while asyncio.get_running_loop().time() < ended_at:
                await asyncio.sleep(0.1)
            waiting_on = await wait_for(queue, job, lambda record: record.state == "queued")
            await github.restore()
            await queue.end_github_waits()
            record = await wait_for_state(queue, job.id, seconds=90)
    assert waiting.github_wait and waiting_on.github_wait
    assert waiting_on.github_wait.since == waiting.github_wait.since
    assert waiting_on.github_wait.next_try > waiting.github_wait.next_try
    assert summarize_record(waiting_on).github_wait == waiting_on.github_wait
    assert isinstance(record.result, Published), record.result
    assert len(scenario.endpoint.requests) == MODEL_REQUESTS
    assert (len(scenario.repo.pulls), len(scenario.comments)) == (1, 1)


async def test_a_job_fails_after_an_outage_beyond_the_limit(
    scenario: Scenario, github: UnreliableProxy, short_tmp: Path
) -> None:
    """The control: the same outage ends a job that may wait only half as long."""
    await scenario.script_model(*FIX_TURNS)
    await github.cut()
    async with (
        run_embedded_redis(short_tmp) as url,
        run_worker(scenario, url, max_outage_seconds=OUTAGE_SECONDS / 2) as queue,
    ):
        await queue.put(scenario.job())
        record = await wait_for_state(queue, scenario.job().id, seconds=60)
    assert isinstance(record.result, Failed) and record.result.fault == "forge"
    assert scenario.endpoint.requests == []
