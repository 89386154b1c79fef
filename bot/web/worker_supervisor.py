"""Runs a worker process next to the server, and restarts it whenever it exits."""

import asyncio
import logging
import subprocess
import time
from collections.abc import Mapping, Sequence

from patchwright.bot.child_process import WORKER_READY_PREFIX, stop_process, with_parent_death_signal
from patchwright.bot.errors import WorkerFailed

log = logging.getLogger(__name__)

STOP_TIMEOUT_SECONDS = 40.0  # How long running jobs may take to stop and save their work.
# Seconds before a worker that exited is restarted. The time doubles with each restart.
FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 60.0
STABLE_SECONDS = 60.0  # After a worker has run this long, the restart delay starts again at its first value.


class WorkerSupervisor:
    """Keeps one worker process running."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """If `command` is empty, no worker is run: the workers run elsewhere."""
        self.command = command
        self._environment = environment
        self.can_start = asyncio.Event()
        """Set by the server when Redis responds. A worker that starts earlier would exit."""
        self.ready = asyncio.Event()
        """Set when the first worker is ready for jobs."""

    async def run(self) -> None:
        """Runs a worker, and restarts it whenever it exits, until canceled. Raises WorkerFailed if the first
        worker does not start.
        """
        if not self.command:  # Workers run elsewhere.
            self.ready.set()
            await asyncio.Event().wait()
        await self.can_start.wait()
        delay = FIRST_RESTART_SECONDS
        while True:
            started = time.monotonic()
            worker = await asyncio.create_subprocess_exec(
                *with_parent_death_signal(self.command),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal must not reach the worker, because the server stops the receiver first.
                start_new_session=True,
            )
            try:
                assert worker.stdout is not None
                async for line in worker.stdout:
                    if line.startswith(WORKER_READY_PREFIX.encode()):
                        if self.ready.is_set():
                            log.info("worker ready again")
                        self.ready.set()
                code = await worker.wait()
            finally:
                await stop_process(worker, STOP_TIMEOUT_SECONDS)
            if not self.ready.is_set():
                raise WorkerFailed(code)
            log.error("worker exited", extra={"exit_code": code})
            delay = (
                FIRST_RESTART_SECONDS
                if time.monotonic() - started > STABLE_SECONDS
                else min(2 * delay, MAX_RESTART_SECONDS)
            )
            await asyncio.sleep(delay)
