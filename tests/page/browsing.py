"""Chromium for the tests of the page."""

import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDE, NARROW = (1280, 900), (390, 844)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def window(
    browser: Browser,
    url: str,
    size: tuple[int, int] = WIDE,
    *,
    dark: bool = False,
    script: bool = True,
    complaints: Collection[str] = (),
) -> AsyncIterator[Page]:
    """A window with nothing kept from others. What its console complains about fails the test, but for these."""
    context = await browser.new_context(
        base_url=url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
    )
    page = await context.new_page()
    heard: list[str] = []

    def hear(told: ConsoleMessage) -> None:
        if told.type == "error" and told.location["url"].startswith(url):  # GitHub's pages are its own affair
            heard.append(told.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: heard.append(str(error)))
    try:
        yield page
        left = [one for one in heard if not any(known in one for known in complaints)]
        assert not left, left
    finally:
        await context.close()
