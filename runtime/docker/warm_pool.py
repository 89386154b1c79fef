"""A warm pool: it starts sandboxes in advance, so that a run does not have to wait for their start."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from patchwright.runtime.errors import SandboxError

log = logging.getLogger(__name__)

MAX_AGE = 1800.0  # maximum age in seconds; an older item would soon reach the end of its lifetime


class PoolItem(Protocol):
    """An item of a warm pool, such as a sandbox. The caller that takes the item must close it."""

    async def is_alive(self) -> bool: ...
    async def close(self) -> None: ...


_Item = TypeVar("_Item", bound=PoolItem)


class WarmPool(Generic[_Item]):
    """Keeps `size` items ready. Starts a new item when one is taken."""

    def __init__(
        self,
        size: int,
        start: Callable[[], Awaitable[_Item]],
        max_age: float = MAX_AGE,
        refill_delay: float = 0.0,
    ) -> None:
        """`refill_delay` is the time in seconds before a new item replaces a taken item. Starting it at once would
        slow down the use of the taken item.
        """
        self._size = size
        self._start = start
        self._max_age = max_age
        self._refill_delay = refill_delay
        self._ready: list[tuple[float, _Item]] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False

    def fill(self) -> None:
        """Start the missing items in the background."""
        missing = 0 if self._closed else self._size - len(self._ready) - len(self._starting)
        for _ in range(missing):
            task = asyncio.create_task(self._start_item())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def take(self) -> _Item | None:
        """Return an item that is ready and alive. If there is none, return None; the caller must then start an
        item itself.
        """
        try:
            while self._ready:
                started_at, item = self._ready.pop(0)
                if time.monotonic() - started_at < self._max_age and await item.is_alive():
                    return item
                await self._close_item(item)
            return None
        finally:
            asyncio.get_running_loop().call_later(self._refill_delay, self.fill)

    async def close(self) -> None:
        """Close all items that were not taken."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        while self._ready:
            await self._close_item(self._ready.pop()[1])

    async def _start_item(self) -> None:
        try:
            item = await self._start()
        # The next caller of `open` starts a sandbox itself. If this fails, too, that caller gets the error.
        except SandboxError as error:
            log.warning("warm sandbox not started", extra={"error": str(error)[:500]})
            return
        self._ready.append((time.monotonic(), item))

    async def _close_item(self, item: _Item) -> None:
        try:
            await item.close()
        except SandboxError as error:
            log.warning("warm sandbox not closed", extra={"error": str(error)[:500]})
