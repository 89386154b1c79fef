"""What looking at a page costs: Chromium's start, a page of 200 table rows, its tree, its screenshot with marks.

Floor, in the same run: Playwright's own start, `goto` and screenshot of the same page, with neither tree nor marks.
Peer, measured on a Debian 12 machine with 2 cores: browsergym-core 0.14.3, its extraction without the screenshot.
"""

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.measure import Result, report
from runtime.actions import UseBrowser
from runtime.executor import Executor
from runtime.observations import Look, Page
from runtime.plugins import Plugins

STARTS, LOOKS = 5, 20
ROWS = "".join(
    f"<tr><td>{n}</td><td><a href='/{n}'>Order {n}</a></td><td>{n * 7} pieces</td></tr>" for n in range(200)
)
PAGE = f"<!doctype html><title>Orders</title><table>{ROWS}</table>".encode()


def measure() -> list[Result]:
    """Medians, in milliseconds; p95 where a name says so."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    async with _served() as url:
        firsts, nexts, floor_firsts, floor_nexts = [], [], [], []
        for _ in range(STARTS):
            first, later = await _ours(url)
            firsts.append(first)
            nexts.extend(later)
            first, later = await _floor(url)
            floor_firsts.append(first)
            floor_nexts.extend(later)
    middle = statistics.median
    peers = {"browsergym-core": 1203.0}, {"browsergym-core": 603.0}
    return [
        _result("browser_first_look", middle(firsts), middle(floor_firsts), 1000, peers[0]),
        _result("browser_next_look", middle(nexts), middle(floor_nexts), 150, peers[1]),
        _result("browser_next_look_p95", statistics.quantiles(nexts, n=20)[-1], None, None, {}),
    ]


def _result(
    name: str, value: float, floor: float | None, target: float | None, peers: dict[str, float]
) -> Result:
    return Result(name=name, value=value, unit="ms", floor=floor, peers=peers, target=target)


async def _ours(url: str) -> tuple[float, list[float]]:
    """From the asking to the page, through the executor: the first time, and each further one."""
    with tempfile.TemporaryDirectory() as directory:
        root, scratch = Path(directory) / "tree", Path(directory) / "tmp"
        root.mkdir()
        scratch.mkdir()
        executor = Executor(root, scratch, {"PATH": os.environ["PATH"], "HOME": directory})
        look = UseBrowser(code=f"goto({url!r})", allowed=("goto",), look=Look(screenshot=True, marks=True))
        taken = []
        try:
            for _ in range(1 + LOOKS):
                begun = time.perf_counter()
                page = await executor.act(look)
                taken.append(_since(begun))
                assert isinstance(page, Page) and page.screenshot is not None and "Order 9" in page.tree, page
        finally:
            await executor.close()
    return taken[0], taken[1:]


async def _floor(url: str) -> tuple[float, list[float]]:
    from playwright.async_api import async_playwright

    begun = time.perf_counter()
    taken = []
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=Plugins().chromium() or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        page = await chromium.new_page(viewport={"width": 1280, "height": 720})
        for _ in range(1 + LOOKS):
            await page.goto(url)
            await page.screenshot()
            taken.append(_since(begun))
            begun = time.perf_counter()
        await chromium.close()
    return taken[0], taken[1:]


@asynccontextmanager
async def _served() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    report(measure())
