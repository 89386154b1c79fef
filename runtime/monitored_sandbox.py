"""A monitored sandbox: it tells the agent which connections were denied, and stops when its disk is full."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from patchwright.runtime.actions import SandboxAction
from patchwright.runtime.egress.policy import ConnectionLog, denial_note
from patchwright.runtime.errors import EngineUnavailable, SandboxDiskFull, SandboxLost
from patchwright.runtime.observations import Observation, ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox
from patchwright.runtime.sandbox import WrapperSandbox

MIN_CHECK_INTERVAL = 2.0  # seconds
# The pause after a measurement is this many times as long as the measurement itself. So measuring does not
# keep the engine busy.
CHECK_TIME_RATIO = 20
_MIB = 1 << 20


class DiskMonitor:
    """Measures the writable layer of one container. It does so from outside, so that no process in the
    container can influence the result.
    """

    def __init__(
        self,
        limit_mb: int,
        measure: Callable[[], Awaitable[int | None]],
        stop: Callable[[], Awaitable[None]],
        interval: float = MIN_CHECK_INTERVAL,
    ) -> None:
        """`measure` returns the size of the layer in bytes, or None if the layer is gone. `stop` stops the
        container.

        `interval` is the number of seconds before the first measurement. It is also the minimum number of
        seconds between two measurements.
        """
        self._limit = limit_mb
        self._measure = measure
        self._stop = stop
        self._interval = interval
        self.error: SandboxDiskFull | None = None

    @asynccontextmanager
    async def monitor(self) -> AsyncIterator[asyncio.Task[None]]:
        """Measure repeatedly while the context is open. The longer a measurement took, the longer is the pause
        after it.
        """
        task = asyncio.create_task(self._check_repeatedly())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _check_repeatedly(self) -> None:
        pause = self._interval
        while True:
            await asyncio.sleep(pause)
            started_at = time.monotonic()
            try:
                size = await self._measure()
            except EngineUnavailable:
                size = 0  # If the engine remains unavailable, the next action raises this error.
            if size is None:
                return
            if size > self._limit * _MIB:
                self.error = SandboxDiskFull(
                    f"the sandbox wrote {size >> 20:,} MiB of files, more than `disk_mb` "
                    f"({self._limit:,}), and was stopped"
                )
                await self._stop()
                return
            pause = max(self._interval, CHECK_TIME_RATIO * (time.monotonic() - started_at))


class MonitoredSandbox(WrapperSandbox):
    """A sandbox that tells the agent about denied connections and a full disk."""

    def __init__(
        self, sandbox: RemoteSandbox, connection_log: ConnectionLog | None, disk: DiskMonitor
    ) -> None:
        """`connection_log` is None if the sandbox is offline. An offline sandbox has no connections that
        could be denied.
        """
        super().__init__(sandbox)
        self._remote = sandbox
        self._connection_log = connection_log
        self._disk = disk
        self._reported_hosts: set[str] = set()
        """Denied hosts that were already reported to the agent."""

    async def act(self, action: SandboxAction) -> Observation:
        try:
            observation = await self._sandbox.act(action)
        except SandboxLost as error:
            if self._disk.error is not None:
                raise self._disk.error from error
            raise
        if self._connection_log is None or not isinstance(observation, ShellResult):
            return observation
        denied = self._connection_log.take_denied()
        new = {host: reason for host, reason in denied.items() if host not in self._reported_hosts}
        self._reported_hosts |= new.keys()
        notes = (observation.note, denial_note(new))
        return observation.model_copy(update={"note": "; ".join(filter(None, notes)) or None})

    def disconnect(self) -> None:
        """Close the connection. The next action waits until the other side connects again."""
        self._remote.disconnect()
