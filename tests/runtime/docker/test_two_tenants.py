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
CANARIES = ("canary-of-the-neighbor-8c1f", "canary-of-the-neighbor-d27a")


def hunt(canary: str) -> str:
    """Returns a command that prints the number of places where a container contains the canary."""
    # The pattern does not match itself, so a search does not find its own process.
    pattern = f"{canary[:-1]}[{canary[-1]}]"
    return (
        f"(grep -rl '{pattern}' . /tmp /var/tmp /dev/shm $HOME 2>/dev/null;"
        f" cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep '{pattern}') | wc -l"
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
        for sandbox, canary in zip((one, other), CANARIES, strict=True):
            for path in ("here.txt", f"{sandbox.scratch}/there.txt"):
                await sandbox.act(CreateFile(path=path, content=canary))
            await sh(sandbox, f"export CANARY={canary}; cp here.txt ~/home.txt; sleep 60 & true")
        places = [[int(await sh(sandbox, hunt(canary))) for canary in CANARIES] for sandbox in (one, other)]
        assert places[0][0] >= 3 and places[1][1] >= 3
        assert (places[0][1], places[1][0]) == (0, 0)
        hog, alive = await asyncio.gather(
            sh(one, "python3 -c 'bytearray(400 << 20)'; echo $?"),
            sh(other, "sleep 1; echo still here"),
        )
        assert hog.endswith("137") and alive == "still here"
