"""Browser windows for the tests of the dashboard, and a proxy whose connections can be cut."""

import asyncio
import functools
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Self

from playwright.async_api import Browser, ConsoleMessage, Page

WIDE, NARROW = (1280, 900), (390, 844)


@asynccontextmanager
async def browser_window(
    browser: Browser,
    url: str,
    size: tuple[int, int] = WIDE,
    *,
    dark: bool = False,
    script: bool = True,
    expected_errors: Collection[str] = (),
) -> AsyncIterator[Page]:
    """Opens a window in a new browser context. Console errors fail the test, except the expected ones."""
    context = await browser.new_context(
        base_url=url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
    )
    page = await context.new_page()
    errors: list[str] = []

    def record(message: ConsoleMessage) -> None:
        if message.type == "error" and message.location["url"].startswith(url):  # ignore GitHub's pages
            errors.append(message.text)

    page.on("console", record)
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        yield page
        unexpected = [one for one in errors if not any(known in one for known in expected_errors)]
        assert not unexpected, unexpected
    finally:
        await context.close()


class UnreliableProxy:
    """A TCP proxy to a server; its connections can be cut and restored."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._own_port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._cuts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._own_port}"

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cut()

    async def restore(self) -> None:
        handle = functools.partial(self._forward, self._cuts)
        self._server = await asyncio.start_server(handle, "127.0.0.1", self._own_port)
        self._own_port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Aborts all connections and refuses new ones."""
        self._cuts += 1
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _forward(self, cuts: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, server_writer}
        if cuts != self._cuts:
            writer.transport.abort()
            server_writer.transport.abort()
            return
        await asyncio.gather(
            _copy(reader, server_writer), _copy(server_reader, writer), return_exceptions=True
        )


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    finally:
        writer.close()
