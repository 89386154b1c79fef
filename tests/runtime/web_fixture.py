"""A web server on loopback for browser tests: pages that report their events, and misbehaving servers."""

import asyncio
import contextlib
import mimetypes
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from patchwright.runtime.browser.action_space import ALL_CALLS
from patchwright.runtime.browser.playwright_browser import Browser
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.observations import ActionFailure, PageSnapshot, SnapshotOptions

PAGES = Path(__file__).parent / "pages"
SNAPSHOT = SnapshotOptions()
LOAD_SECONDS = 3  # seconds for a page to load in these tests


@dataclass
class Web:
    """A browser with a web server, and the events that its pages reported."""

    browser: Browser
    root: Path
    scratch: Path
    port: int = 0
    request_lines: list[str] = field(default_factory=list)
    page: PageSnapshot | None = None
    """The last snapshot."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the end of the test."""

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    async def use(
        self, code: str, look: SnapshotOptions = SNAPSHOT, allowed: tuple[str, ...] = ALL_CALLS
    ) -> PageSnapshot:
        page = await self.browser.run_code(code, allowed, look)
        assert isinstance(page, PageSnapshot), page
        self.page = page
        return page

    async def failed(self, code: str, allowed: tuple[str, ...] = ALL_CALLS) -> ActionFailure:
        failed = await self.browser.run_code(code, allowed, SNAPSHOT)
        assert isinstance(failed, ActionFailure), failed
        return failed

    async def open(self, page: str) -> PageSnapshot:
        """Open one of the pages, and discard earlier reports."""
        shown = await self.use(f"goto('{self.url}/{page}')")
        assert shown.error is None, shown.error
        self.request_lines.clear()
        return shown

    async def do(self, call: str) -> list[str]:
        """Run calls in which each `{role 'name'}` stands for its bid, and return the page's reports."""
        page = await self.use(self.filled(call))
        assert page.error is None, page.error
        return self.take_lines()

    async def refused(self, call: str) -> str:
        """Return the error of calls, with bids as in `do`."""
        page = await self.use(self.filled(call))
        assert page.error is not None, page
        return page.error

    def take_lines(self) -> list[str]:
        received, self.request_lines[:] = [line.rstrip() for line in self.request_lines], []
        return received

    def filled(self, call: str) -> str:
        return re.sub(r"\{([^{}]+)\}", lambda found: repr(self.bid(found[1])), call)

    def bid(self, node: str) -> str:
        assert self.page is not None
        found = re.search(rf"\[(\d+)\] {re.escape(node)}", self.page.tree)
        assert found is not None, f"{node} is not in\n{self.page.tree}"
        return found[1]

    # --- the server ---------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            await self._answer(head.split()[1], head, body, writer)
            await writer.drain()
        writer.close()

    async def _answer(self, path: str, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        name = unquote(path).partition("?")[0].lstrip("/")

        def send(
            body: bytes, kind: str = "text/html; charset=utf-8", status: str = "200 OK", more: str = ""
        ) -> None:
            lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}"
            writer.write(f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)

        match name:
            case "saw":
                self.request_lines.append(body.decode())
                send(b"")
            case "around":
                send(f"<title>Around</title><iframe src='{path.partition('?')[2]}'></iframe>".encode())
            case "late":
                await asyncio.sleep(0.2)
                send(b"<title>Late</title>")
            case "never":
                await self.over.wait()
            case "trickle":
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<title>Slow</title><h1>First</h1>"
                )
                await writer.drain()
                await self.over.wait()
            case "round":
                send(b"", status="302 Found", more="Location: /round\r\n")
            case "to-file":
                send(b"", status="302 Found", more="Location: file:///etc/passwd\r\n")
            case "private" if "Basic dXNlcjpwYXNz" in head:
                send(b"<title>Private</title>")
            case "private":
                send(b"", status="401 Unauthorized", more='WWW-Authenticate: Basic realm="x"\r\n')
            case "reloading":
                send(
                    b"<title>Again</title><h1>Again</h1><script>setTimeout(() => location.reload(), 5)</script>"
                )
            case "huge":
                line = b"<p>A paragraph of a page that is far too long</p>" * 21_000
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<title>Huge</title>")
                for _ in range(100):
                    writer.write(line)
                    await writer.drain()
            case "table":
                rows = "".join(f"<tr><td>{n}<td><a href='/{n}'>Row {n}</a>" for n in range(200))
                send(f"<title>Table</title><table>{rows}</table>".encode())
            case _ if name.startswith("download/"):
                file = name.removeprefix("download/")
                send(
                    b"some notes\n",
                    "text/plain",
                    more=f'Content-Disposition: attachment; filename="{file}"\r\n',
                )
            case _ if (PAGES / name).is_file():
                send((PAGES / name).read_bytes(), mimetypes.guess_type(name)[0] or "text/html")
            case _:
                send(b"<title>Nothing</title>", status="404 Not Found")


def notes(web: Web) -> str:
    assert web.page is not None
    return "\n".join(web.page.notes)


@asynccontextmanager
async def open_web(directory: Path, **more: str) -> AsyncIterator[Web]:
    """Start browser and server. `more` are additional variables of the browser's environment."""
    root, scratch, home = (directory / name for name in ("tree", "tmp", "home"))
    for place in (root, scratch, home):
        place.mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}
    browser = Browser(root, scratch, env, SandboxFeatures(), load_timeout=LOAD_SECONDS)
    web = Web(browser, root, scratch)
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        web.over.set()
        await browser.close()
        server.close()
