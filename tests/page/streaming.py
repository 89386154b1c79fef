"""Server-sent events as a browser reads them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx


class Told(NamedTuple):
    """One event."""

    name: str
    id: str
    data: dict[str, Any]


class Watch:
    """A stream that is being read."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Told | None:
        """The next event; None: the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(30):
            async for line in self._lines:
                if line.startswith(":"):
                    continue
                if not line:
                    if "data" in fields:
                        return Told(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
                    fields.clear()
                    continue
                name, _, value = line.partition(": ")
                fields[name] = value
        return None

    async def entries(self, count: int) -> list[str]:
        """Ids of the next so many events that tell of entries."""
        found: list[str] = []
        while len(found) < count and (told := await self.next()) is not None:
            if told.name == "entries":
                found.append(told.id)
        return found

    async def until(self, name: str) -> Told:
        """The next event of this name."""
        while True:
            told = await self.next()
            assert told is not None, f"the stream ended before {name}"
            if told.name == name:
                return told


@asynccontextmanager
async def watching(
    browser: httpx.AsyncClient, run: str, *, after: int | None = None, last: str = ""
) -> AsyncIterator[Watch]:
    """Watch a run; `last`: as a browser says it whose connection broke."""
    query = {} if after is None else {"after": str(after)}
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last} if last else {})
    async with browser.stream("GET", f"/runs/{run}/events", params=query, headers=headers) as answer:
        yield Watch(answer)
