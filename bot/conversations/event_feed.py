"""Passes the entries of conversations' logs to all their watchers on this server: the past ones first, then each new
one, in order and once.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.resolver.domain import RunId


class EventFeeds:
    """The feeds of one server. A single reader, with one connection to Redis, waits for the entries of all of them."""

    def __init__(self, reader: ConversationRecords) -> None:
        self._reader = reader
        self._feeds: dict[RunId, _Feed] = {}
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def follow(self, log: RunId, after: int = 0) -> AsyncIterator[AsyncIterator[str]]:
        """Yields the entries as JSON, without the first `after` ones. Waits for new entries without end. Raises
        QueueDown.
        """
        if (feed := self._feeds.get(log)) is None:
            feed = self._feeds[log] = _Feed()
            self._restart()
        feed.watchers += 1
        try:
            yield feed.follow(after)
        finally:
            feed.watchers -= 1
            if not feed.watchers and self._feeds.get(log) is feed:
                del self._feeds[log]
                if not self._feeds and self._task is not None:
                    self._task.cancel()

    def _restart(self) -> None:
        """Lets the reader wait for the entries of a new feed, too. An interrupted read has changed no feed."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._read())
        self._task.add_done_callback(self._fail)

    async def _read(self) -> None:
        while True:
            positions = {log: feed.position for log, feed in self._feeds.items()}
            for log, entries in (await self._reader.wait_for_entries(positions)).items():
                feed = self._feeds.get(log)
                if feed is not None and feed.position == positions[log]:
                    feed.add(entries)

    def _fail(self, task: asyncio.Task[None]) -> None:
        """Passes the reader's error to all watchers. They connect again, to new feeds."""
        if task is self._task and not task.cancelled() and (error := task.exception()):
            feeds, self._feeds = self._feeds, {}
            for feed in feeds.values():
                feed.fail(error)


class _Feed:
    def __init__(self) -> None:
        self.watchers = 0
        self.position = "0"
        """Position of the last entry in the stream."""
        self._entries: list[str] = []
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    async def follow(self, after: int) -> AsyncIterator[str]:
        while True:
            changed = self._changed
            while after < len(self._entries):
                yield self._entries[after]
                after += 1
            if self._error is not None:
                raise self._error
            await changed.wait()

    def add(self, entries: list[tuple[str, str]]) -> None:
        self.position = entries[-1][0]
        self._entries += [entry for _, entry in entries]
        self._notify()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
