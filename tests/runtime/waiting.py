"""Waits for what happens, however busy the machine is."""

import asyncio
from collections.abc import Callable

from runtime import processes


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not happened():
            await asyncio.sleep(0.02)


async def gone(entry: str) -> None:
    """No process has this in its environment any more: what was killed needs its turn to die, 0.5 s on a busy core."""
    await until(lambda: processes.with_environment(entry) == [])
