"""Windows for the tests of the page, and a way to a server that can be cut."""

import asyncio
import functools
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Self

from playwright.async_api import Browser, ConsoleMessage, Page

WIDE, NARROW = (1280, 900), (390, 844)


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


class Between:
    """A way to a server that can be cut."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._own = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._cuts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._own}"

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cut()

    async def mend(self) -> None:
        through = functools.partial(self._carry, self._cuts)
        self._server = await asyncio.start_server(through, "127.0.0.1", self._own)
        self._own = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Nobody comes through, and who was through, or on the way, is not any more."""
        self._cuts += 1
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, cuts: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, back}
        if cuts != self._cuts:
            writer.transport.abort()
            back.transport.abort()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer), return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    finally:
        writer.close()
