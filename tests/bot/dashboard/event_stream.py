"""Reads server-sent events as a browser does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx


class ServerSentEvent(NamedTuple):
    """One server-sent event."""

    name: str
    id: str
    data: dict[str, Any]


class EventStream:
    """An open event stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> ServerSentEvent | None:
        """Returns the next event, or None at the end of the stream."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(30):
            async for line in self._lines:
                if line.startswith(":"):
                    continue
                if not line:
                    if "data" in fields:
                        return ServerSentEvent(
                            fields["event"], fields.get("id", ""), json.loads(fields["data"])
                        )
                    fields.clear()
                    continue
                name, _, value = line.partition(": ")
                fields[name] = value
        return None

    async def entries(self, count: int) -> list[str]:
        """Returns the IDs of the next `count` events with entries."""
        found: list[str] = []
        while len(found) < count and (event := await self.next()) is not None:
            if event.name == "entries":
                found.append(event.id)
        return found

    async def until(self, name: str) -> ServerSentEvent:
        """Returns the next event of this name."""
        while True:
            event = await self.next()
            assert event is not None, f"the stream ended before {name}"
            if event.name == name:
                return event


@asynccontextmanager
async def watch_run(
    browser: httpx.AsyncClient, run: str, *, after: int | None = None, last: str = ""
) -> AsyncIterator[EventStream]:
    """Opens the event stream of a run; `last` is the Last-Event-ID of a reconnecting browser."""
    query = {} if after is None else {"after": str(after)}
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last} if last else {})
    async with browser.stream("GET", f"/runs/{run}/events", params=query, headers=headers) as answer:
        yield EventStream(answer)
