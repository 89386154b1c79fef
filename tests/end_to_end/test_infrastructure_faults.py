"""Infrastructure fails during a run: Redis, worker, sandbox, engine, and disk."""

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

from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import JobId, Published
from patchwright.resolver.events import JobCompleted, Message
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.reaper import RUN_LABEL
from tests.end_to_end.conftest import FIX_TURNS, Scenario
from tests.end_to_end.workers import (
    TwoWorkers,
    find_run,
    has_pull_request_comment,
    label_issues,
    receive_deliveries,
    run_worker,
    wait_for_pull_requests,
)
from tests.preloaded_command import COMMAND
from tests.runtime.engine_relay import Relay

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SLOW = RecordedTurn("Take some time.", RunShell(command="sleep 6"))


async def test_wiping_redis_affects_neither_running_nor_queued_jobs(
    scenario: Scenario, tmp_path: Path
) -> None:
    wiped: list[int] = []
    second = scenario.fake_github.create_issue(
        scenario.repo, title="add(1, 1) gives 0", body="It should give 2.", by="reporter"
    )

    async with run_embedded_redis(scenario.data / "shared") as url:

        async def wipe(turn: int, body: object) -> None:
            if turn == 2 and not wiped:
                wiped.append(turn)
                redis = redis_client(url)
                await redis.flushall()
                await redis.aclose()

        await scenario.script_model(*FIX_TURNS, on_request=wipe)
        scenario.fake_github.advance_time(
            hours=-1
        )  # anything younger than two minutes is left to its delivery
        one_at_a_time = {"PATCHWRIGHT_MAX_CONCURRENT_JOBS": "1", "PATCHWRIGHT_POLL": "true"}
        async with run_worker(scenario, url, tmp_path / "data", **one_at_a_time):
            await label_issues(scenario, url, scenario.issue, second)
            await wait_for_pull_requests(scenario, url, scenario.issue, second, seconds=240)
    assert wiped == [2]
    assert len(scenario.repo.pulls) == 2
    assert [len(scenario.repo.comments(each.number)) for each in (scenario.issue, second)] == [1, 1]
    runs = FileLogStore(tmp_path / "data" / "runs")
    trajectories = [runs.read(JobId(path.name)) for path in (tmp_path / "data" / "runs").glob("*")]
    assert len(trajectories) == 2
    for each in trajectories:
        assert sum(isinstance(event, JobCompleted) for event in each) == 1
        assert not any(isinstance(event, Message) and event.source == "resume" for event in each)


async def test_a_worker_that_is_terminated_hands_its_run_to_another(
    scenario: Scenario, tmp_path: Path
) -> None:
    two = TwoWorkers(scenario, tmp_path)

    def leave(turn: int, body: object) -> None:
        if turn == 2:
            two.signal_active_worker(signal.SIGTERM)

    await scenario.script_model(*FIX_TURNS, on_request=leave)
    async with two.run_both() as url:
        await label_issues(scenario, url)
        await wait_for_pull_requests(scenario, url)
        async with asyncio.timeout(30):
            assert await two.processes[two.signaled[0]].wait() == 0
    assert (len(scenario.repo.pulls), len(scenario.comments)) == (1, 1)
    assert message_sources(two.disks[two.other_worker]).count("resume") == 1


async def test_a_stalled_worker_whose_run_was_taken_over_stays_silent(
    scenario: Scenario, tmp_path: Path
) -> None:
    two = TwoWorkers(scenario, tmp_path, COMMAND)  # the process itself gets the signal
    woken = asyncio.Event()

    async def sleep(turn: int, body: object) -> None:
        if (
            turn == 2 and not two.signal_active_worker(signal.SIGSTOP) and not woken.is_set()
        ):  # the other worker has continued
            woken.set()
            two.send(signal.SIGCONT)
            await asyncio.sleep(10)  # time to notice the takeover, and to make mistakes

    await scenario.script_model(*FIX_TURNS, on_request=sleep)
    async with two.run_both() as url:
        await label_issues(scenario, url)
        async with asyncio.timeout(150):
            await woken.wait()
        final = []
        async with asyncio.timeout(150):
            while not has_pull_request_comment(scenario):
                in_progress = scenario.comments_in_progress
                final += (
                    []
                    if has_pull_request_comment(scenario)
                    else [one for one in scenario.comments if one not in in_progress]
                )
                await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        queue = ArqQueue(url)
        record = await queue.get_record(JobId(find_run(two.disks[0]) or ""))
        await queue.close()
    assert not final
    assert (len(scenario.repo.pulls), len(scenario.comments)) == (1, 1) and has_pull_request_comment(scenario)
    assert scenario.repo.branches == ("main", "patchwright/issue-1")
    assert record is not None and isinstance(record.result, Published)


@pytest.mark.docker
async def test_a_container_removed_during_a_command_loses_only_that_command(
    scenario: Scenario, tmp_path: Path
) -> None:
    await scenario.script_model(*FIX_TURNS[:2], SLOW, FIX_TURNS[3])
    scenario.environment["PATCHWRIGHT_SANDBOX"] = "docker"
    async with (
        run_embedded_redis(scenario.data / "shared") as url,
        run_worker(scenario, url, tmp_path / "data"),
    ):
        await label_issues(scenario, url)
        await wait_for_slow_command(scenario)
        run = find_run(tmp_path / "data")
        await asyncio.to_thread(remove, f"{run}-agent")
        await wait_for_pull_requests(scenario, url, seconds=240)
    assert (len(scenario.repo.pulls), len(scenario.comments)) == (1, 1)
    assert message_sources(tmp_path / "data").count("resume") == 1


@pytest.mark.docker
async def test_an_engine_outage_during_a_command_is_awaited(scenario: Scenario, tmp_path: Path) -> None:
    await scenario.script_model(*FIX_TURNS[:2], SLOW, FIX_TURNS[3])
    scenario.environment |= {"PATCHWRIGHT_SANDBOX": "docker", "PATCHWRIGHT_SANDBOX_TRANSPORT": "exec"}
    path, relay = scenario.data / "engine.sock", Relay()
    async with AsyncExitStack() as stack:
        scenario.environment["DOCKER_HOST"] = await stack.enter_async_context(relay.at(path))
        url = await stack.enter_async_context(run_embedded_redis(scenario.data / "shared"))
        await stack.enter_async_context(run_worker(scenario, url, tmp_path / "data"))
        await label_issues(scenario, url)
        await wait_for_slow_command(scenario)
        await relay.cut()
        await asyncio.sleep(3)
        path.unlink(missing_ok=True)
        await stack.enter_async_context(Relay().at(path))
        await wait_for_pull_requests(scenario, url, seconds=240)
    assert (len(scenario.repo.pulls), len(scenario.comments)) == (1, 1)
    assert message_sources(tmp_path / "data").count("resume") == 1


async def test_a_worker_with_a_full_disk_reports_it_and_continues_with_free_space(
    scenario: Scenario, tmp_path: Path
) -> None:
    filled: list[Path] = []

    def fill(turn: int, body: object) -> None:
        if turn == 2 and not filled:
            filled.append(tmp_path / "data" / "filler")
            with filled[0].open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)

    await scenario.script_model(*FIX_TURNS, on_request=fill)
    async with run_embedded_redis(scenario.data / "shared") as url:
        with small_disk(tmp_path / "data", mib=32):
            async with run_worker(scenario, url, tmp_path / "data"):
                await label_issues(scenario, url)
                async with asyncio.timeout(150):
                    while not any(re.search("disk ?space|space left", text) for text in scenario.comments):
                        await asyncio.sleep(0.2)
                assert scenario.repo.pulls == ()
                filled[0].unlink()
                async with receive_deliveries(scenario, url):
                    await scenario.fake_github.add_comment(scenario.issue, "@agent resume", by="maintainer")
                await wait_for_pull_requests(scenario, url)
    assert len(scenario.repo.pulls) == 1


async def wait_for_slow_command(scenario: Scenario) -> None:
    """Waits until the model has requested the slow command, and a little longer, since it may not have started."""
    async with asyncio.timeout(150):
        while len(scenario.endpoint.requests) < 3:
            await asyncio.sleep(0.2)
    await asyncio.sleep(1.5)


def message_sources(data: Path) -> list[str]:
    """Returns the sources of the messages in the only run."""
    run = find_run(data)
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
    """Mounts a small file system at this path, if this user may mount."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(path)], check=False)
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
