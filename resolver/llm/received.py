"""What came back over the wire: counted, bounded, and kept for when no reply can be made of it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any

import httpx

MAX_REPLY = 32 << 20  # bytes; the longest reply of any model is far below
MAX_PACKED = 256 << 10  # bytes of a reply that is compressed though we asked that it be not: it may be a bomb


class TooLong(httpx.TransportError):
    """The reply is longer than any that a model gives."""


class Received:
    """The response to one request."""

    def __init__(self) -> None:
        self.status = 0
        """0: none came."""
        self.headers: dict[str, str] = {}
        """Names in small letters."""
        self.body = bytearray()
        self.whole = False
        self.too_long = False

    @property
    def problem(self) -> str | None:
        """What was wrong with how it came, if that is known."""
        if self.cut:
            return f"the reply breaks off after {len(self.body):,} bytes"
        return None

    def hear(self, details: Mapping[str, Any]) -> None:
        """litellm calls this before the request and after the response, also where no hook hears it."""
        raw = details.get("original_response")
        if not self.status and isinstance(raw, str):
            self.body = bytearray(raw.encode("utf-8", "replace"))

    def __enter__(self) -> "Received":
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)

    @property
    def cut(self) -> bool:
        """Whether it began well and ended early: the provider had done its work, and will bill it."""
        return self.status == 200 and not self.whole and len(self.body) > 0

    def usage(self) -> dict[str, Any] | None:
        """What it says was used, in the provider's own words; None when it says nothing."""
        try:
            used = json.loads(self.body)["usage"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return used if isinstance(used, dict) else None


_CURRENT: ContextVar[Received | None] = ContextVar("received", default=None)


async def ask_plainly(request: httpx.Request) -> None:
    """Request hook: a compressed reply could not be bounded."""
    request.headers["accept-encoding"] = "identity"


async def listen(response: httpx.Response) -> None:
    """Response hook: the body goes through the `Received` of this task."""
    received = _CURRENT.get()
    if received is None or not isinstance(response.stream, httpx.AsyncByteStream):
        return
    received.status = response.status_code
    received.headers = {name.lower(): value for name, value in response.headers.items()}
    packed = response.headers.get("content-encoding", "identity").lower() != "identity"
    response.stream = _Bounded(response.stream, received, MAX_PACKED if packed else MAX_REPLY)


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, received: Received, limit: int) -> None:
        self._stream = stream
        self._received = received
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = self._received
        received.body.clear()  # another response than the one before, such as after a redirect
        received.whole = False
        async for chunk in self._stream:
            received.body += chunk
            if len(received.body) > self._limit:
                received.too_long = True
                raise TooLong(f"The reply is longer than {self._limit:,} bytes.")
            yield chunk
        received.whole = True

    async def aclose(self) -> None:
        await self._stream.aclose()
