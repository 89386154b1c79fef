"""A monitored sandbox: it tells the agent which connections were denied, and stops when its disk is full."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple, Protocol

from patchwright.runtime.actions import BrowseLinks, SandboxAction
from patchwright.runtime.egress_policy import ConnectionLog, denial_note
from patchwright.runtime.errors import EngineUnavailable, SandboxDiskFull, SandboxLost
from patchwright.runtime.observations import Observation, ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox
from patchwright.runtime.sandbox import WrapperSandbox

MIN_CHECK_INTERVAL = 2.0  # seconds
# The pause after a measurement is this many times as long as the measurement itself. So measuring does not
# keep the engine busy.
CHECK_TIME_RATIO = 20
_MIB = 1 << 20


class ContainerUsage(NamedTuple):
    """The disk usage and the state of a container, as the engine reports them."""

    size: int
    """Size of the writable layer in bytes."""
    is_paused: bool


class ContainerMonitor:
    """Checks from outside whether a container's disk is full and whether the container is paused. No process in
    the container can influence the result.
    """

    def __init__(
        self,
        disk_mb: int,
        measure: Callable[[], Awaitable[ContainerUsage | None]],
        stop: Callable[[], Awaitable[None]],
        interval: float = MIN_CHECK_INTERVAL,
    ) -> None:
        """`measure` asks the engine for the container's usage, and returns None if the container is gone. `stop`
        stops the container.

        `interval` is the number of seconds before the first measurement. It is also the minimum number of
        seconds between two measurements.
        """
        self._limit = disk_mb
        self._measure = measure
        self._stop = stop
        self._interval = interval
        self._pending_actions = 0
        self.error: SandboxLost | SandboxDiskFull | None = None

    @contextmanager
    def expect_response(self) -> Iterator[None]:
        """Expect responses from the container while the context is open. If the container stays paused in this
        time, `monitor` stops it, because a paused container cannot respond.

        At other times, a pause is normal. For example, the engine pauses a container to commit an image.
        """
        self._pending_actions += 1
        try:
            yield
        finally:
            self._pending_actions -= 1

    @asynccontextmanager
    async def monitor(self) -> AsyncIterator[asyncio.Task[None]]:
        """Measure the container's usage repeatedly while the context is open. A slow measurement is followed by
        a longer pause.
        """
        task = asyncio.create_task(self._check_repeatedly())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _check_repeatedly(self) -> None:
        pause, was_paused = self._interval, False
        while True:
            await asyncio.sleep(pause)
            started_at = time.monotonic()
            try:
                usage = await self._measure()
            except EngineUnavailable:
                usage = ContainerUsage(0, is_paused=False)
                # If the engine remains unavailable, the next action raises this error.
            if usage is None:
                return
            is_paused = usage.is_paused and self._pending_actions > 0
            self.error = self._find_error(usage.size, is_paused=is_paused and was_paused)
            if self.error is not None:
                await self._stop()
                return
            was_paused = is_paused
            pause = max(self._interval, CHECK_TIME_RATIO * (time.monotonic() - started_at))

    def _find_error(self, size: int, *, is_paused: bool) -> SandboxLost | SandboxDiskFull | None:
        if size > self._limit * _MIB:
            return SandboxDiskFull(
                f"the sandbox wrote {size >> 20:,} MiB of files, more than `disk_mb` "
                f"({self._limit:,}), and was stopped"
            )
        return SandboxLost("the container was paused") if is_paused else None


class LinkGrants(Protocol):
    """Permits reading hosts that a person linked."""

    def allow(self, hosts: Iterable[str]) -> str:
        """Allows reading these hosts with the returned key."""

    def deny(self) -> None: ...


class SandboxNetwork(Protocol):
    """The network access of one sandbox."""

    connection_log: ConnectionLog

    @property
    def links(self) -> LinkGrants: ...


class MonitoredSandbox(WrapperSandbox):
    """A sandbox that tells the agent about denied connections and a full disk."""

    def __init__(
        self, sandbox: RemoteSandbox, network: SandboxNetwork | None, monitor: ContainerMonitor
    ) -> None:
        """`network` is None if the sandbox is offline. An offline sandbox has no connections that could be denied."""
        super().__init__(sandbox)
        self._remote = sandbox
        self._network = network
        self._connection_log = network.connection_log if network else None
        self._monitor = monitor
        self._reported_hosts: set[str] = set()
        """Denied hosts that were already reported to the agent."""

    async def act(self, action: SandboxAction) -> Observation:
        if not isinstance(action, BrowseLinks) or self._network is None:
            return await self._act(action)
        # The key is valid only during this action, and no other program in the sandbox knows it.
        key = self._network.links.allow(action.hosts)
        try:
            return await self._act(action.model_copy(update={"key": key}))
        finally:
            self._network.links.deny()

    async def _act(self, action: SandboxAction) -> Observation:
        try:
            with self._monitor.expect_response():
                observation = await self._sandbox.act(action)
        except SandboxLost as error:
            if self._monitor.error is not None:
                raise self._monitor.error from error
            raise
        if self._connection_log is None or not isinstance(observation, ShellResult):
            return observation
        denied = self._connection_log.take_denied()
        new = {host: reason for host, reason in denied.items() if host not in self._reported_hosts}
        self._reported_hosts |= new.keys()
        notes = (observation.note, denial_note(new))
        return observation.model_copy(update={"note": "; ".join(filter(None, notes)) or None})

    def disconnect(self) -> None:
        """Close the connection. The next action waits until the container connects again."""
        self._remote.disconnect()
