"""A Python session in a container: a fork bomb in a cell that only the sandbox's limits stop."""

import asyncio
import os
from collections.abc import Callable

import pytest

from patchwright.runtime.actions import RunPython, RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.observations import CellResult, ShellResult
from patchwright.runtime.sandbox import Sandbox

pytestmark = pytest.mark.docker

COUNT = "set -- /proc/[0-9]*; echo $#"  # does not fork, because there may be no room for another process


async def until_few(sandbox: Sandbox) -> None:
    """Wait until the killed processes are gone; a note of the shell may precede the number."""
    async with asyncio.timeout(60):
        while True:
            counted = await sandbox.act(RunShell(command=COUNT))
            if isinstance(counted, ShellResult) and int(counted.output.split()[-1]) < 20:
                return
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_fork_bomb_in_a_cell_leaves_the_sandbox_usable(
    docker_sandboxes: Callable[..., DockerSandboxes],
) -> None:
    sandboxes = docker_sandboxes(memory_mb=1024, pids=128, plugins=("kernel",))
    async with sandboxes.open(f"forks-{os.getpid()}") as sandbox:
        for code, output in (("import os; kept = 7", ""), ("kept", "7\n")):
            ran = await sandbox.act(RunPython(code=code))
            assert isinstance(ran, CellResult) and ran.output == output, ran
        bomb = await sandbox.act(RunPython(code="while True: os.fork()", timeout=5))
        assert isinstance(bomb, CellResult) and not bomb.ok

        await sandbox.act(RunPython(code="1"))  # when the first ended, there may have been only few
        after = await sandbox.act(RunPython(code="kept"))
        assert isinstance(after, CellResult) and after.output.endswith("7\n"), after
        await until_few(sandbox)
    await sandboxes.close()
