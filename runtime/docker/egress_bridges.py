"""The proxy of a sandbox that shares no directory with us: its connections come through `docker exec`.

A few bridges wait ahead, so that a program inside does not wait for the engine to start one. What comes first over
a bridge comes from the container: it is the head of a request, and from then on the proxy's.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runtime.bridge import READY
from runtime.docker.exec_transport import Attach, pumped
from runtime.egress.proxy import HEAD, Proxy
from runtime.errors import EngineUnavailable

AHEAD = 2  # bridges that wait; each is a small process in the container
AT_A_TIME = 12  # bridges that wait or work
_PAUSE = 1.0  # seconds until a bridge that broke off, or was not to be had, is tried again


@asynccontextmanager
async def bridging(proxy: Proxy, attach: Attach) -> AsyncIterator[None]:
    """Let connections come to a proxy while the context lasts."""
    room = asyncio.Semaphore(AT_A_TIME)
    working: set[asyncio.Task[None]] = set()

    async def lead(taken: asyncio.Event) -> None:
        try:
            async with room:
                await _lead(proxy, attach, taken)
        finally:
            taken.set()

    async def wait() -> None:
        while True:
            taken = asyncio.Event()
            work = asyncio.create_task(lead(taken))
            working.add(work)
            work.add_done_callback(working.discard)
            await taken.wait()
            if work.done():  # nobody took it: it broke off
                await asyncio.sleep(_PAUSE)

    waiting = [asyncio.create_task(wait()) for _ in range(AHEAD)]
    try:
        yield
    finally:
        tasks = [*waiting, *working]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _lead(proxy: Proxy, attach: Attach, taken: asyncio.Event) -> None:
    """One bridge: wait until it is taken, then serve it to its end."""
    try:
        near = pumped(await attach())
    except EngineUnavailable:
        return  # the next action will tell
    try:
        reader, writer = await asyncio.open_unix_connection(sock=near, limit=HEAD)
    except BaseException:
        near.close()
        raise
    try:
        writer.write(READY)
        if first := await reader.read(1):
            taken.set()
            await proxy.serve((reader, writer), first)
    except OSError:
        pass  # it broke off
    finally:
        writer.close()
