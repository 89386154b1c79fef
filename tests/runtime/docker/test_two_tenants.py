"""Two jobs side by side on one engine."""

import asyncio
import os
from collections.abc import Callable

import pytest

from patchwright.runtime.actions import CreateFile, RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import Sandbox

pytestmark = pytest.mark.docker
CANARY = "canary-of-the-neighbour-8c1f"
PATTERN = "neighbour-8c1[f]"  # does not match itself, so that a search does not find its own process
HUNT = (
    f"(grep -rl '{PATTERN}' . /tmp /var/tmp /dev/shm $HOME 2>/dev/null;"
    f" cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep '{PATTERN}') | wc -l"
)


async def sh(sandbox: Sandbox, command: str) -> str:
    ran = await sandbox.act(RunShell(command=command, timeout=60))
    assert isinstance(ran, ShellResult)
    return ran.output.strip()


@pytest.mark.slow
async def test_neither_of_two_jobs_reads_the_other_and_a_hog_kills_itself_alone(
    docker_sandboxes: Callable[..., DockerSandboxes],
) -> None:
    sandboxes = docker_sandboxes(memory_mb=128)
    async with (
        sandboxes.open(f"tenant-a-{os.getpid()}") as one,
        sandboxes.open(f"tenant-b-{os.getpid()}") as other,
    ):
        for path in ("here.txt", f"{one.scratch}/there.txt"):
            await one.act(CreateFile(path=path, content=CANARY))
        await sh(one, f"export CANARY={CANARY}; cp here.txt ~/home.txt; sleep 60 & true")
        assert int(await sh(one, HUNT)) >= 3
        assert await sh(other, HUNT) == "0"
        hog, alive = await asyncio.gather(
            sh(one, "python3 -c 'bytearray(400 << 20)'; echo $?"),
            sh(other, "sleep 1; echo still here"),
        )
        assert hog.endswith("137") and alive == "still here"
