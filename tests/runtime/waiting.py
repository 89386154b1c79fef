"""Waits for conditions, however busy the machine is."""

import asyncio
from collections.abc import Callable

from patchwright.runtime import processes


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not happened():
            await asyncio.sleep(0.02)


async def gone(entry: str) -> None:
    """Wait until no process has this in its environment; a killed one takes 0.5 s to die on a busy core."""
    await until(lambda: processes.find_by_environment(entry) == [])
