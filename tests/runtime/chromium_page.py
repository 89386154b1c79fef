"""A real Chromium, and snapshots of pages in it."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Error, Page, async_playwright

from patchwright.runtime import processes
from patchwright.runtime.observations import SnapshotOptions
from patchwright.runtime.page.page_reader import BidRegistry, DevToolsError, PageContent, read_page

SNAPSHOTS = Path(__file__).parent / "snapshots"

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-site-isolation-trials",
]


@asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class PageSession:
    """One page with its DevTools session and bids."""

    page: Page
    session: Any
    bids: BidRegistry = field(default_factory=BidRegistry)
    commands: list[str] = field(default_factory=list)

    async def send(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.commands.append(method)
        try:
            answer: dict[str, Any] = await self.session.send(method, dict(params))
        except Error as exc:
            raise DevToolsError(str(exc)) from exc
        return answer

    async def read(self, seconds: float = 30, **options: Any) -> PageContent:
        return await read_page(self.send, self.bids, SnapshotOptions(**options), seconds)

    async def show(self, html: str) -> None:
        await self.page.set_content(html)

    async def describe_element(self, bid: str) -> dict[str, Any]:
        """Return the DOM description of the element with this bid."""
        node = self.bids.find_node(bid)
        described = await self.session.send("DOM.describeNode", {"backendNodeId": node})
        found: dict[str, Any] = described["node"]
        return found


@asynccontextmanager
async def open_page(browser: Browser, width: int = 1000, height: int = 600) -> AsyncIterator[PageSession]:
    context = await browser.new_context(viewport={"width": width, "height": height})
    try:
        page = await context.new_page()
        yield PageSession(page, await context.new_cdp_session(page))
    finally:
        # A page may be in an endless loop, which blocks its context.
        async with asyncio.timeout(20):
            await context.close()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children, independent of the machine's load."""
    ticks = 0
    for pid in (os.getpid(), *processes.descendant_pids(os.getpid())):
        with contextlib.suppress(OSError):  # it has just ended
            # proc(5): `utime` and `stime` are the fields 14 and 15, the name in brackets is the second
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def find_bid(tree: str, words: str) -> str:
    """Return the bid of the only line that contains these words."""
    (line,) = [line for line in tree.split("\n") if words in line]
    return line.partition("[")[2].partition("]")[0]
