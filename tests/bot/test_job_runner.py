"""The job runner retries transient errors and reports permanent ones."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.faults import classify_error
from patchwright.bot.job_runner import LOG_TAKEN_RETRY_SECONDS, JobRunner, TryLimits
from patchwright.bot.jobs import Cancellation, Failed, GitHubWait, JobRecord, Retry, Stopped
from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.domain import Job, JobId, Outcome, RunId
from patchwright.resolver.errors import (
    Forbidden,
    ForgeError,
    Interrupted,
    LogLocked,
    ModelAccessDenied,
    ModelError,
    RateLimited,
    RemoteUnavailable,
    SettingsError,
    Unauthorized,
    WorkspaceError,
)
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.errors import EngineUnavailable, SandboxLost
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, job, running_worker, wait_for_state
from tests.resolver.agent_runs import FakeSandbox, UncancelableModel, make_agent


class RunnerSetup:
    """A JobRunner with a fake resolver, and the failures that it reported."""

    def __init__(self, *endings: Outcome | BaseException) -> None:
        self.endings = list(endings)
        self.failures: list[tuple[str, str]] = []
        self.speechless: Exception | None = None
        self.record = JobRecord(job=job())
        self.worker = JobRunner(
            *(self.resolve, self.report_failure),
            limits=TryLimits(max_tries=3, first_retry_seconds=10, timeout_seconds=0.2),
            get_record=self.get_record,
        )

    async def get_record(self, job: JobId) -> JobRecord | None:
        return self.record

    async def resolve(self, job: Job) -> Outcome:
        if not self.endings:
            await asyncio.sleep(60)
        ending = self.endings.pop(0)
        if isinstance(ending, BaseException):
            raise ending
        return ending

    async def report_failure(self, job: Job, error: Exception) -> None:
        if self.speechless:
            raise self.speechless
        self.failures.append((job.id, str(error)))


async def test_an_outcome_is_returned() -> None:
    assert await RunnerSetup(DONE).worker.run(job(), 1) == DONE


@pytest.mark.parametrize(
    "error",
    [
        ForgeError("502"),
        ModelError("cut off"),
        SandboxLost("gone"),
        Interrupted("going away"),
        ExceptionGroup("tasks", [SandboxLost("gone")]),
    ],
    ids=repr,
)
async def test_transient_errors_are_retried_with_growing_delays(error: Exception) -> None:
    runner = RunnerSetup(error, error, error)
    assert await runner.worker.run(job(), 1) == Retry(delay_seconds=10)
    assert await runner.worker.run(job(), 2) == Retry(delay_seconds=20)
    assert runner.failures == []
    last = await runner.worker.run(job(), 3)
    assert isinstance(last, Failed)
    assert [notice for notice, _ in runner.failures] == [job().id]


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("not installed"),
        Unauthorized("expired"),
        ModelAccessDenied("no such model"),
        SettingsError("PATCHWRIGHT_MODEL is not set"),
        EngineUnavailable("no engine"),
        ZeroDivisionError("a fault of ours"),
        ExceptionGroup("tasks", [ForgeError("502"), ZeroDivisionError("and worse")]),
    ],
    ids=repr,
)
async def test_permanent_errors_are_reported_at_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    runner = RunnerSetup(error)
    expected = Failed(error=f"{type(error).__name__}: {error}", fault=classify_error(error))
    assert await runner.worker.run(job(), 1) == expected
    assert runner.failures == [(job().id, str(error))]
    (text,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (text.message, vars(text)["job"], vars(text)["try"]) == ("job failed", job().id, 1)
    is_bug = isinstance(error, ZeroDivisionError | ExceptionGroup)
    assert (vars(text)["error"], text.exc_info is not None) == (
        str(error),
        is_bug,
    )  # a traceback only for bugs


async def test_a_job_held_by_another_worker_is_left_to_it() -> None:
    runner = RunnerSetup(*[LogLocked("Another worker has gone on.")] * 2)
    for tries in (1, 3):
        assert await runner.worker.run(job(), tries) == Retry(
            delay_seconds=LOG_TAKEN_RETRY_SECONDS, counts_as_try=False
        )
    assert runner.failures == []


async def test_a_rate_limit_delays_the_retry() -> None:
    again = await RunnerSetup(
        RateLimited("slow down", datetime.now(UTC) + timedelta(seconds=900))
    ).worker.run(job(), 1)
    assert isinstance(again, Retry)
    assert 890 < again.delay_seconds <= 900


@pytest.mark.parametrize("error", [ForgeUnavailable("502"), RemoteUnavailable("502")], ids=repr)
@pytest.mark.parametrize(
    ("minutes", "wait_seconds"),
    [(0, 10), (2, 120), (30, 1800), (300, 3600), (24 * 60 - 10, 600), (24 * 60, None)],
)
async def test_a_job_waits_for_github_as_long_as_the_outage_for_a_day(
    error: Exception, minutes: int, wait_seconds: float | None
) -> None:
    runner = RunnerSetup(error)
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    if minutes:
        runner.record = JobRecord(job=job(), github_wait=GitHubWait(since=since, next_try=since))
    retry = await runner.worker.run(job(), 3)
    if wait_seconds is None:
        assert isinstance(retry, Failed) and retry.fault in ("forge", "repository")
        assert len(runner.failures) == 1
        return
    assert isinstance(retry, Retry) and retry.github_wait is not None
    assert (retry.delay_seconds, retry.counts_as_try) == (pytest.approx(wait_seconds, abs=5), False)
    assert abs(retry.github_wait.since - since) < timedelta(seconds=5)
    wait = retry.github_wait.next_try - datetime.now(UTC)
    assert wait.total_seconds() == pytest.approx(wait_seconds, abs=5)
    assert runner.failures == []


async def test_a_job_that_always_kills_its_worker_is_abandoned() -> None:
    runner = RunnerSetup(DONE)
    assert await runner.worker.run(job(), 4) == Failed(
        error="JobAbandoned: The job was started 3 times, and its worker died each time."
    )
    assert runner.failures == [(job().id, "The job was started 3 times, and its worker died each time.")]


async def test_a_job_that_hangs_frees_its_worker() -> None:
    runner = RunnerSetup()
    assert await runner.worker.run(job(), 1) == Failed(error="JobAbandoned: The job took longer than 0.2 s.")
    assert len(runner.failures) == 1


@pytest.mark.parametrize("trouble", [ForgeError("502"), TimeoutError(), ConnectionResetError()], ids=repr)
async def test_a_failure_that_cannot_be_reported_changes_nothing(trouble: Exception) -> None:
    runner = RunnerSetup(Forbidden("not installed"))
    runner.speechless = trouble
    assert await runner.worker.run(job(), 1) == Failed(error="Forbidden: not installed", fault="forge")


async def test_a_cancellation_unnoticed_by_the_run_is_reported_like_any_other(tmp_path: Path) -> None:
    queue, runner, model = InlineQueue(), RunnerSetup(), UncancelableModel()

    async def resolve(job: Job) -> Outcome:
        async with FileLogStore(tmp_path).open(RunId(job.id)) as log:
            agent = make_agent(model, FakeSandbox())
            await record_prompts(log, "You fix.", "Issue 7", agent.tools)
            await agent.run(log)
        return DONE

    await queue.put(job())
    async with running_worker(queue, JobRunner(resolve, runner.report_failure).run):
        await asyncio.wait_for(model.request_started.wait(), 10)
        await queue.cancel(job().id, Cancellation(reason="unlabeled", by="triager"))
        assert (await wait_for_state(queue, job().id)).result == Stopped(reason="unlabeled", by="triager")
        async with asyncio.timeout(60):
            while not runner.failures:
                await asyncio.sleep(0.02)
    assert runner.failures == [(job().id, "@triager removed the label.")]


async def test_a_stopped_job_is_stopped_even_if_the_run_ends_with_an_error() -> None:
    queue, runner, started = InlineQueue(), RunnerSetup(), asyncio.Event()

    async def resolve(job: Job) -> Outcome:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise WorkspaceError("git was killed")

    await queue.put(job())
    async with running_worker(queue, JobRunner(resolve, runner.report_failure).run):
        await asyncio.wait_for(started.wait(), 10)
        await queue.cancel(job().id, Cancellation(by="maintainer"))
        assert (await wait_for_state(queue, job().id)).result == Stopped(by="maintainer")
    assert runner.failures == [(job().id, "@maintainer stopped this run.")]


async def test_a_job_suspended_by_its_worker_reports_nothing() -> None:
    runner = RunnerSetup()
    task = asyncio.create_task(runner.worker.run(job(), 1))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runner.failures == []
