"""The small part of ASGI that the fake server uses."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

# ASGI defines its messages as dictionaries with values of any type.
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiMessage, Receive, Send], Awaitable[None]]


def read_headers(scope: AsgiMessage) -> dict[str, str]:
    """Returns the headers of a request, with names in lowercase."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


class ClientDisconnected(Exception):
    """The client disconnected, so the request is not handled."""


async def respond(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Sends a whole response at once."""
    lines = {"content-length": str(len(body)), **headers}
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive) -> bytes:
    """Returns the whole body of a request. Raises ClientDisconnected if the client disconnects before the end
    of the body.
    """
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def discard(message: AsgiMessage) -> None:
    """Drops a message of a response, to simulate a lost response."""
