"""`patchwright work` runs the jobs that a receiver stored in the shared Redis, and those of a killed worker."""

import signal
from pathlib import Path

import pytest

from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.resolver.domain import JobId
from patchwright.resolver.events import AgentStopped, JobCompleted, Message
from patchwright.resolver.run_log import FileLogStore
from tests.end_to_end.conftest import CODE, FIX_TURNS, Scenario
from tests.end_to_end.workers import TwoWorkers, find_run, label_issues, run_worker, wait_for_pull_requests
from tests.preloaded_command import COMMAND

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_a_worker_on_another_disk_runs_the_jobs_that_a_receiver_stored(
    scenario: Scenario, tmp_path: Path
) -> None:
    await scenario.script_model(*FIX_TURNS)
    async with (
        run_embedded_redis(scenario.data / "shared") as url,
        run_worker(scenario, url, tmp_path / "other"),
    ):
        await label_issues(scenario, url)
        await wait_for_pull_requests(scenario, url)
    assert find_run(tmp_path / "other") is not None
    assert scenario.runs == ()


async def test_the_run_of_a_killed_worker_is_completed_by_another_on_another_disk(
    scenario: Scenario, tmp_path: Path
) -> None:
    two = TwoWorkers(scenario, tmp_path, COMMAND)

    def kill(turn: int, body: object) -> None:
        """While the model computes its third reply."""
        if turn == 2:
            two.signal_active_worker(signal.SIGKILL)

    await scenario.script_model(*FIX_TURNS, on_request=kill)
    async with two.run_both() as url:
        await label_issues(scenario, url)
        await wait_for_pull_requests(scenario, url)
    victim, heir = two.signaled[0], two.other_worker
    codes = (two.processes[victim].returncode, two.processes[heir].returncode)
    assert codes == (-signal.SIGKILL, 0)
    assert len(scenario.comments) == 1
    assert not scenario.pull.draft
    assert scenario.repo.branches == ("main", "patchwright/issue-1")
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")

    run = find_run(two.disks[heir])
    assert run is not None and run == find_run(two.disks[victim])
    start = FileLogStore(two.disks[victim] / "runs").read(JobId(run)).entries
    whole = FileLogStore(two.disks[heir] / "runs").read(JobId(run))
    assert whole.entries[: len(start)] == start
    assert not any(isinstance(entry.event, AgentStopped) for entry in start)
    assert [event.source for event in whole if isinstance(event, Message)].count("resume") == 1
    assert sum(isinstance(event, JobCompleted) for event in whole) == 1
