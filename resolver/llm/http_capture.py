"""Captures the raw HTTP response of a model request, limits its size, and keeps it for error reports."""

import json
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any

import httpx

MAX_BODY_BYTES = 32 << 20  # bytes; the longest reply of any model is far shorter
MAX_COMPRESSED_BYTES = 256 << 10
"""Maximum bytes of a compressed reply. Requests ask for uncompressed replies, so a large compressed reply
could be a decompression bomb.
"""


class ResponseTooLarge(httpx.TransportError):
    """The response is larger than any reply of a model can be."""


class ResponseCapture:
    """The raw response to one model request."""

    def __init__(self) -> None:
        self.status = 0
        """HTTP status code; 0 if no response arrived."""
        self.headers: dict[str, str] = {}
        """Header names in lowercase."""
        self.body = bytearray()
        self.is_complete = False
        self.is_too_large = False

    @property
    def problem(self) -> str | None:
        """A clause that says what went wrong in the transfer; None if no problem is known."""
        if self.is_interrupted:
            return f"the response ended early after {len(self.body):,} bytes"
        return None

    def handle_litellm_log(self, details: Mapping[str, Any]) -> None:
        """Receives the response from litellm's callback `logger_fn`. Some providers need this because their
        HTTP clients do not run the hooks of this module.
        """
        raw = details.get("original_response")
        if not self.status and isinstance(raw, str):
            self.body = bytearray(raw.encode("utf-8", "replace"))

    def __enter__(self) -> "ResponseCapture":
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)

    @property
    def is_interrupted(self) -> bool:
        """True if the connection broke during a successful response. The provider bills for such a response."""
        return self.status == 200 and not self.is_complete and len(self.body) > 0

    @property
    def is_html(self) -> bool:
        """True if a successful response is a web page, so the URL is not that of a model."""
        content_type = self.headers.get("content-type", "")
        return self.status == 200 and content_type.startswith("text/html") and self.is_complete

    def extract_usage(self) -> dict[str, Any] | None:
        """Returns the provider's own usage object, or None if the response body contains no usage."""
        try:
            usage = json.loads(self.body)["usage"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return usage if isinstance(usage, dict) else None


_CURRENT: ContextVar[ResponseCapture | None] = ContextVar("response_capture", default=None)


async def request_uncompressed(request: httpx.Request) -> None:
    """Request hook: asks for an uncompressed response, because the hooks cannot limit the size of decompressed data."""
    request.headers["accept-encoding"] = "identity"


async def capture_response(response: httpx.Response) -> None:
    """Response hook: passes the response body to the `ResponseCapture` of the current task while the body is read."""
    capture = _CURRENT.get()
    if capture is None or not isinstance(response.stream, httpx.AsyncByteStream):
        return
    capture.status = response.status_code
    capture.headers = {name.lower(): value for name, value in response.headers.items()}
    is_compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
    response.stream = _CapturingStream(
        response.stream, capture, MAX_COMPRESSED_BYTES if is_compressed else MAX_BODY_BYTES
    )


class _CapturingStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, capture: ResponseCapture, limit: int) -> None:
        self._stream = stream
        self._capture = capture
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        capture = self._capture
        capture.body.clear()  # drop the body of an earlier response, such as a redirect
        capture.is_complete = False
        async for chunk in self._stream:
            capture.body += chunk
            if len(capture.body) > self._limit:
                capture.is_too_large = True
                raise ResponseTooLarge(f"The response is larger than {self._limit:,} bytes.")
            yield chunk
        capture.is_complete = True

    async def aclose(self) -> None:
        await self._stream.aclose()
