"""Passes the entries of a conversation's log to all its watchers on this server: the past ones first, then each new
one, in order and once.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from patchwright.resolver.domain import RunId


class EntryReader(Protocol):
    """Reads the entries of a log that all servers share."""

    async def read_entries(self, log: RunId, position: str, *, wait: bool) -> list[tuple[str, str]]: ...


class EventFeeds:
    """The feeds of one server. All watchers of a conversation share one reader."""

    def __init__(self, reader: EntryReader) -> None:
        self._reader = reader
        self._feeds: dict[RunId, _Feed] = {}

    @contextlib.asynccontextmanager
    async def follow(self, log: RunId, after: int = 0) -> AsyncIterator[AsyncIterator[str]]:
        """Yields the entries as JSON, without the first `after` ones. Waits for new entries without end."""
        feed = self._feeds.setdefault(log, _Feed(log, self._reader))
        feed.watchers += 1
        feed.start()
        try:
            yield feed.follow(after)
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                self._feeds.pop(log, None)
                await feed.stop()


class _Feed:
    def __init__(self, log: RunId, reader: EntryReader) -> None:
        self.watchers = 0
        self._log = log
        self._reader = reader
        self._entries: list[str] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._read())
            self._task.add_done_callback(lambda task: self._notify())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def follow(self, after: int) -> AsyncIterator[str]:
        while True:
            changed = self._changed
            while after < len(self._entries):
                yield self._entries[after]
                after += 1
            if self._task is not None and self._task.done():
                self._task.result()  # Raises the reader's error.
            await changed.wait()

    async def _read(self) -> None:
        position = "0"
        while True:
            new = await self._reader.read_entries(self._log, position, wait=True)
            if new:
                position = new[-1][0]
                self._entries += [entry for _, entry in new]
                self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
