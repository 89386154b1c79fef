"""The few words of ASGI that the stand-in speaks."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

# Dictionaries of anything: that is how ASGI has it.
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def fields(scope: Message) -> dict[str, str]:
    """A request's headers, names in lower case."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


class HungUp(Exception):
    """Whoever asked is gone: nothing is done."""


async def respond(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """A whole answer at once."""
    lines = {"content-length": str(len(body)), **headers}
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def whole_body(receive: Receive) -> bytes:
    """All of a request's body. Raises HungUp when its sender goes before that."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def nowhere(message: Message) -> None:
    """Where a lost response goes."""
