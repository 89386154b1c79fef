"""Reasons for a lost sandbox (memory, a kill, a removal), and whether a retry makes sense."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator

import docker
import docker.errors
import pytest

from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker import sandbox_container
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine, _translate_errors
from patchwright.runtime.errors import EngineDiskFull, EngineUnavailable, OutOfMemory, SandboxLost
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxSpec

NAME = f"lost-{os.getpid()}"
Make = Callable[..., DockerSandboxes]


@pytest.fixture
async def sandbox(docker_sandboxes: Make) -> AsyncIterator[Sandbox]:
    sandboxes = docker_sandboxes(memory_mb=256)
    async with sandboxes.open(NAME) as sandbox:
        yield sandbox
    await sandboxes.close()


@pytest.fixture
def ended() -> Iterator[Callable[[str, bool], str]]:
    """Run a command as the only process of a container with 32 MiB, and optionally kill it."""
    client = docker.from_env()
    made: list[str] = []

    def end(command: str, kill: bool) -> str:
        container = client.containers.run(
            *("debian:bookworm-slim", ["sh", "-c", f"exec {command}"]),
            mem_limit="32m",
            memswap_limit="32m",
            network_mode="none",
            detach=True,
        )
        made.append(container.id)
        if kill:
            container.kill()
        container.wait(timeout=60)
        return str(container.id)

    yield end
    for each in made:
        client.containers.get(each).remove(force=True)
    client.close()


@pytest.mark.docker
async def test_an_out_of_memory_command_is_reported_and_the_sandbox_continues(sandbox: Sandbox) -> None:
    hog = await sandbox.act(RunShell(command="python3 -c 'bytearray(400 << 20)'"))
    assert isinstance(hog, ShellResult) and hog.exit_code == 137
    assert hog.note == "the memory limit was reached: the kernel killed 1 process"
    shot = await sandbox.act(RunShell(command="sh -c 'kill -9 $$'"))
    assert isinstance(shot, ShellResult) and (shot.exit_code, shot.note) == (
        137,
        None,
    )  # only a signal


@pytest.mark.slow
@pytest.mark.docker
async def test_a_paused_container_is_lost_long_before_its_commands_timeout(sandbox: Sandbox) -> None:
    client = docker.from_env()
    (container,) = client.containers.list(filters={"name": sandbox_container.container_name(NAME)})
    running = asyncio.create_task(sandbox.act(RunShell(command="touch begun; sleep 600", timeout=600)))
    while container.exec_run(["test", "-e", "/workspace/begun"]).exit_code:
        await asyncio.sleep(0.05)
    container.pause()
    async with asyncio.timeout(300):
        with pytest.raises(SandboxLost, match="the container was paused"):
            await running
    client.close()


@pytest.mark.docker
async def test_out_of_memory_kills_commands_before_the_server(sandbox: Sandbox) -> None:
    score = await sandbox.act(RunShell(command="cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj"))
    assert isinstance(score, ShellResult) and score.output == "500\n0\n"
    children = (
        "for i in 1 2 3 4 5 6 7 8; do python3 -c 'x = bytearray(60 << 20); input()' < /dev/tty & done; wait"
    )
    await sandbox.act(RunShell(command=children, timeout=5))
    after = await sandbox.act(RunShell(command="echo alive"))
    assert isinstance(after, ShellResult) and "alive\n" in after.output


@pytest.mark.docker
async def test_an_out_of_memory_container_is_distinguished_from_a_killed_one(
    ended: Callable[[str, bool], str],
) -> None:
    engine = await Engine.connect()
    starved = await sandbox_container.find_failure(
        engine, SandboxSpec(memory_mb=64), ended("tail /dev/zero", False)
    )
    assert isinstance(starved, OutOfMemory) and not starved.retryable
    assert "`memory_mb` is 64 MiB" in str(starved)
    killed = await sandbox_container.find_failure(engine, SandboxSpec(), ended("sleep 60", True))
    assert type(killed) is SandboxLost and killed.retryable
    assert "exit status 137" in str(killed)
    await engine.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mkdir /var/lib/docker/overlay2/x: no space left on device", EngineDiskFull),
        ("Conflict", EngineUnavailable),
    ],
)
def test_a_full_disk_of_the_engine_is_reported(text: str, kind: type[EngineUnavailable]) -> None:
    with pytest.raises(EngineUnavailable) as error, _translate_errors():
        raise docker.errors.APIError(text)
    assert type(error.value) is kind and not error.value.retryable
