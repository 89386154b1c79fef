"""A sandbox that writes too much, in a container and with a disk that only says so."""

import os
from collections.abc import Callable

import pytest

from runtime.actions import RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.docker.engine import Engine
from runtime.docker.machine import container_name
from runtime.errors import DiskFull, EngineUnavailable
from runtime.observations import Ran
from runtime.watched import Disk

NAME = f"disk-{os.getpid()}"
Make = Callable[..., DockerSandboxes]
FILL = "for n in $(seq 8); do head -c 10000000 /dev/zero > /workspace/$n; done; sleep {}; echo still here"


@pytest.mark.docker
async def test_a_sandbox_that_outgrows_its_disk_is_ended_and_says_so(docker_sandboxes: Make) -> None:
    async with docker_sandboxes(disk_mb=40).open(NAME) as sandbox:
        with pytest.raises(
            DiskFull, match="76 MiB of files where `disk_mb` allows 40, and was ended"
        ) as full:
            await sandbox.act(RunShell(command=FILL.format(30)))
        assert not full.value.retryable
        with pytest.raises(DiskFull):
            await sandbox.act(RunShell(command="echo again"))


@pytest.mark.docker
@pytest.mark.slow
async def test_the_same_files_fit_where_the_limit_is_larger(docker_sandboxes: Make) -> None:
    """The control of the case above; what lies in scratch is memory, and does not count."""
    async with docker_sandboxes(disk_mb=200).open(NAME) as sandbox:
        ran = await sandbox.act(
            RunShell(command=FILL.format(5) + "; head -c 150000000 /dev/zero > /tmp/more")
        )
        assert isinstance(ran, Ran) and ran.output == "still here\n"
        engine = await Engine.connect()
        found = await engine.inspect(container_name(NAME))
        assert found is not None
        size = await engine.size(found["Id"])
        assert size is not None and 80_000_000 <= size < 90_000_000
        await engine.close()


async def test_an_engine_that_is_away_for_a_moment_ends_nothing() -> None:
    sizes = iter([EngineUnavailable("away"), 30 << 20, 50 << 20])
    ended: list[bool] = []

    async def size() -> int | None:
        found = next(sizes)
        if isinstance(found, EngineUnavailable):
            raise found
        return found

    async def end() -> None:
        ended.append(True)

    disk = Disk(40, size, end, first_look=0.01)
    async with disk.watching() as watch:
        await watch
    assert ended == [True]
    assert str(disk.full).startswith("the sandbox wrote 50 MiB of files where `disk_mb` allows 40")


async def test_a_disk_that_is_gone_is_watched_no_more() -> None:
    async def size() -> int | None:
        return None

    async def end() -> None:
        raise AssertionError("there is nothing to end")

    disk = Disk(40, size, end, first_look=0.01)
    async with disk.watching() as watch:
        await watch
    assert disk.full is None
