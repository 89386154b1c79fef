"""One process at a time: two that make the same images would do all of it twice."""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

LOOK_SECONDS = 0.2


@asynccontextmanager
async def alone(directory: Path, waits: Callable[[], object]) -> AsyncIterator[None]:
    """Nobody else is in here by this directory; `waits` is called if somebody was.

    The kernel lets go of it with a process, however that ends. How long they stay is theirs to limit.
    """
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    with (directory / "lock").open("wb") as lock:
        told = False
        while not _taken(lock):
            if not told:
                waits()
            told = True
            await asyncio.sleep(LOOK_SECONDS)
        yield


def _taken(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
