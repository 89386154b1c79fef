"""No container outlives its owner: not after success, failure, Ctrl-C or SIGKILL."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from patchwright.runtime import ownership
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.reaper import DEADLINE_LABEL, OWNER_LABEL, RUN_LABEL, Reaper
from patchwright.runtime.docker.sandbox_container import container_name
from patchwright.runtime.observations import ShellResult

pytestmark = pytest.mark.docker
NAME = f"left-{os.getpid()}"
Make = Callable[..., DockerSandboxes]

# Another process that opens a sandbox and stays in it.
OWNER_PROCESS = """
import asyncio, signal, sys
sys.path.insert(0, {checkout!r})
from pathlib import Path
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.sandbox import SandboxSpec

async def main():
    bundle = Path({bundle!r})
    build = BuildSettings(ca_bundle=bundle if bundle.exists() else None)
    sandboxes = DockerSandboxes(SandboxSpec(memory_mb=256), build)
    async with sandboxes.open({name!r}):
        print("open", flush=True)
        await asyncio.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores Ctrl-C
asyncio.run(main())
"""


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


def left(client: docker.DockerClient) -> list[str]:
    return [each.name for each in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={NAME}"})]


async def owner_process() -> asyncio.subprocess.Process:
    bundle = os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    source = OWNER_PROCESS.format(checkout=str(Path(__file__).parents[3]), bundle=bundle, name=NAME)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), timeout=120) == b"open\n"
    return process


async def test_success_and_failure_leave_nothing(docker_sandboxes: Make, client: docker.DockerClient) -> None:
    async with docker_sandboxes().open(NAME):
        assert left(client) == [container_name(NAME)]
    assert left(client) == []
    with pytest.raises(ZeroDivisionError):
        async with docker_sandboxes().open(NAME):
            raise ZeroDivisionError
    assert left(client) == []


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.2, 0.6])
async def test_cancellation_at_any_time_leaves_nothing(
    docker_sandboxes: Make, client: docker.DockerClient, delay: float
) -> None:
    sandboxes = docker_sandboxes()
    await sandboxes.prepare()

    async def stay() -> None:
        async with sandboxes.open(NAME):
            await asyncio.sleep(60)

    task = asyncio.create_task(stay())
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(client) == []


async def test_ctrl_c_leaves_nothing(client: docker.DockerClient) -> None:
    process = await owner_process()
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), timeout=20) != 0
    assert left(client) == []


async def test_containers_of_a_killed_owner_are_removed_at_the_next_start(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    process = await owner_process()
    process.kill()
    await process.wait()
    assert left(client) == [container_name(NAME)]  # nothing could remove it yet
    directories = list(Path("/tmp").glob(f"pw-*.{process.pid}.*"))
    assert len(directories) == 1 or os.environ.get("TMPDIR")
    await docker_sandboxes().prepare()
    async with asyncio.timeout(30):  # another worker's sweep may be about to remove it
        while left(client):
            await asyncio.sleep(0.1)
    assert not any(directory.exists() for directory in directories)


async def test_the_reaper_removes_only_expired_containers(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    def container(**labels: str) -> str:
        made = client.containers.create("debian:bookworm-slim", ["true"], labels={RUN_LABEL: NAME, **labels})
        return str(made.id)

    def labels(deadline: float, owner: str = "another.machine.1.2.3") -> dict[str, str]:
        return {OWNER_LABEL: owner, DEADLINE_LABEL: str(int(deadline))}

    late = container(**labels(time.time() - 5, ownership.current_owner()))
    others = container(**labels(time.time() + 60))
    foreign = container()
    try:
        async with docker_sandboxes().open(NAME) as sandbox:
            await Reaper().reap(await Engine.connect())
            kept = {
                each.id for each in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={NAME}"})
            }
            assert late not in kept
            assert {others, foreign} < kept
            assert len(kept) == 3
            opened = client.containers.get(container_name(NAME))
            assert time.time() < int(opened.labels[DEADLINE_LABEL])
            assert sandbox.root == "/workspace"
    finally:
        for each in (others, foreign):
            client.containers.get(each).remove(force=True)


@pytest.mark.slow
async def test_concurrent_removals_all_succeed(client: docker.DockerClient) -> None:
    engines = [await Engine.connect() for _ in range(4)]
    for _ in range(5):
        made = client.containers.run(
            "debian:bookworm-slim", ["sleep", "60"], detach=True, labels={RUN_LABEL: NAME}
        )
        made.exec_run(["sh", "-c", "head -c 50000000 /dev/zero > /big"])

        async def remove(engine: Engine, which: str = str(made.id)) -> list[str]:
            await engine.remove(which)
            return await asyncio.to_thread(left, client)

        assert await asyncio.gather(*map(remove, engines)) == [[]] * 4
    for engine in engines:
        await engine.close()


@pytest.mark.slow
async def test_a_name_in_use_is_replaced(docker_sandboxes: Make, client: docker.DockerClient) -> None:
    sandboxes = docker_sandboxes()
    async with sandboxes.open(NAME):
        before = client.containers.get(container_name(NAME)).id
        async with sandboxes.open(NAME):
            assert client.containers.get(container_name(NAME)).id != before
    assert left(client) == []


async def test_runs_of_one_name_in_two_data_directories_have_separate_containers(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    here, there = docker_sandboxes(whose="/here"), docker_sandboxes(whose="/there")
    async with here.open(NAME, adoptable=True) as one, there.open(NAME, adoptable=True) as other:
        await one.act(RunShell(command="echo here > /tmp/x"))
        result = await other.act(RunShell(command="cat /tmp/x"))
        assert isinstance(result, ShellResult) and result.exit_code == 1
        assert sorted(left(client)) == sorted(container_name(NAME, whose) for whose in ("/here", "/there"))
        async with docker_sandboxes(whose="/elsewhere").adopt(NAME) as adopted:
            assert adopted is None
        result = await one.act(RunShell(command="cat /tmp/x"))
        assert isinstance(result, ShellResult) and result.output == "here\n"
    assert left(client) == []


def test_container_names_are_unique() -> None:
    names = [
        (f"{'x' * 120}-agent", ""),
        (f"{'x' * 120}-base", ""),
        ("a/b", ""),
        ("a-b", ""),
        ("a-b", "/data"),
    ]
    assert len({container_name(*each) for each in names}) == len(names)
    assert container_name("a-b", "/data") == container_name("a-b", "/data")
    assert all(re.fullmatch("[a-zA-Z0-9][a-zA-Z0-9_.-]+", container_name(*each)) for each in names)


async def test_a_foreign_container_is_not_replaced(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    theirs = client.containers.create("debian:bookworm-slim", ["true"], name=container_name(NAME))
    try:
        with pytest.raises(Exception, match="in use by another program"):
            async with docker_sandboxes().open(NAME):
                pass
        assert client.containers.get(container_name(NAME)).id == theirs.id
    finally:
        theirs.remove(force=True)
