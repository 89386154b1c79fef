"""Measures the cost of a sandbox's Python session: one `1+1`, its start with the first cell, and its memory.

Floor, in the same run and on this machine's Python, without a container: a Jupyter kernel and Jupyter's own
client, from the request of `1+1` to its reply, and from the start of the kernel's process to the reply to its
first cell.
"""

import asyncio
import os
import statistics
import time
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager

from benchmarks.measure import Result, report
from patchwright.runtime.actions import RunPython, RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.observations import CellResult, ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxSpec

CERTIFICATES = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
CA_BUNDLE = CERTIFICATES if CERTIFICATES.exists() else None
CELLS, STARTS = 300, 10
NAME = f"benchmark-kernel-{os.getpid()}"


def measure() -> list[Result]:
    """Returns medians in milliseconds; p95 where the name says so."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    sandboxes = DockerSandboxes(
        SandboxSpec(), BuildSettings(("kernel",), CA_BUNDLE), engine=EngineAddress(transport="socket")
    )
    await sandboxes.prepare()
    starts = []
    for _ in range(STARTS):
        async with sandboxes.open(NAME) as sandbox:
            starts.append(await _cell(sandbox, "1+1"))
    async with sandboxes.open(NAME) as sandbox:
        await _cell(sandbox, "1+1")
        cells = [await _cell(sandbox, "1+1") for _ in range(CELLS)]
        server, session = await _memory(sandbox)
    await sandboxes.close()
    floor = [await _floor() for _ in range(STARTS)]
    start_floor, cell_floor = map(statistics.median, zip(*floor, strict=True))
    p95 = statistics.quantiles(cells, n=20)[-1]
    return [
        Result(name="kernel_cell", value=statistics.median(cells), unit="ms", floor=cell_floor, target=5),
        Result(name="kernel_cell_p95", value=p95, unit="ms", floor=None, target=None),
        Result(
            name="kernel_start", value=statistics.median(starts), unit="ms", floor=start_floor, target=1500
        ),
        Result(name="kernel_memory", value=session, unit="MB", floor=None, target=None),
        Result(name="kernel_server_memory", value=server, unit="MB", floor=None, target=None),
    ]


async def _cell(sandbox: Sandbox, code: str) -> float:
    started_at = time.perf_counter()
    ran = await sandbox.act(RunPython(code=code))
    timings = (time.perf_counter() - started_at) * 1000
    assert isinstance(ran, CellResult) and ran.output == "2\n", ran
    return timings


async def _memory(sandbox: Sandbox) -> tuple[float, float]:
    """Returns the resident memory of the server and of the session, in 10^6 bytes."""
    process_ids = await sandbox.act(RunPython(code="import os; print(os.getpid(), os.getppid())"))
    assert isinstance(process_ids, CellResult)
    session, server = process_ids.output.split()
    ran = await sandbox.act(
        RunShell(command=f"awk '/VmRSS/ {{ print $2 }}' /proc/{server}/status /proc/{session}/status")
    )
    assert isinstance(ran, ShellResult) and ran.exit_code == 0, ran
    first, second = ran.output.split()
    return int(first) * 1024 / 1e6, int(second) * 1024 / 1e6


async def _floor() -> tuple[float, float]:
    """Returns the times of a plain kernel with a plain client: its start, and `1+1`."""
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
    started_at = time.perf_counter()
    await manager.start_kernel()
    client = manager.client()
    client.start_channels(iopub=False, stdin=False, hb=False, control=False)

    async def cell() -> None:
        message_id = client.execute("1+1")
        while (await client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != message_id:
            pass

    await cell()
    start = (time.perf_counter() - started_at) * 1000
    timings = []
    for _ in range(CELLS // STARTS):
        started_at = time.perf_counter()
        await cell()
        timings.append((time.perf_counter() - started_at) * 1000)
    client.stop_channels()
    await manager.shutdown_kernel(now=True)
    return start, statistics.median(timings)


if __name__ == "__main__":
    report(measure())
