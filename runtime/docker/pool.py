"""A warm pool: what takes long to start is started ahead, and handed out at once."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from runtime.errors import SandboxError

log = logging.getLogger(__name__)

OLDEST = 1800.0  # seconds; what has waited longer has too little left of its life


class Startable(Protocol):
    """Something that was started, may have died since, and must be ended."""

    async def alive(self) -> bool: ...
    async def end(self) -> None: ...


_Item = TypeVar("_Item", bound=Startable)


class Pool(Generic[_Item]):
    """Keeps `size` items ready; the next is started when one is taken."""

    def __init__(
        self,
        size: int,
        start: Callable[[], Awaitable[_Item]],
        oldest: float = OLDEST,
        pause: float = 0.0,
    ) -> None:
        """`pause`: seconds until what was taken is replaced, so that its first work goes before."""
        self._size = size
        self._start = start
        self._oldest = oldest
        self._pause = pause
        self._ready: list[tuple[float, _Item]] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False

    def fill(self) -> None:
        """Start what is missing, in the background."""
        missing = 0 if self._closed else self._size - len(self._ready) - len(self._starting)
        for _ in range(missing):
            task = asyncio.create_task(self._add())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def take(self) -> _Item | None:
        """One that is ready and alive; None: there is none, so start one yourself."""
        try:
            while self._ready:
                since, item = self._ready.pop(0)
                if time.monotonic() - since < self._oldest and await item.alive():
                    return item
                await self._end(item)
            return None
        finally:
            asyncio.get_running_loop().call_later(self._pause, self.fill)

    async def close(self) -> None:
        """End all that nobody took."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        while self._ready:
            await self._end(self._ready.pop()[1])

    async def _add(self) -> None:
        try:
            item = await self._start()
        except SandboxError as error:  # whoever needs one starts it himself, and hears why it fails
            log.warning("sandbox not started ahead", extra={"error": str(error)[:500]})
            return
        self._ready.append((time.monotonic(), item))

    async def _end(self, item: _Item) -> None:
        try:
            await item.end()
        except SandboxError as error:
            log.warning("sandbox of the pool not ended", extra={"error": str(error)[:500]})
