"""A sandbox under watch: what it does by the network is told to its agent, and a full disk ends it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from runtime.actions import SandboxAction
from runtime.egress.egress import Ledger, remark
from runtime.errors import DiskFull, EngineUnavailable, SandboxLost
from runtime.observations import Observation, Ran
from runtime.remote import RemoteSandbox
from runtime.sandbox import Around

FIRST_LOOK = 2.0  # seconds
SHARE = 20  # a look at the disk may take one part in so many of the engine's time
_MIB = 1 << 20


class Disk:
    """The writable layer of one container, looked at from outside: nothing in it can stand in the way."""

    def __init__(
        self,
        limit_mb: int,
        size: Callable[[], Awaitable[int | None]],
        end: Callable[[], Awaitable[None]],
        first_look: float = FIRST_LOOK,
    ) -> None:
        """`size` tells the bytes that the layer takes, None when it is gone; `end` ends its container.

        `first_look`: seconds until it is looked at, and between two looks at least.
        """
        self._limit = limit_mb
        self._size = size
        self._end = end
        self._first_look = first_look
        self.full: DiskFull | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[asyncio.Task[None]]:
        """Look again and again, the less often the longer a look takes."""
        watch = asyncio.create_task(self._watch())
        try:
            yield watch
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        pause = self._first_look
        while True:
            await asyncio.sleep(pause)
            begun = time.monotonic()
            try:
                size = await self._size()
            except EngineUnavailable:
                size = 0  # the next action will tell; or it comes back
            if size is None:
                return
            if size > self._limit * _MIB:
                self.full = DiskFull(
                    f"the sandbox wrote {size >> 20:,} MiB of files where `disk_mb` allows {self._limit:,}, "
                    "and was ended"
                )
                await self._end()
                return
            pause = max(self._first_look, SHARE * (time.monotonic() - begun))


class Watched(Around):
    """A sandbox whose agent hears what was refused, and why it ended."""

    def __init__(self, sandbox: RemoteSandbox, ledger: Ledger | None, disk: Disk) -> None:
        """`ledger` None: it is not online, and nothing can be refused."""
        super().__init__(sandbox)
        self._machine = sandbox
        self._ledger = ledger
        self._disk = disk

    async def act(self, action: SandboxAction) -> Observation:
        try:
            observation = await self._sandbox.act(action)
        except SandboxLost as error:
            if self._disk.full is not None:
                raise self._disk.full from error
            raise
        if self._ledger is None or not isinstance(observation, Ran):
            return observation
        notes = (observation.note, remark(self._ledger.take_refused()))
        return observation.model_copy(update={"note": "; ".join(filter(None, notes)) or None})

    def hang_up(self) -> None:
        """Drop the connection; the next action waits for the other side to dial again."""
        self._machine.hang_up()
