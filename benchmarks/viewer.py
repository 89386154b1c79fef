"""Measures the size of the viewer's file for a long run, and how fast Chromium shows it.

500 steps with outputs of the sizes that reading and testing code produces, every fifth an edit, and 50
Chromium screenshots of 50 pages of text. A file is open when its `load` event has ended and a frame was drawn
after it, with a new context each time; the median. Floor, in the same run: the same browser with a page of
one word.
"""

import random
import shutil
import statistics
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from benchmarks.context import output
from benchmarks.measure import Result, in_a_directory, report
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Entry, Event, ModelReply, ReplyUsage, ToolCall, ToolResult, Trajectory
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.viewer.run_html import render_run_html
from patchwright.runtime.actions import ReplaceText, RunShell, UseBrowser
from patchwright.runtime.observations import EditResult, ImageData, PageSnapshot, ShellResult, Tab

STEPS, SCREENSHOTS, TIMES = 500, 50, 7
DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WORDS = "the parser keeps a field of each line and drops what follows a separator without saying so".split()


def steps(pictures: list[bytes]) -> list[Event]:
    """Returns the events of such a run."""
    events: list[Event] = []
    for step in range(STEPS):
        action: RunShell | ReplaceText | UseBrowser
        observation: ShellResult | EditResult | PageSnapshot
        if step % (STEPS // SCREENSHOTS) == 3:
            action = UseBrowser(code=f'goto("http://localhost:8000/{step}")')
            picture = ImageData(media_type="image/png", data=pictures[step * SCREENSHOTS // STEPS])
            url = f"http://localhost:8000/{step}"
            observation = PageSnapshot(
                url=url, title="Orders", tree=output(step), tabs=(Tab(url=url, title=""),), screenshot=picture
            )
        elif step % 5 == 0:
            action = ReplaceText(path=f"src/module_{step}.py", old="a", new="b")
            lines = output(step)[:3000].splitlines()
            body = "".join(f"{' +-'[n % 3]}{line}\n" for n, line in enumerate(lines))
            observation = EditResult(
                path=action.path, diff=f"--- a/x\n+++ b/x\n@@ -1,{len(lines)} +1,{len(lines)} @@\n{body}"
            )
        else:
            action = RunShell(command=f"python3 -m pytest tests/test_{step}.py -q")
            observation = ShellResult(
                output=output(step), exit_code=step % 7 == 0, cwd="/workspace", seconds=1.0
            )
        usage = ReplyUsage(model="m", prompt_tokens=step * 400, completion_tokens=200, usd=Decimal("0.01"))
        thought = f"Step {step}: the separator is looked for before the line is stripped, so I look at that."
        events.append(
            ModelReply(thought=thought, calls=(ToolCall(id=f"c{step}", action=action),), usage=usage)
        )
        events.append(ToolResult(call_id=f"c{step}", observation=observation))
    return events


async def screenshots(browser: Browser) -> list[bytes]:
    """Returns pictures of pages, each with different words."""
    page = await browser.new_page(viewport={"width": 1280, "height": 720})
    timings = []
    for number in range(SCREENSHOTS):
        chance = random.Random(number)
        rows = "".join(f"<p>{' '.join(chance.choices(WORDS, k=24))}</p>" for _ in range(18))
        await page.set_content(f"<h1>Page {number}</h1>{rows}")
        timings.append(await page.screenshot())
    await page.close()
    return timings


async def opening(browser: Browser, file: Path) -> float:
    """Returns the median milliseconds until the file is shown."""
    timings = []
    for _ in range(TIMES + 1):
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        page = await context.new_page()
        started_at = time.perf_counter()
        await page.goto(file.as_uri())
        await page.evaluate(DRAWN)
        timings.append((time.perf_counter() - started_at) * 1000)
        await context.close()
    return statistics.median(timings[1:])


async def _measure(directory: Path) -> list[Result]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        run = long_run(await screenshots(browser))
        started_at = time.perf_counter()
        html = render_run_html(RunId("long"), run, lambda _: None, Secrets(["a-secret-of-this-process"]))
        render_seconds = time.perf_counter() - started_at
        assert html.count('src="data:image/png') == SCREENSHOTS, "no picture was left out"
        floor = await opening(
            browser, write_file(directory / "least.html", "<!doctype html><title>x</title>word")
        )
        opened = await opening(browser, write_file(directory / "view.html", html))
        await browser.close()
    return [
        Result(name="viewer_size", value=len(html.encode()) / 1e6, unit="MB", floor=None, target=15),
        Result(name="viewer_opens", value=opened, unit="ms", floor=floor, target=1000),
        Result(name="viewer_made", value=render_seconds * 1000, unit="ms", floor=None, target=None),
    ]


def write_file(file: Path, html: str) -> Path:
    file.write_text(html, encoding="utf-8")
    return file


def long_run(pictures: list[bytes]) -> Trajectory:
    """Returns the run, with one event per second."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return Trajectory(
        tuple(
            Entry(seq=n, timestamp=start + timedelta(seconds=n), event=event)
            for n, event in enumerate(steps(pictures))
        )
    )


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
