"""The list of runs: kept by whoever does them, and found again when Redis was wiped."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.glance import Glance, of_log
from bot.indexing import ARCHIVE, glances, indexing, keep_whole, settled
from bot.jobs import Answered, Failed
from bot.observe.archive import Archive
from bot.redis.ledger import Ledger
from bot.redis.queue import ArqQueue
from bot.redis.runs import RUNS, Runs
from resolver.domain import Job, JobId, Refused
from resolver.events import Trajectory
from resolver.log import FileLogs, Log
from tests.bot.jobs import job
from tests.resolver.seen_runs import whole_run

pytestmark = pytest.mark.redis

RUN = job("acme-sample-7-0000000000aa")


@pytest.fixture
async def runs(url: str) -> AsyncIterator[Runs]:
    runs = Runs(url)
    yield runs
    await runs.close()


@asynccontextmanager
async def silently(job: Job, run: Log) -> AsyncIterator[None]:
    yield


async def until(runs: Runs, **wanted: object) -> Glance:
    async with asyncio.timeout(20):
        while True:
            found = await runs.get(RUN.id)
            if found and {name: getattr(found, name) for name in wanted} == wanted:
                return found
            await asyncio.sleep(0.02)


def test_a_log_is_told_in_a_line() -> None:
    run = whole_run()
    glance = of_log(RUN, run, working=False)
    assert (glance.state, glance.verdict, glance.pull) == ("delivered", "fixed", 8)
    assert (glance.steps, glance.repository, glance.by) == (run.spent().steps, "acme/sample", "maintainer")
    assert run.started is not None
    assert glance.title == run.started.thread.title
    assert of_log(RUN, Trajectory(run.entries[:-1]), working=False).state == "stopped"
    assert of_log(RUN, Trajectory(run.entries[:-1]), working=True).state == "working"


async def test_a_run_is_listed_while_it_goes_on_and_as_it_ended(runs: Runs, tmp_path: Path) -> None:
    events = list(whole_run())
    reporting = indexing(silently, runs, every=0.02)
    async with FileLogs(tmp_path).open(RUN.id) as log, reporting(RUN, log):
        await until(runs, state="working", steps=0)
        for event in events[:-1]:
            await log.append(event)
        await until(runs, state="working", steps=log.trajectory.spent().steps, title="add() subtracts")
        await log.append(events[-1])
    assert (await until(runs, state="delivered")).verdict == "fixed"


async def test_what_the_machine_failed_is_told_and_what_answered_a_person_is_no_run(
    url: str, runs: Runs
) -> None:
    queue = ArqQueue(url)
    said = job("acme-sample-7-0000000000bb")
    for one in (RUN, said):
        await queue.put(one, asked=datetime(2026, 1, 2, tzinfo=UTC))
    await settled(RUN.id, Failed(error="no disk"), runs, queue)
    await settled(said.id, Answered(), runs, queue)
    await settled(JobId("acme-sample-7-unknown"), Refused(explanation="no"), runs, queue)
    await queue.close()
    (only,) = await runs.newest()
    assert (only.run, only.state, only.began) == (
        RUN.id,
        "failed",
        datetime(2026, 1, 2, tzinfo=UTC).timestamp(),
    )


async def test_what_became_of_a_pull_request_is_told_with_its_run(url: str, runs: Runs) -> None:
    await runs.put(of_log(RUN, whole_run(), working=False))
    assert (await runs.newest())[0].fate is None
    ledger = Ledger(url)
    await ledger.outcome_of_pull(RUN.repo, 8, "untouched")
    await ledger.close()
    assert (await runs.newest())[0].fate == "untouched"


async def test_a_wiped_list_is_read_from_the_disk_again(runs: Runs, tmp_path: Path) -> None:
    async with FileLogs(tmp_path).open(RUN.id) as log:
        for event in whole_run():
            await log.append(event)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "events.jsonl").write_text("{}\n{}\n")
    keeping = asyncio.create_task(keep_whole(runs, tmp_path, every=0.05))
    try:
        first = await until(runs, state="delivered")
        await runs._redis.flushall()
        assert await until(runs, state="delivered") == first
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
    assert [one.run for one in glances(tmp_path)] == [RUN.id]


async def test_what_only_the_archive_has_is_read_from_there_by_one_worker(runs: Runs, tmp_path: Path) -> None:
    archive, other = Archive(f"file://{tmp_path}/kept"), JobId("acme-sample-8-0000000000cc")
    lines = "".join(entry.model_dump_json() + "\n" for entry in whole_run().entries).encode()
    for name in (RUN.id, other):
        archive.keep(name, lines)
    archive.keep(JobId("broken"), b"{}\n")
    newer = of_log(job(other), whole_run(), working=True)
    await runs.put(newer)
    keeping = [
        asyncio.create_task(keep_whole(runs, tmp_path / "none", archive, every=0.05)) for _ in range(2)
    ]
    try:
        async with asyncio.timeout(20):
            while await runs.lacks(ARCHIVE):
                await asyncio.sleep(0.02)
        found = await until(runs, state="delivered")
    finally:
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
    assert {one.run: one for one in await runs.newest()} == {RUN.id: found, other: newer}
    assert not await runs.claim(ARCHIVE)


async def test_what_is_read_from_the_disk_takes_the_place_of_nothing_newer(runs: Runs) -> None:
    newer = of_log(RUN, whole_run(), working=False)
    await runs.put(newer)
    await runs.has("here", [newer.model_copy(update={"state": "stopped"})])
    assert await runs.newest() == [newer]
    assert not await runs.lacks("here")


async def test_the_newest_come_first_and_the_oldest_go_when_there_are_too_many(url: str) -> None:
    runs = Runs(url, kept=3)
    for number in (2, 5, 1, 4, 3):
        name = f"run-{number}"
        await runs.put(Glance(run=JobId(name), state="working", began=float(number)))
    assert [one.run for one in await runs.newest()] == ["run-5", "run-4", "run-3"]
    assert await runs.get(JobId("run-1")) is None
    await runs._redis.hset(RUNS, "run-4", b"{}")  # of another version
    assert [one.run for one in await runs.newest()] == ["run-5", "run-3"]
    await runs.close()
