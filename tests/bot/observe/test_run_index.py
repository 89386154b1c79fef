"""The index of runs: kept up to date by workers, and rebuilt after Redis was wiped."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from patchwright.bot.jobs import Answered, Cancellation, Failed, Stopped
from patchwright.bot.observe.archive import Archive
from patchwright.bot.observe.run_index import (
    ARCHIVE_SOURCE,
    index_result,
    index_saved_branch,
    keep_index_complete,
    read_local_summaries,
    with_run_index,
)
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.counters import Counters
from patchwright.bot.redis.shared_run_index import RUNS_KEY, SharedRunIndex
from patchwright.bot.run_summary import RunSummary, summarize_log
from patchwright.resolver.domain import Job, JobId, Rejected
from patchwright.resolver.events import AgentStopped, Message, RunStarted, Trajectory
from patchwright.resolver.run_log import FileLogStore, RunLog
from tests.bot.jobs import job
from tests.resolver.sample_runs import full_run, model_reply, started

pytestmark = pytest.mark.redis

RUN = job("acme-sample-7-0000000000aa")


@pytest.fixture
async def runs(url: str) -> AsyncIterator[SharedRunIndex]:
    runs = SharedRunIndex(url)
    yield runs
    await runs.close()


@asynccontextmanager
async def silently(job: Job, run: RunLog) -> AsyncIterator[None]:
    yield


async def until(runs: SharedRunIndex, **wanted: object) -> RunSummary:
    async with asyncio.timeout(20):
        while True:
            found = await runs.get(RUN.id)
            if found and {name: getattr(found, name) for name in wanted} == wanted:
                return found
            await asyncio.sleep(0.02)


def test_a_log_is_summarized() -> None:
    run = full_run()
    summary = summarize_log(RUN, run, is_running=False)
    assert (summary.state, summary.verdict, summary.pull_request) == ("published", "fixed", 8)
    assert (summary.steps, summary.repository, summary.requester) == (
        run.usage().steps,
        "acme/sample",
        "maintainer",
    )
    assert run.run_started is not None
    assert summary.title == run.run_started.thread.title
    assert summarize_log(RUN, Trajectory(run.entries[:-1]), is_running=False).state == "stopped"
    assert summarize_log(RUN, Trajectory(run.entries[:-1]), is_running=True).state == "running"


async def test_a_run_is_indexed_while_it_runs_and_with_its_result(
    runs: SharedRunIndex, tmp_path: Path
) -> None:
    first, *others = full_run()
    assert isinstance(first, RunStarted)
    events = [first.model_copy(update={"job": RUN}), *others]
    reporting = with_run_index(silently, runs, interval=0.02)
    async with FileLogStore(tmp_path).open(RUN.id) as log, reporting(RUN, log):
        await until(runs, state="running", steps=0)
        for event in events[:-1]:
            await log.append(event)
        await until(runs, state="running", steps=log.trajectory.usage().steps, title="add() subtracts")
        await log.append(events[-1])
    assert (await until(runs, state="published")).verdict == "fixed"


async def test_failures_are_indexed_and_answered_commands_are_not(url: str, runs: SharedRunIndex) -> None:
    queue = ArqQueue(url)
    published_job = job("acme-sample-7-0000000000bb")
    for one in (RUN, published_job):
        await queue.put(one, requested_at=datetime(2026, 1, 2, tzinfo=UTC))
    await index_result(RUN.id, Failed(error="no disk"), runs, queue)
    await index_result(published_job.id, Answered(), runs, queue)
    await index_result(JobId("acme-sample-7-unknown"), Rejected(explanation="no"), runs, queue)
    await queue.close()
    (only,) = await runs.list_newest()
    assert (only.run, only.state, only.started_at) == (
        RUN.id,
        "failed",
        datetime(2026, 1, 2, tzinfo=UTC).timestamp(),
    )


async def test_a_stopped_run_is_indexed_with_its_cancellation_and_its_branch(
    url: str, runs: SharedRunIndex
) -> None:
    queue = ArqQueue(url)
    await runs.put(summarize_log(RUN, Trajectory(full_run().entries[:-1]), is_running=False))
    await index_saved_branch(RUN.id, "patchwright/issue-7-after-1-steps", runs)
    await index_result(RUN.id, Stopped(reason="unlabeled", by="maintainer"), runs, queue)
    await index_saved_branch(JobId("acme-sample-7-unknown"), "a-branch", runs)
    await queue.close()
    (only,) = await runs.list_newest()
    assert (only.state, only.saved_branch) == ("stopped", "patchwright/issue-7-after-1-steps")
    assert only.cancellation == Cancellation(reason="unlabeled", by="maintainer")


async def test_a_job_that_resumes_a_run_updates_that_run(
    url: str, runs: SharedRunIndex, tmp_path: Path
) -> None:
    queue, resuming = ArqQueue(url), job("acme-sample-7-0000000000bb")
    first = started().model_copy(update={"job": RUN})
    message = Message(text="Go on.", source="resume", trigger_id=resuming.id)
    stopped = AgentStopped(reason="limit", detail="The limit is reached.")
    reporting = with_run_index(silently, runs, interval=0.02)
    async with FileLogStore(tmp_path).open(RUN.id) as log:
        async with reporting(RUN, log):
            for event in (first, model_reply("a", usd="0.5"), stopped):
                await log.append(event)
        await index_result(RUN.id, Stopped(by="maintainer"), runs, queue)
        async with reporting(resuming, log):
            for event in (message, model_reply("b", usd="0.25")):
                await log.append(event)
            running = await until(runs, state="running", steps=2)
            assert (running.cost_usd, running.cancellation, running.resumed_by) == (0.75, None, resuming.id)
            own = await runs.get(resuming.id)
            assert own is not None
            assert (own.state, own.resumed_run, own.cost_usd, own.steps) == ("resumed", RUN.id, 0.25, 1)
    await index_saved_branch(resuming.id, "patchwright/issue-7-after-2-steps", runs)
    await index_result(resuming.id, Failed(error="no disk"), runs, queue)
    await queue.close()
    found = {one.run: one for one in await runs.list_newest()}
    assert {run: one.state for run, one in found.items()} == {RUN.id: "failed", resuming.id: "resumed"}
    assert found[RUN.id].saved_branch == "patchwright/issue-7-after-2-steps"


async def test_the_outcome_of_a_pull_request_is_indexed_with_its_run(url: str, runs: SharedRunIndex) -> None:
    await runs.put(summarize_log(RUN, full_run(), is_running=False))
    assert (await runs.list_newest())[0].pull_outcome is None
    counters = Counters(url)
    await counters.record_pull_outcome(RUN.repo, 8, "untouched")
    await counters.close()
    assert (await runs.list_newest())[0].pull_outcome == "untouched"


async def test_a_wiped_index_is_rebuilt_from_disk(runs: SharedRunIndex, tmp_path: Path) -> None:
    async with FileLogStore(tmp_path).open(RUN.id) as log:
        for event in full_run():
            await log.append(event)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "events.jsonl").write_text("{}\n{}\n")
    keeping = asyncio.create_task(keep_index_complete(runs, tmp_path, interval=0.05))
    try:
        first = await until(runs, state="published")
        await runs._redis.flushall()
        assert await until(runs, state="published") == first
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
    assert [one.run for one in read_local_summaries(tmp_path)] == [RUN.id]


async def test_archived_runs_are_indexed_by_one_worker(runs: SharedRunIndex, tmp_path: Path) -> None:
    archive, other = Archive(f"file://{tmp_path}/kept"), JobId("acme-sample-8-0000000000cc")
    lines = "".join(entry.model_dump_json() + "\n" for entry in full_run().entries).encode()
    for name in (RUN.id, other):
        archive.store(name, lines)
    archive.store(JobId("broken"), b"{}\n")
    newer = summarize_log(job(other), full_run(), is_running=True)
    await runs.put(newer)
    keeping = [
        asyncio.create_task(keep_index_complete(runs, tmp_path / "none", archive, interval=0.05))
        for _ in range(2)
    ]
    try:
        async with asyncio.timeout(20):
            while await runs.needs_indexing(ARCHIVE_SOURCE):
                await asyncio.sleep(0.02)
        found = await until(runs, state="published")
    finally:
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
    assert {one.run: one for one in await runs.list_newest()} == {RUN.id: found, other: newer}
    assert not await runs.claim_indexing(ARCHIVE_SOURCE)


async def test_rebuilding_the_index_replaces_no_newer_summary(runs: SharedRunIndex) -> None:
    newer = summarize_log(RUN, full_run(), is_running=False)
    await runs.put(newer)
    await runs.add_missing("here", [newer.model_copy(update={"state": "stopped"})])
    assert await runs.list_newest() == [newer]
    assert not await runs.needs_indexing("here")


async def test_the_newest_runs_come_first_and_the_oldest_are_dropped(url: str) -> None:
    runs = SharedRunIndex(url, max_runs=3)
    for number in (2, 5, 1, 4, 3):
        name = f"run-{number}"
        await runs.put(RunSummary(run=JobId(name), state="running", started_at=float(number)))
    assert [one.run for one in await runs.list_newest()] == ["run-5", "run-4", "run-3"]
    assert await runs.get(JobId("run-1")) is None
    await runs._redis.hset(RUNS_KEY, "run-4", b"{}")  # Written by another version.
    assert [one.run for one in await runs.list_newest()] == ["run-5", "run-3"]
    await runs.close()
