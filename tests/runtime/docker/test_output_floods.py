"""Attacks by quantity, with controls without limits."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patchwright.runtime.actions import Execute, RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.observations import ExecuteResult, ShellResult

pytestmark = pytest.mark.docker
NAME = f"floods-{os.getpid()}"
Make = Callable[..., DockerSandboxes]
MIB = 1 << 20
FLOOD = "yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c {}"


# --- the same container without our limits: the controls ------------------------------------------------------


async def weakened(*argv: str, flags: tuple[str, ...] = ("--user", "10001")) -> str:
    run = ["docker", "run", "--rm", "--label", "io.patchwright.test=floods", "--network", "none", *flags]
    command = [*run, "debian:bookworm-slim", *argv]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60)
    return ended.stdout.decode() + ended.stderr.decode()


async def test_without_dropped_capabilities_a_container_can_make_devices() -> None:
    probe = "grep CapEff /proc/self/status; mknod /tmp/x b 8 0 && echo made"
    output = await weakened("sh", "-c", probe, flags=())
    assert "CapEff:\t0000000000000000" not in output and "made" in output


async def test_without_a_limit_a_container_takes_more_memory() -> None:
    output = await weakened("python3", "-c", "print(len(bytearray(400 << 20)))")
    assert output == f"{400 << 20}\n"


MANY = "n=0; while [ $n -lt 600 ]; do sleep 20 & n=$((n+1)); done; ls -d /proc/[0-9]* | wc -l"


@pytest.mark.slow
async def test_without_a_limit_a_container_has_more_processes(docker_sandboxes: Make) -> None:
    output = await weakened("sh", "-c", MANY)
    assert int(output.split()[-1]) > 600
    async with docker_sandboxes(pids=100).open(NAME) as sandbox:
        result = await sandbox.act(Execute(argv=("sh", "-c", MANY)))
        assert isinstance(result, ExecuteResult) and b"fork" in result.stderr


@pytest.mark.slow
async def test_without_a_size_a_container_fills_the_hosts_disk() -> None:
    output = await weakened("sh", "-c", "head -c 300000000 /dev/zero > /tmp/x; stat -c %s /tmp/x")
    assert output == "300000000\n"


# --- slow tests
# -----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_ten_gigabytes_of_output_cost_neither_side_memory(docker_sandboxes: Make) -> None:
    # 192 MiB, half of them for scratch: a server that stored its input would be killed.
    async with docker_sandboxes(memory_mb=192).open(NAME) as sandbox:
        async with growth() as grown:
            result = await sandbox.act(Execute(argv=("sh", "-c", FLOOD.format(10_000_000_000)), timeout=600))
            assert isinstance(result, ExecuteResult) and result.exit_code == 0
            assert len(result.stdout) < 5 * MIB
            ran = await sandbox.act(RunShell(command=FLOOD.format(10_000_000_000), timeout=1200))
            assert isinstance(ran, ShellResult) and ran.exit_code == 0
            assert len(ran.output) < 40_000
        assert max(grown) < 64 * MIB
        after = await sandbox.act(RunShell(command="echo alive"))
        assert isinstance(after, ShellResult) and after.output == "alive\n"


@pytest.mark.slow
async def test_the_same_output_fills_a_host_that_keeps_all_of_it() -> None:
    """Control of the case above, with a fiftieth of the bytes."""
    async with growth() as grown:
        kept = await weakened("sh", "-c", FLOOD.format(200_000_000))
        assert len(kept) == 200_000_000
    assert max(grown) > 150 * MIB


def count_processes() -> list[int]:
    """Returns the number of processes and threads of each container of this module."""
    listing = ["docker", "ps", "--quiet", "--filter", f"name={NAME}"]
    containers = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    stats = ["docker", "stats", "--no-stream", "--format", "{{.PIDs}}", *containers]
    return [int(line) for line in subprocess.run(stats, capture_output=True, text=True).stdout.split()]


@pytest.mark.slow
async def test_a_fork_bomb_of_twenty_seconds_hurts_nobody_else(docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes(pids=128, cpus=0.5)
    async with sandboxes.open(NAME) as bombed, sandboxes.open(f"{NAME}-b") as neighbour:
        bomb = asyncio.create_task(
            bombed.act(RunShell(command="bomb() { bomb | bomb & }; bomb; sleep 60", timeout=20))
        )
        most = 0
        while not bomb.done():
            result = await neighbour.act(Execute(argv=("true",)))
            assert isinstance(result, ExecuteResult) and result.exit_code == 0
            most = max(most, *await asyncio.to_thread(count_processes))
        ran = await bomb
        assert isinstance(ran, ShellResult) and ran.exit_code is None
        assert 100 < most <= 128
        await bombed.act(RunShell(command="exec true"))
        alive = await bombed.act(RunShell(command="echo alive"))
        assert isinstance(alive, ShellResult) and alive.output == "alive\n"


@asynccontextmanager
async def growth() -> AsyncIterator[list[int]]:
    """Record by how many bytes this process grows."""
    base, grown = resident(), [0]

    async def look() -> None:
        while True:
            grown.append(resident() - base)
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    try:
        yield grown
    finally:
        grown.append(resident() - base)
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


def resident() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024
