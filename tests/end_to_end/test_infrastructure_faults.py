"""What a run stands on goes away in the middle of it (Redis, the worker, the sandbox, the engine, the disk)."""

import asyncio
import contextlib
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import docker
import pytest

from patchwright.bot.embedded_redis import run_embedded_redis
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import redis_client
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import JobId, Published
from patchwright.resolver.events import JobCompleted, Message
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.reaper import RUN_LABEL
from tests.end_to_end.conftest import MENDED, Scene
from tests.end_to_end.workers import TwoWorkers, delivered, is_told, labeled, receiving, run_in, working
from tests.runtime.engine_relay import Relay

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SLOW = RecordedTurn("Take some time.", RunShell(command="sleep 6"))


async def test_redis_wiped_in_mid_run_ends_neither_what_runs_nor_what_waits(
    scene: Scene, tmp_path: Path
) -> None:
    wiped: list[int] = []
    second = scene.world.create_issue(
        scene.repo, title="add(1, 1) gives 0", body="It should give 2.", by="reporter"
    )

    async with run_embedded_redis(scene.data / "shared") as url:

        async def wipe(turn: int, body: object) -> None:
            if turn == 2 and not wiped:
                wiped.append(turn)
                redis = redis_client(url)
                await redis.flushall()
                await redis.aclose()

        await scene.will(*MENDED, on_request=wipe)
        scene.world.advance_time(hours=-1)  # what is younger than two minutes is left to its delivery
        one_at_a_time = {"PATCHWRIGHT_MAX_CONCURRENT_JOBS": "1", "PATCHWRIGHT_POLL": "true"}
        async with working(scene, url, tmp_path / "data", **one_at_a_time):
            await labeled(scene, url, scene.issue, second)
            await delivered(scene, url, scene.issue, second, seconds=240)
    assert wiped == [2]
    assert len(scene.repo.pulls) == 2
    assert [len(scene.repo.comments(each.number)) for each in (scene.issue, second)] == [1, 1]
    runs = FileLogStore(tmp_path / "data" / "runs")
    trajectories = [runs.read(JobId(path.name)) for path in (tmp_path / "data" / "runs").glob("*")]
    assert len(trajectories) == 2
    for each in trajectories:
        assert sum(isinstance(event, JobCompleted) for event in each) == 1
        assert not any(isinstance(event, Message) and event.source == "resume" for event in each)


async def test_a_worker_that_is_told_to_go_in_mid_run_leaves_it_to_another(
    scene: Scene, tmp_path: Path
) -> None:
    two = TwoWorkers(scene, tmp_path)

    def leave(turn: int, body: object) -> None:
        if turn == 2:
            two.strike(signal.SIGTERM)

    await scene.will(*MENDED, on_request=leave)
    async with two.working() as url:
        await labeled(scene, url)
        await delivered(scene, url)
        async with asyncio.timeout(30):
            assert await two.processes[two.struck[0]].wait() == 0
    assert (len(scene.repo.pulls), len(scene.comments)) == (1, 1)
    assert told(two.disks[two.heir]).count("resume") == 1


async def test_a_worker_that_was_only_asleep_finds_its_run_taken_and_keeps_quiet(
    scene: Scene, tmp_path: Path
) -> None:
    two = TwoWorkers(scene, tmp_path)
    woken = asyncio.Event()

    async def sleep(turn: int, body: object) -> None:
        if turn == 2 and not two.strike(signal.SIGSTOP) and not woken.is_set():  # the other one has gone on
            woken.set()
            two.send(signal.SIGCONT)
            await asyncio.sleep(10)  # time to find out, and to do wrong

    await scene.will(*MENDED, on_request=sleep)
    async with two.working() as url:
        await labeled(scene, url)
        async with asyncio.timeout(150):
            await woken.wait()
        final = []
        async with asyncio.timeout(150):
            while not is_told(scene):
                in_progress = scene.comments_in_progress
                final += [] if is_told(scene) else [one for one in scene.comments if one not in in_progress]
                await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        queue = ArqQueue(url)
        record = await queue.get_record(JobId(run_in(two.disks[0]) or ""))
        await queue.close()
    assert not final
    assert (len(scene.repo.pulls), len(scene.comments)) == (1, 1) and is_told(scene)
    assert scene.repo.branches == ("main", "patchwright/issue-1")
    assert record is not None and isinstance(record.result, Published)


@pytest.mark.docker
async def test_a_container_removed_under_a_command_costs_that_command_and_no_more(
    scene: Scene, tmp_path: Path
) -> None:
    await scene.will(*MENDED[:2], SLOW, MENDED[3])
    scene.environment["PATCHWRIGHT_SANDBOX"] = "docker"
    async with run_embedded_redis(scene.data / "shared") as url, working(scene, url, tmp_path / "data"):
        await labeled(scene, url)
        await under_way(scene)
        run = run_in(tmp_path / "data")
        await asyncio.to_thread(remove, f"{run}-agent")
        await delivered(scene, url, seconds=240)
    assert (len(scene.repo.pulls), len(scene.comments)) == (1, 1)
    assert told(tmp_path / "data").count("resume") == 1


@pytest.mark.docker
async def test_an_engine_that_is_away_under_a_command_is_waited_for(scene: Scene, tmp_path: Path) -> None:
    await scene.will(*MENDED[:2], SLOW, MENDED[3])
    scene.environment |= {"PATCHWRIGHT_SANDBOX": "docker", "PATCHWRIGHT_SANDBOX_TRANSPORT": "exec"}
    path, relay = scene.data / "engine.sock", Relay()
    async with AsyncExitStack() as stack:
        scene.environment["DOCKER_HOST"] = await stack.enter_async_context(relay.at(path))
        url = await stack.enter_async_context(run_embedded_redis(scene.data / "shared"))
        await stack.enter_async_context(working(scene, url, tmp_path / "data"))
        await labeled(scene, url)
        await under_way(scene)
        await relay.cut()
        await asyncio.sleep(3)
        path.unlink(missing_ok=True)
        await stack.enter_async_context(Relay().at(path))
        await delivered(scene, url, seconds=240)
    assert (len(scene.repo.pulls), len(scene.comments)) == (1, 1)
    assert told(tmp_path / "data").count("resume") == 1


async def test_a_worker_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(
    scene: Scene, tmp_path: Path
) -> None:
    filled: list[Path] = []

    def fill(turn: int, body: object) -> None:
        if turn == 2 and not filled:
            filled.append(tmp_path / "data" / "filler")
            with filled[0].open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)

    await scene.will(*MENDED, on_request=fill)
    async with run_embedded_redis(scene.data / "shared") as url:
        with small_disk(tmp_path / "data", mib=32):
            async with working(scene, url, tmp_path / "data"):
                await labeled(scene, url)
                async with asyncio.timeout(150):
                    while not any(re.search("disk ?space|space left", said) for said in scene.comments):
                        await asyncio.sleep(0.2)
                assert scene.repo.pulls == ()
                filled[0].unlink()
                async with receiving(scene, url):
                    await scene.world.add_comment(scene.issue, "@agent resume", by="maintainer")
                await delivered(scene, url)
    assert len(scene.repo.pulls) == 1


async def under_way(scene: Scene) -> None:
    """Wait until the model has asked for the slow command, and a little longer: it need not have begun."""
    async with asyncio.timeout(150):
        while len(scene.endpoint.requests) < 3:
            await asyncio.sleep(0.2)
    await asyncio.sleep(1.5)


def told(data: Path) -> list[str]:
    """Where what the agent was told in its one run came from."""
    run = run_in(data)
    assert run is not None
    return [
        event.source for event in FileLogStore(data / "runs").read(JobId(run)) if isinstance(event, Message)
    ]


def remove(run: str) -> None:
    client = docker.from_env()
    (container,) = client.containers.list(filters={"label": f"{RUN_LABEL}={run}"}, ignore_removed=True)
    container.remove(force=True)
    client.close()


@contextlib.contextmanager
def small_disk(path: Path, mib: int) -> Iterator[None]:
    """A file system of its own at this path, where this user may mount one."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(path)], check=False)
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
