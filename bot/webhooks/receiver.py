"""What GitHub talks to: a delivery is checked, stored and answered, and nothing else happens here.

GitHub waits 10 s for an answer and never sends a failed delivery again by itself, so 2xx is said only of what is
stored, and nothing is parsed. Source: docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from bot.errors import QueueDown
from bot.webhooks.delivery import EVENTS
from bot.webhooks.signature import is_signed

log = logging.getLogger(__name__)

MOST_BYTES = 25 << 20  # GitHub's own cap: docs.github.com/webhooks/webhook-events-and-payloads
MOST_HELD = 8 * MOST_BYTES  # of all bodies under way: whoever sends them is not known before their last byte
BODY_SECONDS = 10.0  # GitHub has hung up by then
STORE_SECONDS = 7.0

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Answer = tuple[int, Mapping[str, object]]


class Store(Protocol):
    """Keeps deliveries until they are dealt with."""

    async def put(self, guid: str, event: str, body: bytes) -> None:
        """Store it; it is safe when this returns. Raises QueueDown."""


Page = Callable[[], Awaitable[tuple[int, str, bytes]]]
"""Status, content type and body of something that is read by GET."""


App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Receiver:
    """The ASGI application."""

    def __init__(
        self, store: Store, secret: str, *, base: str = "", body_seconds: float = BODY_SECONDS
    ) -> None:
        """`base`: the path below which people and GitHub reach us, which the proxy before us may leave or take away."""
        self._store = store
        self._base = base
        self._secret = secret.encode()
        self._body_seconds = body_seconds
        self._held = 0
        self.counts: dict[tuple[str, str], int] = {}
        """Deliveries by their event and what became of them."""
        self.pages: Mapping[str, Page] = {}
        """What else can be read, by path."""
        self.apps: Mapping[str, App] = {}
        """What answers for all paths that begin so, a segment: `/jobs`."""
        self.beyond: App | None = None
        """Answers all other paths. None: there is nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._base and f"{scope['path']}/".startswith(f"{self._base}/"):
            path = scope["path"].removeprefix(self._base) or "/"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        path, method = scope["path"], scope["method"]
        if path == "/webhook" and method == "POST":
            status, said = await self._delivery(dict(scope["headers"]), receive)
            await _answer(send, status, "application/json", json.dumps(said).encode(), hang_up=_cut(status))
        elif (page := self.pages.get(path)) is not None and method in ("GET", "HEAD"):
            await _answer(send, *await page())
        elif (app := self.apps.get("/" + path[1:].partition("/")[0])) is not None:
            await app(scope, receive, send)
        elif path == "/webhook" or path in self.pages:
            await _answer(send, 405, "text/plain", b"That is not how this address is asked.\n", hang_up=True)
        elif self.beyond is not None:
            await self.beyond(scope, receive, send)
        else:
            await _answer(send, 404, "text/plain", b"There is nothing here.\n", hang_up=True)

    async def _delivery(self, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        status, what, why = await self._received(headers, receive)
        event = headers.get(b"x-github-event", b"")[:64].decode("ascii", "replace")
        counted = event if event in EVENTS or event == "ping" else "other", what  # anybody may make up events
        self.counts[counted] = self.counts.get(counted, 0) + 1
        guid = headers.get(b"x-github-delivery", b"")[:64].decode("ascii", "replace")
        if status >= 400:
            log.warning("delivery %s", what, extra={"delivery": guid})
        return status, {"status": what, "why": why} if why else {"status": what}

    async def _received(self, headers: Mapping[bytes, bytes], receive: Receive) -> tuple[int, str, str]:
        """Status, what became of the delivery in a word, and why."""
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 20 or int(length) > MOST_BYTES):
            return 413, "too large", f"The body has more than {MOST_BYTES} bytes."
        try:
            body = await self._body(receive)
        except TimeoutError:
            return 408, "slow", "The body did not come in time."
        except _TooLarge:
            return 413, "too large", f"The body has more than {MOST_BYTES} bytes."
        except _TooMany:
            return 503, "busy", "Too much is being received."
        if body is None:
            return 400, "cut", "The body is incomplete."
        if not is_signed(body, headers.get(b"x-hub-signature-256", b""), self._secret):
            return 401, "forged", "The delivery has no valid x-hub-signature-256 header."
        if headers.get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded"):
            return 400, "unreadable", "Set the webhook's content type to application/json."
        event = headers.get(b"x-github-event", b"").decode("ascii", "replace")
        if event == "ping":
            return 200, "pong", ""
        if event not in EVENTS:
            return 202, "ignored", ""
        guid = headers.get(b"x-github-delivery", b"")[:64].decode("ascii", "replace")
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._store.put(guid, event, body)
        except (QueueDown, TimeoutError):
            # GitHub shows the delivery as failed, and it can be asked for again.
            return 503, "not stored", "The store does not answer."
        return 202, "stored", ""

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None: the sender has gone. Raises _TooLarge, _TooMany and TimeoutError.

        The limits hold whatever the headers claim.
        """
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    parts.append(part := message.get("body", b""))
                    size, self._held = size + len(part), self._held + len(part)
                    if size > MOST_BYTES:
                        raise _TooLarge
                    if self._held > MOST_HELD:
                        raise _TooMany
                    if not message.get("more_body"):
                        return b"".join(parts)
        finally:
            self._held -= size


class _TooLarge(Exception):
    """The body is larger than any delivery of GitHub's."""


class _TooMany(Exception):
    """The bodies that are being received fill the memory set aside for them."""


def _cut(status: int) -> bool:
    """Whether more of the request may be on its way that nobody will read."""
    return status in (408, 413, 503)


async def _answer(send: Send, status: int, kind: str, body: bytes, *, hang_up: bool = False) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    if hang_up:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
