"""A real Chromium for tests of what a page shows, and looks at pages in it."""

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

from runtime import processes
from runtime.observations import Look
from runtime.page.page import Bids, NoAnswer, Seen, look_at

LOOKS = Path(__file__).parent / "looks"

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
class Eyes:
    """One page and what is seen of it."""

    page: Page
    session: Any
    bids: Bids = field(default_factory=Bids)
    asked: list[str] = field(default_factory=list)

    async def send(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(method)
        try:
            answer: dict[str, Any] = await self.session.send(method, dict(params))
        except Error as exc:
            raise NoAnswer(str(exc)) from exc
        return answer

    async def look(self, seconds: float = 30, **options: Any) -> Seen:
        return await look_at(self.send, self.bids, Look(**options), seconds)

    async def show(self, html: str) -> None:
        await self.page.set_content(html)

    async def where(self, bid: str) -> dict[str, Any]:
        """What the DOM says about the element of a bid."""
        node = self.bids.node(bid)
        described = await self.session.send("DOM.describeNode", {"backendNodeId": node})
        found: dict[str, Any] = described["node"]
        return found


@asynccontextmanager
async def eyes(browser: Browser, width: int = 1000, height: int = 600) -> AsyncIterator[Eyes]:
    context = await browser.new_context(viewport={"width": width, "height": height})
    try:
        page = await context.new_page()
        yield Eyes(page, await context.new_cdp_session(page))
    finally:
        # A page may be in an endless loop, and would not let its context go.
        async with asyncio.timeout(20):
            await context.close()


def computed() -> float:
    """Seconds that this process and all that it has started have computed, however busy the machine is."""
    ticks = 0
    for pid in (os.getpid(), *processes.descendants(os.getpid())):
        with contextlib.suppress(OSError):  # it has just ended
            # proc(5): `utime` and `stime` are the fields 14 and 15, the name in brackets is the second
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def bid_of(tree: str, words: str) -> str:
    """The bid of the one line that holds these words."""
    (line,) = [line for line in tree.split("\n") if words in line]
    return line.partition("[")[2].partition("]")[0]
