"""Reads linked hosts for the browser through the egress proxy.

The browser encrypts its own requests, so the proxy could not see their method. Requests to linked hosts therefore go to
the proxy as URLs, with the key of this action, and the proxy permits only GET and HEAD.
"""

import asyncio
import contextlib
import html
import http.client
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from patchwright.runtime.egress_forwarder import PROXY_PORT
from patchwright.runtime.page.page_reader import DevToolsError

if TYPE_CHECKING:
    from patchwright.runtime.browser.vendor_types import VendorContext, VendorRoute

MAX_BODY_BYTES = 20 << 20  # bytes of one response
TIMEOUT = 20.0  # seconds without a byte
MAX_REDIRECTS = 5
_DROPPED_HEADERS = frozenset({"transfer-encoding", "content-length", "connection", "keep-alive"})


@dataclass(frozen=True)
class LinkResponse:
    """The response of a linked host. The redirects of other requests than a page's own were followed."""

    status: int
    headers: dict[str, str]
    body: bytes
    redirect: str = ""
    """The URL to which a page's own request is redirected."""


@dataclass(frozen=True)
class LinkReader:
    """Reads URLs of linked hosts."""

    hosts: frozenset[str]
    key: str = field(repr=False)
    port: int = PROXY_PORT

    def matches(self, url: str) -> bool:
        """True if the URL belongs to a linked host."""
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and (parts.hostname or "") in self.hosts

    def read(self, method: str, url: str, headers: dict[str, str], *, is_page: bool) -> LinkResponse:
        """Send a request. Blocks. Raises OSError or http.client.HTTPException if there is no response."""
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send(method, url, headers)
            if response.status not in (301, 302, 303, 307, 308) or "location" not in response.headers:
                return response
            url = urljoin(url, response.headers["location"])
            if is_page:
                return LinkResponse(200, {"content-type": "text/html"}, b"", redirect=url)
            if not self.matches(url):
                break
        raise OSError("the redirect leads to a host that is not linked")

    def _send(self, method: str, url: str, headers: dict[str, str]) -> LinkResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            sent = {name: value for name, value in headers.items() if not name.startswith(":")}
            sent |= {"accept-encoding": "identity", "proxy-authorization": f"Bearer {self.key}"}
            connection.request(method, urlsplit(url)._replace(fragment="").geturl(), headers=sent)
            response = connection.getresponse()
            body = response.read(MAX_BODY_BYTES + 1)
        finally:
            connection.close()
        if len(body) > MAX_BODY_BYTES:
            raise OSError(f"the response has more than {MAX_BODY_BYTES:,} bytes")
        received: dict[str, str] = {}
        for name, value in response.getheaders():
            if name.lower() not in _DROPPED_HEADERS:  # Playwright splits a value with several lines.
                received[name.lower()] = "\n".join(filter(None, (received.get(name.lower()), value)))
        return LinkResponse(response.status, received, body)


class LinkRouter:
    """Answers the requests of a browser's pages to linked hosts."""

    def __init__(self, translate_errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._translate_errors = translate_errors
        self._reader: LinkReader | None = None
        self._context: VendorContext | None = None

    async def set_reader(self, context: "VendorContext", reader: LinkReader | None) -> None:
        """Use this reader from now on. Without a reader, requests to linked hosts are not special."""
        self._reader = reader
        if reader is not None and context is not self._context:
            self._context = context
            with self._translate_errors():
                await context.route(self._matches, self._answer)

    def _matches(self, url: str) -> bool:
        return self._reader is not None and self._reader.matches(url)

    async def _answer(self, route: "VendorRoute") -> None:
        request, reader = route.request, self._reader
        with contextlib.suppress(DevToolsError), self._translate_errors():  # The page may be closed.
            if reader is None or request.method not in ("GET", "HEAD"):
                await route.abort("blockedbyclient")
                return
            is_page = request.is_navigation_request()
            try:
                response = await asyncio.to_thread(
                    reader.read, request.method, request.url, request.headers, is_page=is_page
                )
            except (OSError, ValueError, http.client.HTTPException):
                await route.abort("connectionfailed")
                return
            body = response.body
            if response.redirect:
                body = (
                    f'<meta http-equiv="refresh" content="0;url={html.escape(response.redirect)}">'.encode()
                )
            await route.fulfill(status=response.status, headers=response.headers, body=body)
