"""The webhook endpoint. It verifies deliveries, stores them, and responds to GitHub. It does nothing else.

GitHub waits 10 s for a response, so the endpoint does not parse deliveries. GitHub does not send failed
deliveries again by itself, so the endpoint responds with 2xx only if the delivery is stored. Source:
docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from patchwright.bot.errors import QueueDown
from patchwright.bot.webhooks.delivery import HANDLED_EVENTS

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 25 << 20  # GitHub has the same limit: docs.github.com/webhooks/webhook-events-and-payloads
# Limits the total size of all bodies that are being received. Anyone may send a body, because its signature
# can be verified only after its last byte.
MAX_BUFFERED_BYTES = 8 * MAX_BODY_BYTES
BODY_TIMEOUT_SECONDS = 10.0  # GitHub waits 10 s for a response
STORE_TIMEOUT_SECONDS = 7.0

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
JsonResponse = tuple[int, Mapping[str, object]]


class DeliveryStore(Protocol):
    """Stores deliveries until they are processed."""

    async def put(self, guid: str, event: str, body: bytes) -> None:
        """Stores a delivery. Returns when the delivery is safely stored. Raises QueueDown."""


GetEndpoint = Callable[[], Awaitable[tuple[int, str, bytes]]]
"""Handles a GET endpoint. Returns the status, the content type and the body of the response."""


AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Receiver:
    """The ASGI application of the webhook endpoint."""

    def __init__(
        self,
        store: DeliveryStore,
        secret: str,
        *,
        base_path: str = "",
        body_timeout: float = BODY_TIMEOUT_SECONDS,
    ) -> None:
        """Stores the dependencies. `base_path` is the path prefix of the public URL. A reverse proxy may
        remove this prefix or leave it.
        """
        self._store = store
        self._base_path = base_path
        self._secret = secret.encode()
        self._body_timeout = body_timeout
        self._buffered_bytes = 0
        self.delivery_counts: dict[tuple[str, str], int] = {}
        """Number of received deliveries, by event and result."""
        self.endpoints: Mapping[str, GetEndpoint] = {}
        """Further GET endpoints, by path."""
        self.mounted_apps: Mapping[str, AsgiApp] = {}
        """Other applications. The key is the first segment of their paths, such as `/jobs`."""
        self.fallback_app: AsgiApp | None = None
        """The application for all other paths. If it is None, requests for other paths get status 404."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        if self._base_path and f"{scope['path']}/".startswith(f"{self._base_path}/"):
            path = scope["path"].removeprefix(self._base_path) or "/"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        path, method = scope["path"], scope.get("method", "")
        mounted_app = self.mounted_apps.get("/" + path[1:].partition("/")[0])
        if scope["type"] == "websocket":
            # Only the API has WebSockets. Without an answer, the connection is refused with status 403.
            await (mounted_app(scope, receive, send) if mounted_app else send({"type": "websocket.close"}))
        elif path == "/webhook" and method == "POST":
            status, answer = await self._handle_delivery(dict(scope["headers"]), receive)
            await _send_response(
                send,
                status,
                "application/json",
                json.dumps(answer).encode(),
                close_connection=_may_have_unread_body(status),
            )
        elif (endpoint := self.endpoints.get(path)) is not None and method in ("GET", "HEAD"):
            await _send_response(send, *await endpoint())
        elif mounted_app is not None:
            await mounted_app(scope, receive, send)
        elif path == "/webhook" or path in self.endpoints:
            await _send_response(send, 405, "text/plain", b"Method not allowed.\n", close_connection=True)
        elif self.fallback_app is not None:
            await self.fallback_app(scope, receive, send)
        else:
            await _send_response(send, 404, "text/plain", b"Not found.\n", close_connection=True)

    async def _handle_delivery(self, headers: Mapping[bytes, bytes], receive: Receive) -> JsonResponse:
        event, guid = (
            _decode_header(headers, b"x-github-event"),
            _decode_header(headers, b"x-github-delivery"),
        )
        status, result, reason = await self._receive_delivery(event, guid, headers, receive)
        key = (event if event in HANDLED_EVENTS or event == "ping" else "other", result)
        self.delivery_counts[key] = self.delivery_counts.get(key, 0) + 1
        if status >= 400:
            log.warning("delivery %s", result, extra={"delivery": guid})
        return status, {"status": result, "why": reason} if reason else {"status": result}

    async def _receive_delivery(
        self, event: str, guid: str, headers: Mapping[bytes, bytes], receive: Receive
    ) -> tuple[int, str, str]:
        """Stores a delivery. Returns the status code, a short phrase for the result, and the reason."""
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 20 or int(length) > MAX_BODY_BYTES):
            return 413, "too large", f"The body has more than {MAX_BODY_BYTES} bytes."
        try:
            body = await self._read_body(receive)
        except TimeoutError:
            return 408, "timeout", "The body did not arrive in time."
        except _TooLarge:
            return 413, "too large", f"The body has more than {MAX_BODY_BYTES} bytes."
        except _BufferFull:
            return 503, "busy", "Too many deliveries are being received."
        if body is None:
            return 400, "incomplete", "The body is incomplete."
        if not has_valid_signature(body, headers.get(b"x-hub-signature-256", b""), self._secret):
            return 401, "invalid signature", "The delivery has no valid x-hub-signature-256 header."
        if headers.get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded"):
            return 400, "unreadable", "Set the webhook's content type to application/json."
        if event == "ping":
            return 200, "pong", ""
        if event not in HANDLED_EVENTS:
            return 202, "ignored", ""
        try:
            async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                await self._store.put(guid, event, body)
        except (QueueDown, TimeoutError):
            # GitHub lists this delivery as failed. Patchwright can therefore request its redelivery.
            return 503, "not stored", "Redis does not respond."
        return 202, "stored", ""

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Reads the whole body. Returns None if the client disconnects.

        Raises _TooLarge, _BufferFull and TimeoutError. Measures the body, because the headers may give a
        wrong size.
        """
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._body_timeout):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    parts.append(part := message.get("body", b""))
                    size, self._buffered_bytes = size + len(part), self._buffered_bytes + len(part)
                    if size > MAX_BODY_BYTES:
                        raise _TooLarge
                    if self._buffered_bytes > MAX_BUFFERED_BYTES:
                        raise _BufferFull
                    if not message.get("more_body"):
                        return b"".join(parts)
        finally:
            self._buffered_bytes -= size


class _TooLarge(Exception):
    """The body is larger than GitHub's limit for deliveries."""


class _BufferFull(Exception):
    """The bodies that are currently being received exceed MAX_BUFFERED_BYTES in total."""


def _decode_header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    """Returns the first 64 characters of a header; "" if it is missing."""
    return headers.get(name, b"")[:64].decode("ascii", "replace")


def _may_have_unread_body(status: int) -> bool:
    """Returns True if the client may still be sending a body that the server does not read."""
    return status in (408, 413, 503)


async def _send_response(
    send: Send, status: int, content_type: str, body: bytes, *, close_connection: bool = False
) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
    if close_connection:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def has_valid_signature(body: bytes, signature_header: bytes, secret: bytes) -> bool:
    """Returns True if the header x-hub-signature-256 contains the signature of exactly these bytes.

    Returns False if the secret is empty, because anyone could sign with an empty secret.
    Source: docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
    """
    expected = b"sha256=" + hmac.digest(secret, body, hashlib.sha256).hex().encode()
    return bool(secret) and hmac.compare_digest(signature_header, expected)
