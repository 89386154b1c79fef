"""A Python session in a container: a cell that forks without end, where nothing but the sandbox's limits ends it."""

import asyncio
import os
from collections.abc import Callable

import pytest

from runtime.actions import RunPython, RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.observations import Ran, RanPython
from runtime.sandbox import Sandbox

pytestmark = pytest.mark.docker

COUNT = "set -- /proc/[0-9]*; echo $#"  # forks nothing: meanwhile there may be no room for one process more


async def until_few(sandbox: Sandbox) -> None:
    """What was killed takes a moment to be gone, and what the shell says of it stands before the number."""
    async with asyncio.timeout(60):
        while True:
            counted = await sandbox.act(RunShell(command=COUNT))
            if isinstance(counted, Ran) and int(counted.output.split()[-1]) < 20:
                return
            await asyncio.sleep(0.1)


async def test_a_cell_that_forks_without_end_leaves_the_sandbox_as_it_was(
    docker_sandboxes: Callable[..., DockerSandboxes],
) -> None:
    sandboxes = docker_sandboxes(memory_mb=1024, pids=128, plugins=("kernel",))
    async with sandboxes.open(f"forks-{os.getpid()}") as sandbox:
        for code, output in (("import os; kept = 7", ""), ("kept", "7\n")):
            ran = await sandbox.act(RunPython(code=code))
            assert isinstance(ran, RanPython) and ran.output == output, ran
        bomb = await sandbox.act(RunPython(code="while True: os.fork()", timeout=5))
        assert isinstance(bomb, RanPython) and not bomb.ok

        await sandbox.act(RunPython(code="1"))  # when the first ended, they may just have been few
        after = await sandbox.act(RunPython(code="kept"))
        assert isinstance(after, RanPython) and after.output.endswith("7\n"), after
        await until_few(sandbox)
    await sandboxes.close()
