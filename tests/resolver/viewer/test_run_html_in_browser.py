"""The viewer's file in a real Chromium: no requests, no execution of content, and working shortcuts, filters
and search.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Page, expect

from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Trajectory
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.viewer.run_html import render_run_html
from tests.resolver.sample_runs import RUN, child_run, full_run, run_of, started
from tests.resolver.viewer.test_run_html import EVERYWHERE, HOSTILE
from tests.runtime.chromium_page import chromium

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

VISIBLE = (
    "[...document.querySelectorAll('.item')].filter(item => item.checkVisibility()).map(item => item.id)"
)


class OpenedFile:
    """A file in a tab, with its requests and console messages."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._alerted)

    async def _alerted(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        await dialog.dismiss()

    async def show(self, trajectory: Trajectory, file: Path) -> str:
        def read(run: RunId) -> Trajectory:
            return child_run()

        file.write_text(render_run_html(RUN, trajectory, read, Secrets()))
        await self.page.goto(file.as_uri())
        return file.as_uri()

    async def visible(self) -> list[str]:
        ids: list[str] = await self.page.evaluate(VISIBLE)
        return ids

    async def here(self) -> str:
        return str(await self.page.evaluate("document.activeElement.id"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def opened(browser: Browser) -> AsyncIterator[OpenedFile]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    yield OpenedFile(await context.new_page())
    await context.close()


@pytest.mark.slow
async def test_the_file_makes_no_requests_and_logs_no_errors(opened: OpenedFile, tmp_path: Path) -> None:
    address = await opened.show(full_run(), tmp_path / "view.html")
    await opened.page.click("#unfold")
    for picture in await opened.page.locator("img").all():
        await picture.scroll_into_view_if_needed()
        await expect(picture).to_have_js_property("naturalWidth", 40)
    assert await opened.page.locator("img").count() == 2
    assert [url for url in opened.requests if not url.startswith("data:")] == [address]
    assert opened.complaints == []


async def test_hostile_content_does_nothing(opened: OpenedFile, tmp_path: Path) -> None:
    address = await opened.show(run_of(started(title=HOSTILE), *EVERYWHERE), tmp_path / "view.html")
    await opened.page.click("#unfold")
    await opened.page.fill("#search", "<script>")
    await expect(opened.page.locator("#found")).to_have_text(re.compile("of"))
    assert [url for url in opened.requests if not url.startswith("data:")] == [address]
    assert opened.complaints == []
    assert await opened.page.inner_text("h1") == HOSTILE


@pytest.mark.slow
@pytest.mark.parametrize("policy", [True, False], ids=["as it is", "without its policy"])
async def test_injected_markup_is_blocked_by_the_policy(
    opened: OpenedFile, tmp_path: Path, policy: bool
) -> None:
    visits: list[bytes] = []

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(visited, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        injected = (
            f"<footer><img src=http://127.0.0.1:{port}/><p onclick=alert(2)>x</p><script>alert(1)</script>"
        )
        file = tmp_path / "view.html"
        await opened.show(full_run(), file)
        html = file.read_text().replace("<footer>", injected)
        file.write_text(html if policy else html.replace("Content-Security-Policy", "X-Nothing"))
        await opened.page.goto(file.as_uri())
        await opened.page.click("footer p")
        await opened.page.wait_for_timeout(200)
    if policy:
        assert visits == []
        assert len(opened.complaints) == 3
        assert all("Content Security Policy" in each for each in opened.complaints)
    else:
        assert visits and {"1", "2"} <= set(opened.complaints)


@pytest.mark.slow
async def test_the_timeline_filters_by_kind_failure_and_text(opened: OpenedFile, tmp_path: Path) -> None:
    await opened.show(full_run(), tmp_path / "view.html")
    everything = await opened.visible()
    await opened.page.click("text=Edits")
    assert await opened.visible() == ["e9.1"]
    await opened.page.click("text=Commands")
    assert await opened.visible() == ["e7.1", "e9.1"]
    await opened.page.click("text=Failures")
    assert await opened.visible() == ["e7.1"]
    await opened.page.keyboard.press("Escape")
    assert await opened.visible() == everything
    await opened.page.fill("#search", "i OPEN it")
    await expect(opened.page.locator("#found")).to_have_text(re.compile("^2 of"))
    # A match in a subagent's step opens the call that contains it.
    assert await opened.visible() == ["e13.1", "e13.1-1"]
    await opened.page.keyboard.press("Escape")
    assert await opened.visible() == everything


@pytest.mark.slow
async def test_the_keyboard_shortcuts_work(opened: OpenedFile, tmp_path: Path) -> None:
    await opened.show(full_run(), tmp_path / "view.html")
    for key, there in (
        ("j", "e1"),
        ("j", "e2"),
        ("k", "e1"),
        ("n", "e5"),
        ("n", "e7"),
        ("p", "e5"),
        ("k", "e4"),
    ):
        await opened.page.keyboard.press(key)
        assert await opened.here() == there, key
    await opened.page.keyboard.press("o")
    assert await opened.page.locator("#e4 details").get_attribute("open") is not None
    await opened.page.keyboard.press("/")
    assert await opened.here() == "search"
    await opened.page.keyboard.type("j?")
    assert await opened.page.input_value("#search") == "j?"
    await opened.page.keyboard.press("Escape")
    await opened.page.keyboard.press("?")
    assert await opened.page.is_visible("dialog")
    await opened.page.keyboard.press("Escape")
    assert not await opened.page.is_visible("dialog")


@pytest.mark.slow
async def test_a_link_to_a_nested_step_opens_it(opened: OpenedFile, tmp_path: Path) -> None:
    address = await opened.show(full_run(), tmp_path / "view.html")
    await opened.page.goto(f"{address}#e13.1-3")
    await opened.page.reload()
    assert await opened.page.is_visible("#e13\\.1-3")


@pytest.mark.slow
async def test_the_file_is_readable_without_scripts_and_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    context = await browser.new_context(
        java_script_enabled=False, viewport={"width": 390, "height": 844}, color_scheme="dark"
    )
    try:
        opened = OpenedFile(await context.new_page())
        await opened.show(run_of(*full_run(), *EVERYWHERE), tmp_path / "view.html")
        assert not await opened.page.is_visible("#search")
        for selector in ("h1", "#tests", "#e9\\.1 ins", "#e9\\.1 del"):
            assert await opened.page.is_visible(selector), selector
        await opened.page.click("#e13\\.1 .nested > summary")
        assert await opened.page.is_visible("#e13\\.1-1")
        boxes = [await each.bounding_box() for each in await opened.page.locator("section").all()]
        assert boxes and all(box and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
        tree = await opened.page.locator("body").aria_snapshot()
        for landmark in (
            "banner",
            "main",
            "contentinfo",
            'heading "add() subtracts" [level=1]',
            'region "Tests"',
        ):
            assert landmark in tree, landmark
    finally:
        await context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_has_enough_contrast(browser: Browser, scheme: str, tmp_path: Path) -> None:
    context = await browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    try:
        opened = OpenedFile(await context.new_page())
        await opened.show(full_run(), tmp_path / "view.html")
        await opened.page.click("#unfold")
        await opened.page.click("text=Edits")
        await opened.page.keyboard.press("Escape")
        weak = await opened.page.evaluate(CONTRAST)
        assert weak == []
    finally:
        await context.close()


# WCAG 2.2, 1.4.3: 4.5 to 1. Backgrounds are opaque or transparent here; for a mixed one, the one below is
# used.
CONTRAST = """() => {
  const parts = (color) => {
    const all = color.match(/[\\d.]+/g).map(Number);
    return all.length < 4 ? [...all, 1] : all;
  };
  const linear = (c) => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parts(getComputedStyle(each).backgroundColor);
      if (color[3] === 1) return color;
    }
    return [255, 255, 255, 1];
  };
  const weak = new Set();
  for (const element of document.body.querySelectorAll("*")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!says || !element.checkVisibility()) continue;
    const lights = [light(parts(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
    if (ratio < 4.5) weak.add(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
  }
  return [...weak];
}"""
