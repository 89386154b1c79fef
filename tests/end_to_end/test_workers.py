"""`patchwright work` alone does what a receiver has stored in the Redis that they share, and what another left."""

import signal
from pathlib import Path

import pytest

from patchwright.bot.embedded_redis import run_embedded_redis
from patchwright.resolver.domain import JobId
from patchwright.resolver.events import AgentStopped, JobCompleted, Message
from patchwright.resolver.run_log import FileLogStore
from tests.end_to_end.conftest import CODE, MENDED, Scene
from tests.end_to_end.workers import TwoWorkers, delivered, labeled, run_in, working

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_a_worker_on_another_disk_does_what_a_receiver_has_stored(scene: Scene, tmp_path: Path) -> None:
    await scene.will(*MENDED)
    async with run_embedded_redis(scene.data / "shared") as url, working(scene, url, tmp_path / "other"):
        await labeled(scene, url)
        await delivered(scene, url)
    assert run_in(tmp_path / "other") is not None
    assert scene.runs == ()


async def test_a_run_whose_worker_is_killed_is_finished_by_another_on_another_disk(
    scene: Scene, tmp_path: Path
) -> None:
    two = TwoWorkers(scene, tmp_path)

    def kill(turn: int, body: object) -> None:
        """While the model thinks of its third reply."""
        if turn == 2:
            two.strike(signal.SIGKILL)

    await scene.will(*MENDED, on_request=kill)
    async with two.working() as url:
        await labeled(scene, url)
        await delivered(scene, url)
    victim, heir = two.struck[0], two.heir
    codes = (two.processes[victim].returncode, two.processes[heir].returncode)
    assert codes == (-signal.SIGKILL, 0)
    assert len(scene.comments) == 1
    assert not scene.pull.draft
    assert scene.repo.branches == ("main", "patchwright/issue-1")
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")

    run = run_in(two.disks[heir])
    assert run is not None and run == run_in(two.disks[victim])
    begun = FileLogStore(two.disks[victim] / "runs").read(JobId(run)).entries
    whole = FileLogStore(two.disks[heir] / "runs").read(JobId(run))
    assert whole.entries[: len(begun)] == begun
    assert not any(isinstance(entry.event, AgentStopped) for entry in begun)
    assert [event.source for event in whole if isinstance(event, Message)].count("resume") == 1
    assert sum(isinstance(event, JobCompleted) for event in whole) == 1
