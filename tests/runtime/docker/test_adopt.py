"""A host process is killed; the next one goes on with its sandbox, or leaves nothing of it."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from runtime.actions import RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.docker.engine import Engine
from runtime.docker.machine import container_name
from runtime.docker.place import Place
from runtime.docker.reaper import RUN, Reaper
from runtime.observations import Ran
from runtime.sandbox import Sandbox, on_behalf_of

pytestmark = pytest.mark.docker
NAME = f"heir-{os.getpid()}"
Make = Callable[..., DockerSandboxes]

# A process that opens a sandbox, does something in it, and is killed.
OWNER_PROCESS = """
import asyncio, sys
sys.path.insert(0, {checkout!r})
from pathlib import Path
from runtime.actions import RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.sandbox import SandboxSpec, on_behalf_of

async def main():
    bundle = Path({bundle!r})
    sandboxes = DockerSandboxes(
        SandboxSpec(memory_mb=512), ca_bundle=bundle if bundle.exists() else None, transport={transport!r}
    )
    async with sandboxes.open({name!r}, kept={kept}) as sandbox:
        with on_behalf_of("call_2"):
            await sandbox.act(RunShell(command="export X=kept; cd /tmp; sleep 300 & echo $! > job"))
        with on_behalf_of({call!r}):
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
    for each in client.containers.list(all=True, filters={"label": f"{RUN}={NAME}"}):
        each.remove(force=True)
    client.close()


def left(client: docker.DockerClient) -> list[str]:
    return [each.name for each in client.containers.list(all=True, filters={"label": f"{RUN}={NAME}"})]


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
    assert isinstance(ran, Ran)
    return ran.output


@pytest.mark.parametrize("transport", ["socket", "exec"])
async def test_the_next_process_goes_on_with_the_shell_and_what_was_in_flight_runs_once(
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


async def test_a_long_command_for_a_process_that_is_gone_is_ended_and_the_shell_is_kept(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner(flying="cd ..; Y=too; sleep 400; echo never >> /tmp/ran")
    sandboxes = docker_sandboxes()
    async with sandboxes.adopt(NAME) as sandbox:
        assert sandbox is not None
        seen = await printed(sandbox, "echo $X $Y; pwd; cat /tmp/ran; kill -0 $(cat /tmp/job) && echo runs")
        assert seen == "kept too\n/\ncat: /tmp/ran: No such file or directory\nruns\n"
    assert left(client) == []
    await sandboxes.close()


@pytest.mark.parametrize("transport", ["socket", pytest.param("exec", marks=pytest.mark.slow)])
async def test_a_long_command_of_an_agents_call_is_waited_for_and_answered(
    docker_sandboxes: Make, client: docker.DockerClient, transport: str
) -> None:
    command = "echo begun >> ran; sleep 6; wc -l < ran"
    await killed_owner(transport, flying=command, call="call_3")
    sandboxes = docker_sandboxes(transport=transport)
    async with sandboxes.adopt(NAME) as sandbox:
        assert sandbox is not None
        assert await printed(sandbox, "echo $X") == "kept\n"
        with on_behalf_of("call_3"):
            assert await printed(sandbox, command) == "1\n"
    assert left(client) == []
    await sandboxes.close()


async def test_what_nobody_adopts_is_removed_when_its_time_is_over(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner()
    engine = await Engine.connect()
    reaper = Reaper()
    await reaper.reap(engine)
    assert left(client) == [container_name(NAME)]
    container = client.containers.get(container_name(NAME))
    place = Place.find(container.labels["io.patchwright.place"])
    assert place is not None and place.directory.exists()
    await Reaper(grace=0.0).reap(engine)
    assert left(client) == []
    assert not place.directory.exists()
    async with docker_sandboxes().adopt(NAME) as sandbox:
        assert sandbox is None


async def test_one_whose_server_gave_up_is_removed_at_once(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner()
    client.containers.get(container_name(NAME)).kill()
    await Reaper().reap(await Engine.connect())
    assert left(client) == []


async def test_one_that_was_not_kept_is_removed_at_the_next_start(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner(kept=False)
    async with docker_sandboxes().adopt(NAME) as sandbox:
        assert sandbox is None
    assert left(client) == []


async def test_one_of_other_limits_is_not_adopted(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    await killed_owner()
    async with docker_sandboxes(memory_mb=640).adopt(NAME) as sandbox:
        assert sandbox is None
    assert left(client) == []


async def test_one_that_was_started_ahead_takes_its_name_at_once(
    docker_sandboxes: Make, client: docker.DockerClient
) -> None:
    sandboxes = docker_sandboxes(warm=1)
    await sandboxes.prepare()
    while not sandboxes._pool._ready:
        await asyncio.sleep(0.05)
    begun = time.perf_counter()
    async with sandboxes.open(NAME) as sandbox:
        assert await printed(sandbox, "echo hi; pwd") == "hi\n/workspace\n"
        assert time.perf_counter() - begun < 0.2  # 0.02 on an idle machine
        assert client.containers.get(container_name(NAME)).status == "running"
    await sandboxes.close()
    for each in client.containers.list(all=True, ignore_removed=True):
        assert not each.name.startswith(f"patchwright-warm-{os.getpid()}-")
