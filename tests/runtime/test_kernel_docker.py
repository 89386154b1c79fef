"""A Python session in a container: a cell that forks without end, where nothing but the sandbox's limits ends it."""

import os
import time
from collections.abc import Callable

import pytest

from runtime.actions import RunPython, RunShell
from runtime.docker import DockerSandboxes
from runtime.observations import Ran, RanPython

pytestmark = pytest.mark.docker

# What was killed takes a moment to be gone; the shell, which runs already, would count it.
COUNTED = """for _ in {1..20}
do count=$(ls /proc | grep -c '^[0-9]'); [ $count -lt 20 ] && break; sleep 0.1
done; echo $count"""


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

        begun = time.monotonic()
        await sandbox.act(RunPython(code="1"))  # when the first ended, they may just have been few
        after = await sandbox.act(RunPython(code="kept"))
        assert isinstance(after, RanPython) and after.output.endswith("7\n"), after
        counted = await sandbox.act(RunShell(command=COUNTED))
        assert isinstance(counted, Ran) and int(counted.output) < 20, counted
        assert time.monotonic() - begun < 10
    await sandboxes.close()
