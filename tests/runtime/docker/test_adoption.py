"""A host process is killed: the next one adopts its sandbox, or removes all of it."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.reaper import RUN_LABEL, Reaper
from patchwright.runtime.docker.sandbox_container import container_name
from patchwright.runtime.docker.socket_dir import SocketDir
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import Sandbox, call_context

pytestmark = pytest.mark.docker
NAME = f"heir-{os.getpid()}"
Make = Callable[..., DockerSandboxes]

# A process that opens a sandbox, runs a command in it, and is killed.
OWNER_PROCESS = """
import asyncio, sys
sys.path.insert(0, {checkout!r})
from pathlib import Path
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.sandbox import SandboxSpec, call_context

async def main():
    bundle = Path({bundle!r})
    sandboxes = DockerSandboxes(
        SandboxSpec(memory_mb=512),
        BuildSettings(ca_bundle=bundle if bundle.exists() else None),
        engine=EngineAddress(transport={transport!r}),
    )
    async with sandboxes.open({name!r}, adoptable={kept}) as sandbox:
        with call_context("call_2"):
            await sandbox.act(RunShell(command="export X=kept; cd /tmp; sleep 300 & echo $! > job"))
        with call_context({call!r}):
            flying = asyncio.create_task(sandbox.act(RunShell(command={flying!r})))
        await asyncio.sleep(1)
        print("open", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    for each in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={NAME}"}):
        each.remove(force=True)
    client.close()


def left(client: docker.DockerClient) -> list[str]:
    return [each.name for each in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={NAME}"})]


QUICK = "echo begun >> ran; sleep 2; echo done >> ran"


async def killed_owner(
    transport: str = "socket", *, kept: bool = True, flying: str = QUICK, call: str = ""
) -> None:
    source = OWNER_PROCESS.format(
        checkout=str(Path(__file__).parents[3]),
        bundle=os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"),
        transport=transport,
        name=NAME,
        kept=kept,
        flying=flying,
        call=call,
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), timeout=120) == b"open\n"
    process.kill()
    await process.wait()


async def printed(sandbox: Sandbox, command: str) -> str:
    ran = await sandbox.act(RunShell(command=command, timeout=20))
    assert isinstance(ran, ShellResult)
    return ran.output


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["socket", "exec"])
async def test_an_adopting_process_continues_the_shell_and_repeats_no_action(
    docker_sandboxes: Make, client: docker.DockerClient, transport: str
) -> None:
    await killed_owner(transport)
    sandboxes = docker_sandboxes(transport=transport)
    async with sandboxes.adopt(NAME) as sandbox:
        assert sandbox is not None
        assert await printed(sandbox, "echo $X; pwd; cat ran; kill -0 $(cat job) && echo runs") == (
            "kept\n/tmp\nbegun\ndone\nruns\n"
        )
        assert await Reaper().reap(await Engine.connect()) == 0  # it has an owner again
        assert await printed(sandbox, "echo still here") == "still here\n"
        async with sandboxes.adopt(NAME) as again:
            assert again is None
    assert left(client) == []
    await sandboxes.close()


@pytest.mark.slow
async def test_a_long_command_of_a_dead_process_is_killed_and_the_shell_stays(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner(flying="cd ..; Y=too; sleep 400; echo never >> /tmp/ran")
    sandboxes = docker_sandboxes()
    async with sandboxes.adopt(NAME) as sandbox:
        assert sandbox is not None
        result = await printed(sandbox, "echo $X $Y; pwd; cat /tmp/ran; kill -0 $(cat /tmp/job) && echo runs")
        assert result == "kept too\n/\ncat: /tmp/ran: No such file or directory\nruns\n"
    assert left(client) == []
    await sandboxes.close()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["socket", pytest.param("exec", marks=pytest.mark.slow)])
async def test_a_long_command_of_a_tool_call_is_awaited_and_answered(
    docker_sandboxes: Make, client: docker.DockerClient, transport: str
) -> None:
    command = "echo begun >> ran; sleep 6; wc -l < ran"
    await killed_owner(transport, flying=command, call="call_3")
    sandboxes = docker_sandboxes(transport=transport)
    async with sandboxes.adopt(NAME) as sandbox:
        assert sandbox is not None
        assert await printed(sandbox, "echo $X") == "kept\n"
        with call_context("call_3"):
            assert await printed(sandbox, command) == "1\n"
    assert left(client) == []
    await sandboxes.close()


@pytest.mark.slow
async def test_an_unadopted_container_is_removed_after_its_grace(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner()
    engine = await Engine.connect()
    reaper = Reaper()
    await reaper.reap(engine)
    assert left(client) == [container_name(NAME)]
    container = client.containers.get(container_name(NAME))
    place = SocketDir.find(container.labels["io.patchwright.socket-dir"])
    assert place is not None and place.path.exists()
    await Reaper(adoption_grace=0.0).reap(engine)
    assert left(client) == []
    assert not place.path.exists()
    async with docker_sandboxes().adopt(NAME) as sandbox:
        assert sandbox is None


@pytest.mark.slow
async def test_a_container_whose_server_exited_is_removed_at_once(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner()
    client.containers.get(container_name(NAME)).kill()
    await Reaper().reap(await Engine.connect())
    assert left(client) == []


@pytest.mark.slow
async def test_a_container_that_is_not_adoptable_is_removed_at_the_next_start(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner(kept=False)
    async with docker_sandboxes().adopt(NAME) as sandbox:
        assert sandbox is None
    assert left(client) == []


@pytest.mark.slow
async def test_a_container_with_other_limits_is_not_adopted(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner()
    async with docker_sandboxes(memory_mb=640).adopt(NAME) as sandbox:
        assert sandbox is None
    assert left(client) == []
