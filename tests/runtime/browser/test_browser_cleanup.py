"""A browser that exits: the next call restarts it, and no process or file stays."""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from patchwright.runtime.browser.action_space import ALL_CALLS
from patchwright.runtime.browser.playwright_browser import Browser
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.observations import ActionFailure, SnapshotOptions
from tests.runtime.web_fixture import Web, notes, open_web

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


def of(web: Web) -> list[int]:
    """Return the processes of this browser."""
    wanted = str(web.scratch).encode()
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and wanted in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except OSError:
            continue
    return found


def main_process(web: Web) -> int:
    (found,) = [
        pid for pid in of(web) if b"remote-debugging-pipe" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and b"--type=" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]  # fmt: skip
    return found


async def test_a_killed_browser_is_restarted(web: Web) -> None:
    await web.open("answer.html")
    os.kill(main_process(web), signal.SIGKILL)
    await asyncio.sleep(0.3)
    page = await web.use(f"goto('{web.url}/away.html')")
    assert page.title == "Away" and "the browser had exited (out of memory, or killed)" in notes(web)


async def test_a_browser_killed_during_a_call_is_restarted(web: Web) -> None:
    await web.open("answer.html")
    asyncio.get_running_loop().call_later(0.5, os.kill, main_process(web), signal.SIGKILL)
    page = await web.use("noop(1000)\nscroll(0, 10)")
    assert page.url == "about:blank" and "was restarted" in notes(web)
    assert page.error is not None and page.error.startswith("line 2:")


async def test_a_killed_driver_is_restarted(web: Web) -> None:
    await web.open("answer.html")
    (driver,) = web.browser._driver_pids
    os.kill(driver, signal.SIGKILL)
    await asyncio.sleep(0.3)
    page = await web.use(f"goto('{web.url}/away.html')")
    assert page.title == "Away" and "was restarted" in notes(web)


async def test_a_page_that_crashes_costs_its_tab(web: Web) -> None:
    await web.open("answer.html")
    renderers = [pid for pid in of(web) if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in renderers:
        os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.3)
    page = await web.use("")
    assert page.url == "about:blank" and "crashed (out of memory, perhaps): its tab was closed" in notes(web)


@pytest.mark.slow
async def test_the_memory_of_earlier_pages_is_released(web: Web) -> None:
    for _ in range(25):
        await web.use(f"goto('{web.url}/table')")
    await asyncio.sleep(0.5)
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in of(web)]
    kept = [int(size) for size in re.findall(r"(?m)^RssAnon:\s+(\d+) kB", "\n".join(statuses))]
    assert max(kept) < 100_000


async def test_nothing_is_left_when_it_is_closed(tmp_path: Path) -> None:
    async with open_web(tmp_path) as web:
        await web.open("answer.html")
        assert of(web) != []
        await web.browser.close()
        assert of(web) == [] and list(web.scratch.iterdir()) == []
        assert (await web.open("answer.html")).title == "The answer"
    assert of(web) == []


async def test_a_sandbox_without_chromium_says_so(tmp_path: Path) -> None:
    browser = Browser(tmp_path, tmp_path, {"PATH": "/nowhere"}, SandboxFeatures())
    assert await browser.run_code("", ALL_CALLS, SnapshotOptions()) == ActionFailure(
        reason="missing", message=SandboxFeatures().missing_message("browser")
    )
