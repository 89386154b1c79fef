"""What the Python session of a sandbox costs: one `1+1`, its start with the first cell, its memory.

Floor, in the same run and on this machine's Python, without a container: a Jupyter kernel and Jupyter's own client,
from the request of `1+1` to its reply; and from the start of the kernel's process to the reply to its first cell.
"""

import asyncio
import os
import statistics
import time
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager

from benchmarks.measure import Result, report
from runtime.actions import RunPython, RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.observations import Ran, RanPython
from runtime.sandbox import Sandbox, SandboxSpec

CERTIFICATES = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
CA_BUNDLE = CERTIFICATES if CERTIFICATES.exists() else None
CELLS, STARTS = 300, 10
NAME = f"benchmark-kernel-{os.getpid()}"


def measure() -> list[Result]:
    """Medians, in milliseconds; p95 where a name says so."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    sandboxes = DockerSandboxes(SandboxSpec(), ca_bundle=CA_BUNDLE, transport="socket", plugins=("kernel",))
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
    begun = time.perf_counter()
    ran = await sandbox.act(RunPython(code=code))
    taken = (time.perf_counter() - begun) * 1000
    assert isinstance(ran, RanPython) and ran.output == "2\n", ran
    return taken


async def _memory(sandbox: Sandbox) -> tuple[float, float]:
    """Resident sets of the server, and of the session, 10^6 bytes."""
    told = await sandbox.act(RunPython(code="import os; print(os.getpid(), os.getppid())"))
    assert isinstance(told, RanPython)
    session, server = told.output.split()
    ran = await sandbox.act(
        RunShell(command=f"awk '/VmRSS/ {{ print $2 }}' /proc/{server}/status /proc/{session}/status")
    )
    assert isinstance(ran, Ran) and ran.exit_code == 0, ran
    first, second = ran.output.split()
    return int(first) * 1024 / 1e6, int(second) * 1024 / 1e6


async def _floor() -> tuple[float, float]:
    """Start and `1+1` of a bare kernel with a bare client."""
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
    begun = time.perf_counter()
    await manager.start_kernel()
    client = manager.client()
    client.start_channels(iopub=False, stdin=False, hb=False, control=False)

    async def cell() -> None:
        asked = client.execute("1+1")
        while (await client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != asked:
            pass

    await cell()
    start = (time.perf_counter() - begun) * 1000
    taken = []
    for _ in range(CELLS // STARTS):
        begun = time.perf_counter()
        await cell()
        taken.append((time.perf_counter() - begun) * 1000)
    client.stop_channels()
    await manager.shutdown_kernel(now=True)
    return start, statistics.median(taken)


if __name__ == "__main__":
    report(measure())
