"""A lock between processes, so that two of them do not build the same images."""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

POLL_SECONDS = 0.2


@asynccontextmanager
async def file_lock(directory: Path, on_wait: Callable[[], object]) -> AsyncIterator[None]:
    """Hold the lock of this directory while the context is open. Calls `on_wait` if another process holds the
    lock.

    When the process that holds the lock ends for any reason, the kernel releases the lock. Waiting has no
    timeout.
    """
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    with (directory / "lock").open("wb") as lock:
        has_reported = False
        while not _try_lock(lock):
            if not has_reported:
                on_wait()
            has_reported = True
            await asyncio.sleep(POLL_SECONDS)
        yield


def _try_lock(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
