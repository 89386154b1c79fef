"""Measures the cost of viewing a page: Chromium's start, a page with 200 table rows, its tree, and its marked
screenshot.

Measured through the executor of this process, and through a Docker sandbox that serves the page itself. A
repeated view shows the page that is already open; a next page is opened first. Floor, in the same run:
Playwright's own start, `goto`, and screenshot of the same page, without tree and marks.

Also measures the memory of a sandbox with all features, a Python session, and that page, as its cgroup counts
it: private memory of its processes, shared memory, files in `/tmp`, and the kernel's part. File pages, such
as Chromium's program, are not included, because they are dropped when memory is short.

Peer, measured on a Debian 12 machine with 2 cores: browsergym-core 0.14.3, its extraction without the
screenshot.
"""

import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Result, report
from benchmarks.sandbox import CA_BUNDLE
from patchwright.runtime.actions import RunPython, RunShell, UseBrowser, WriteBytes
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.execution.executor import Executor
from patchwright.runtime.features import ALL_FEATURES, SandboxFeatures
from patchwright.runtime.observations import CellResult, PageSnapshot, ShellResult, SnapshotOptions
from patchwright.runtime.sandbox import Sandbox, SandboxSpec

STARTS, LOOKS = 5, 15
ROWS = "".join(
    f"<tr><td>{n}</td><td><a href='/{n}'>Order {n}</a></td><td>{n * 7} pieces</td></tr>" for n in range(200)
)
SERVE = """/opt/patchwright/python/bin/python3 -m http.server 8765 --bind 127.0.0.1 > /dev/null 2>&1 &
until (: < /dev/tcp/127.0.0.1/8765) 2> /dev/null; do sleep 0.05; done"""
# Version 2 of cgroups has the kernel's part in the same file.
COUNTED = """cd /sys/fs/cgroup
if [ -e memory/memory.stat ]
then sed -n 's/^rss //p; s/^shmem //p' memory/memory.stat; cat memory/memory.kmem.usage_in_bytes
else sed -n 's/^anon //p; s/^shmem //p; s/^kernel //p' memory.stat
fi | awk '{ all += $1 } END { print all }'"""
PAGE = f"<!doctype html><title>Orders</title><table>{ROWS}</table>".encode()


def measure() -> list[Result]:
    """Returns medians in milliseconds; p95 where the name says so."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    async with _served() as url:
        ours = [await _ours(url) for _ in range(STARTS)]
        floor = [await _floor(url) for _ in range(STARTS)]
    docker = await _docker()
    memory = await _memory()
    first, later, pages = _medians(ours)
    first_floor, later_floor, pages_floor = _medians(floor)
    first_docker, later_docker, pages_docker = _medians(docker)
    every = [look for timings in docker for look in timings.looks]
    return [
        _result("browser_first_look", first_docker, first_floor, 1000, browsergym_core=1203),
        _result("browser_further_look", later_docker, later_floor, 150, browsergym_core=603),
        _result("browser_further_look_p95", statistics.quantiles(every, n=20)[-1], None, None),
        _result("browser_next_page", pages_docker, pages_floor, None),
        _result("browser_first_look_in_process", first, first_floor, None, browsergym_core=1203),
        _result("browser_further_look_in_process", later, later_floor, None, browsergym_core=603),
        _result("browser_next_page_in_process", pages, pages_floor, None),
        Result(name="sandbox_memory", value=memory, unit="MB", floor=None, target=450),
    ]


class _Taken(NamedTuple):
    """Measured times, in milliseconds."""

    first: float
    looks: list[float]
    pages: list[float]


def _medians(timings: list[_Taken]) -> tuple[float, float, float]:
    """Returns the medians of first views, of repeated views, and of views of a next page."""
    middle = statistics.median
    return (
        middle(each.first for each in timings),
        middle(look for each in timings for look in each.looks),
        middle(look for each in timings for look in each.pages),
    )


def _result(name: str, value: float, floor: float | None, target: float | None, **peers: float) -> Result:
    named = {peer.replace("_", "-"): figure for peer, figure in peers.items()}
    return Result(name=name, value=value, unit="ms", floor=floor, peers=named, target=target)


async def _ours(url: str) -> _Taken:
    with tempfile.TemporaryDirectory() as directory:
        root, scratch = Path(directory) / "tree", Path(directory) / "tmp"
        root.mkdir()
        scratch.mkdir()
        executor = Executor(root, scratch, {"PATH": os.environ["PATH"], "HOME": directory})
        try:
            return await _looks(executor, url)
        finally:
            await executor.close()


async def _docker() -> list[_Taken]:
    sandboxes = DockerSandboxes(
        SandboxSpec(memory_mb=2048), BuildSettings(features=("browser",), ca_bundle=CA_BUNDLE)
    )
    await sandboxes.prepare()
    timings = []
    for _ in range(STARTS):
        async with sandboxes.open(f"benchmark-{os.getpid()}") as sandbox:
            await sandbox.act(WriteBytes(path="index.html", content=PAGE))
            await sandbox.act(RunShell(command=SERVE))
            timings.append(await _looks(sandbox, "http://localhost:8765/"))
    await sandboxes.close()
    return timings


async def _memory() -> float:
    """Returns the memory after LOOKS views, in 10^6 bytes."""
    sandboxes = DockerSandboxes(SandboxSpec(memory_mb=2048), BuildSettings(ALL_FEATURES, CA_BUNDLE))
    async with sandboxes.open(f"benchmark-{os.getpid()}") as sandbox:
        await sandbox.act(WriteBytes(path="index.html", content=PAGE))
        await sandbox.act(RunShell(command=SERVE))
        session = await sandbox.act(RunPython(code="1+1"))
        assert isinstance(session, CellResult) and session.ok, session
        await _looks(sandbox, "http://localhost:8765/")
        counted = await sandbox.act(RunShell(command=COUNTED))
        assert isinstance(counted, ShellResult) and counted.exit_code == 0, counted
    await sandboxes.close()
    return float(counted.output) / 1e6


async def _looks(sandbox: Sandbox, url: str) -> _Taken:
    """Measures the time from the request to the page."""
    snapshot_options = SnapshotOptions(screenshot=True, marks=True)
    opened = UseBrowser(code=f"goto({url!r})", allowed_calls=("goto",), snapshot=snapshot_options)

    async def timed(action: UseBrowser) -> float:
        started_at = time.perf_counter()
        page = await sandbox.act(action)
        timings = _since(started_at)
        assert isinstance(page, PageSnapshot) and page.screenshot is not None and "Order 9" in page.tree, page
        return timings

    first = await timed(opened)
    looks = [await timed(UseBrowser(snapshot=snapshot_options)) for _ in range(LOOKS)]
    return _Taken(first, looks, [await timed(opened) for _ in range(LOOKS)])


async def _floor(url: str) -> _Taken:
    from playwright.async_api import async_playwright

    started_at = time.perf_counter()
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=SandboxFeatures().chromium_program() or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        page = await chromium.new_page(viewport={"width": 1280, "height": 720})

        async def timed(started_at: float, *, opened: bool) -> float:
            if opened:
                await page.goto(url)
            await page.screenshot()
            return _since(started_at)

        first = await timed(started_at, opened=True)
        looks = [await timed(time.perf_counter(), opened=False) for _ in range(LOOKS)]
        pages = [await timed(time.perf_counter(), opened=True) for _ in range(LOOKS)]
        await chromium.close()
    return _Taken(first, looks, pages)


@asynccontextmanager
async def _served() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):  # Chromium connects in advance
            await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


def _since(started_at: float) -> float:
    return (time.perf_counter() - started_at) * 1000


if __name__ == "__main__":
    report(measure())
