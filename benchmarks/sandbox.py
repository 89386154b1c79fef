"""Measures the cost of a Docker sandbox: one `echo` in its shell, 109 kB of output, its start, its end, and
its memory.

Floor, in the same run: bash on the attached stream of a container of the same base image (`docker run -i`),
from writing a command to reading its last line, including the engine's own relay of the stream. Peers,
measured on a Debian 12 machine with 2 cores, engine 20.10: mini-swe-agent 2.4.6 (`docker exec`), swe-rex
1.4.0 (pexpect), OpenHands 1.58.2 (its HTTP workspace, which keeps no shell).
"""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.measure import Result, report
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxSpec

BASE = SandboxSpec().image
CERTIFICATES = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
CA_BUNDLE = CERTIFICATES if CERTIFICATES.exists() else None
ECHOES, OUTPUTS, STARTS = 300, 30, 20
LONG = "head -c 109000 /dev/zero | tr '\\0' '\\n'"
NAME = f"benchmark-{os.getpid()}"


def measure() -> list[Result]:
    """Returns medians in milliseconds; p95 where the name says so."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    cold = DockerSandboxes(
        SandboxSpec(), BuildSettings(ca_bundle=CA_BUNDLE), engine=EngineAddress(transport="socket")
    )
    await cold.prepare()
    starts, stops = await _starts(cold)
    async with cold.open(NAME) as sandbox:
        echo = await _sample(lambda: _run(sandbox, "echo hi"), ECHOES)
        long = await _sample(lambda: _run(sandbox, LONG), OUTPUTS)
        memory = await _memory(sandbox)
    await cold.close()
    far = DockerSandboxes(
        SandboxSpec(), BuildSettings(ca_bundle=CA_BUNDLE), engine=EngineAddress(transport="exec")
    )
    async with far.open(NAME) as sandbox:
        echo_exec = await _sample(lambda: _run(sandbox, "echo hi"), ECHOES)
    await far.close()
    floor = [await _floor() for _ in range(STARTS)]
    start_floor, echo_floor, long_floor = map(statistics.median, zip(*floor, strict=True))
    middle = statistics.median
    return [
        _result("sandbox_echo", middle(echo), echo_floor, 1, OpenHands=9.8, mini_swe_agent=52, swe_rex=108),
        _result("sandbox_echo_p95", _p95(echo), None, None, OpenHands=113),
        _result("sandbox_echo_over_floor", middle(echo) / echo_floor, None, 2.5, unit="x"),
        _result("sandbox_echo_by_exec", middle(echo_exec), echo_floor, None),
        _result("sandbox_109_kb", middle(long), long_floor, 8, OpenHands=17, mini_swe_agent=61, swe_rex=127),
        _result("sandbox_109_kb_p95", _p95(long), None, None),
        _result(
            "sandbox_cold_start",
            middle(starts),
            start_floor,
            300,
            OpenHands=5467,
            mini_swe_agent=239,
            swe_rex=989,
        ),
        _result("sandbox_cold_start_p95", _p95(starts), None, None),
        _result("sandbox_stop", middle(stops), None, 100, OpenHands=3892, mini_swe_agent=96, swe_rex=269),
        _result("sandbox_stop_p95", _p95(stops), None, None),
        _result("sandbox_server_memory", memory, None, 40, unit="MB", OpenHands=326, swe_rex=52),
    ]


def _result(
    name: str, value: float, floor: float | None, target: float | None, unit: str = "ms", **peers: float
) -> Result:
    named = {peer.replace("_", "-"): figure for peer, figure in peers.items()}
    return Result(name=name, value=value, unit=unit, floor=floor, peers=named, target=target)


async def _starts(sandboxes: DockerSandboxes) -> tuple[list[float], list[float]]:
    """Measures from the request to the first result of the shell, and from the end of the work to the end of
    the sandbox.
    """
    starts, stops = [], []
    for _ in range(STARTS):
        started_at = time.perf_counter()
        async with sandboxes.open(NAME) as sandbox:
            await _run(sandbox, "echo hi")
            starts.append(_since(started_at))
            started_at = time.perf_counter()
        stops.append(_since(started_at))
    return starts, stops


async def _memory(sandbox: Sandbox) -> float:
    """Returns the resident memory of the server, in 10^6 bytes."""
    ran = await sandbox.act(RunShell(command="awk '/VmRSS/ { print $2 }' /proc/$PPID/status"))
    assert isinstance(ran, ShellResult)
    return int(ran.output) * 1024 / 1e6


async def _floor() -> tuple[float, float, float]:
    """Returns the times of start, echo, and long output of bash on an attached stream."""
    name = f"patchwright-floor-{os.getpid()}"
    started_at = time.perf_counter()
    bash = await asyncio.create_subprocess_exec(
        *["docker", "run", "-i", "--name", name, "--network", "none", BASE, "bash"],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    assert bash.stdin is not None and bash.stdout is not None
    read, write = bash.stdout, bash.stdin

    async def run(command: str) -> None:
        write.write(f"{command}; echo END\n".encode())
        await write.drain()
        await read.readuntil(b"END\n")

    await run("echo hi")
    start = _since(started_at)
    echo = statistics.median(await _sample(lambda: run("echo hi"), ECHOES))
    long = statistics.median(await _sample(lambda: run(LONG), OUTPUTS))
    remove = await asyncio.create_subprocess_exec(
        "docker", "rm", "-f", name, stdout=asyncio.subprocess.DEVNULL
    )
    await remove.wait()
    await bash.wait()
    return start, echo, long


async def _run(sandbox: Sandbox, command: str) -> None:
    ran = await sandbox.act(RunShell(command=command))
    assert isinstance(ran, ShellResult) and ran.exit_code == 0, ran


async def _sample(act: Callable[[], Awaitable[None]], times: int) -> list[float]:
    timings = []
    for _ in range(times):
        started_at = time.perf_counter()
        await act()
        timings.append(_since(started_at))
    return timings


def _p95(timings: list[float]) -> float:
    return statistics.quantiles(timings, n=20)[-1]


def _since(started_at: float) -> float:
    return (time.perf_counter() - started_at) * 1000


if __name__ == "__main__":
    report(measure())
