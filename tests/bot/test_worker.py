"""What a worker makes of accidents."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.jobs import Again, Cancelled, Failed
from bot.observe.faults import fault_of
from bot.worker import TAKEN_SECONDS, Worker
from resolver.agent import begin
from resolver.domain import Job, Outcome, RunId
from resolver.errors import (
    Forbidden,
    ForgeError,
    Interrupted,
    LogTaken,
    ModelError,
    ModelRefused,
    RateLimited,
    SettingsError,
    Unauthorized,
)
from resolver.log import FileLogs
from runtime.errors import EngineUnavailable, SandboxLost
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, job, settled, working
from tests.resolver.agents import Box, Deaf, agent


class Kit:
    """A resolve that does as it is told, and what the thread was told."""

    def __init__(self, *endings: Outcome | BaseException) -> None:
        self.endings = list(endings)
        self.told: list[tuple[str, str]] = []
        self.speechless: Exception | None = None
        self.worker = Worker(self.resolve, self.apologize, most_tries=3, first_pause=10, limit_seconds=0.2)

    async def resolve(self, job: Job) -> Outcome:
        if not self.endings:
            await asyncio.sleep(60)
        ending = self.endings.pop(0)
        if isinstance(ending, BaseException):
            raise ending
        return ending

    async def apologize(self, job: Job, error: Exception) -> None:
        if self.speechless:
            raise self.speechless
        self.told.append((job.id, str(error)))


async def test_an_outcome_is_handed_on() -> None:
    assert await Kit(DONE).worker.run(job(), 1) == DONE


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
async def test_what_may_pass_is_tried_again_after_longer_and_longer(error: Exception) -> None:
    kit = Kit(error, error, error)
    assert await kit.worker.run(job(), 1) == Again(seconds=10)
    assert await kit.worker.run(job(), 2) == Again(seconds=20)
    assert kit.told == []
    last = await kit.worker.run(job(), 3)
    assert isinstance(last, Failed)
    assert [told for told, _ in kit.told] == [job().id]


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("not installed"),
        Unauthorized("expired"),
        ModelRefused("no such model"),
        SettingsError("PATCHWRIGHT_MODEL is not set"),
        EngineUnavailable("no engine"),
        ZeroDivisionError("a fault of ours"),
        ExceptionGroup("tasks", [ForgeError("502"), ZeroDivisionError("and worse")]),
    ],
    ids=repr,
)
async def test_what_will_not_pass_is_told_at_once(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit(error)
    expected = Failed(error=f"{type(error).__name__}: {error}", fault=fault_of(error))
    assert await kit.worker.run(job(), 1) == expected
    assert kit.told == [(job().id, str(error))]
    (said,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (said.message, vars(said)["job"], vars(said)["try"]) == ("job failed", job().id, 1)


async def test_what_another_worker_has_taken_over_is_left_to_it_however_often() -> None:
    kit = Kit(*[LogTaken("Another worker has gone on.")] * 2)
    for tries in (1, 3):
        assert await kit.worker.run(job(), tries) == Again(seconds=TAKEN_SECONDS, counts=False)
    assert kit.told == []


async def test_a_rate_limit_is_waited_for() -> None:
    again = await Kit(RateLimited("slow down", datetime.now(UTC) + timedelta(seconds=900))).worker.run(
        job(), 1
    )
    assert isinstance(again, Again)
    assert 890 < again.seconds <= 900


async def test_a_job_that_kills_its_worker_every_time_is_given_up() -> None:
    kit = Kit(DONE)
    assert await kit.worker.run(job(), 4) == Failed(
        error="GaveUp: The work was begun 3 times and broke off each time."
    )
    assert kit.told == [(job().id, "The work was begun 3 times and broke off each time.")]


async def test_a_job_that_hangs_frees_its_worker() -> None:
    kit = Kit()
    assert await kit.worker.run(job(), 1) == Failed(error="GaveUp: The work took longer than 0.2 s.")
    assert len(kit.told) == 1


@pytest.mark.parametrize("trouble", [ForgeError("502"), TimeoutError(), ConnectionResetError()], ids=repr)
async def test_a_thread_that_cannot_be_told_changes_nothing(trouble: Exception) -> None:
    kit = Kit(Forbidden("not installed"))
    kit.speechless = trouble
    assert await kit.worker.run(job(), 1) == Failed(error="Forbidden: not installed", fault="forge")


async def test_a_stop_that_a_run_has_not_heard_itself_ends_it_as_one_that_it_has(tmp_path: Path) -> None:
    queue, kit, model = InlineQueue(), Kit(), Deaf()

    async def resolve(job: Job) -> Outcome:
        async with FileLogs(tmp_path).open(RunId(job.id)) as log:
            mind = agent(model, Box())
            await begin(log, "You mend.", "Issue 7", mind.tools)
            await mind.run(log)
        return DONE

    await queue.put(job())
    async with working(queue, Worker(resolve, kit.apologize).run):
        await asyncio.wait_for(model.asked.wait(), 10)
        await queue.cancel(job().id, "unlabelled")
        assert (await settled(queue, job().id)).result == Cancelled(why="unlabelled")
        async with asyncio.timeout(10):
            while not kit.told:
                await asyncio.sleep(0.02)
    assert kit.told == [(job().id, "Somebody took the label away.")]


async def test_a_cancelled_job_tells_nobody() -> None:
    kit = Kit()
    task = asyncio.create_task(kit.worker.run(job(), 1))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kit.told == []
