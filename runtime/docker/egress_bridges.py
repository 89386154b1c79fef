"""Connects a container to its egress proxy through `docker exec`, for a container that cannot share a
directory with the proxy.

Each connection uses a bridge, which is a small process in the container. A few bridges are started in
advance, so that a program in the container need not wait for the engine. On each connection, the container first
sends a request, and the proxy then serves this request.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from patchwright.runtime.docker.exec_transport import AttachBridge, relay_to_socket
from patchwright.runtime.egress.proxy import MAX_HEAD_BYTES, EgressProxy
from patchwright.runtime.errors import EngineUnavailable
from patchwright.runtime.stdio_relay import READY_BYTE

SPARE_BRIDGES = 2  # number of bridges that wait for a connection
MAX_BRIDGES = 12  # maximum number of bridges, both waiting and active
_RETRY_DELAY = 1.0  # seconds until a bridge that failed is started again


@asynccontextmanager
async def open_bridges(proxy: EgressProxy, attach: AttachBridge) -> AsyncIterator[None]:
    """Serve the container's connections to a proxy while the context is open."""
    slots = asyncio.Semaphore(MAX_BRIDGES)
    active: set[asyncio.Task[None]] = set()

    async def serve(in_use: asyncio.Event) -> None:
        try:
            async with slots:
                await _serve_bridge(proxy, attach, in_use)
        finally:
            in_use.set()

    async def keep_spare() -> None:
        while True:
            in_use = asyncio.Event()
            task = asyncio.create_task(serve(in_use))
            active.add(task)
            task.add_done_callback(active.discard)
            await in_use.wait()
            if task.done():  # the bridge failed before it was used
                await asyncio.sleep(_RETRY_DELAY)

    spares = [asyncio.create_task(keep_spare()) for _ in range(SPARE_BRIDGES)]
    try:
        yield
    finally:
        tasks = [*spares, *active]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve_bridge(proxy: EgressProxy, attach: AttachBridge, in_use: asyncio.Event) -> None:
    """Wait until a program uses the bridge. Then serve the program's connection until it ends."""
    try:
        local_socket = relay_to_socket(await attach())
    except EngineUnavailable:
        return  # the next action will report this error
    try:
        reader, writer = await asyncio.open_unix_connection(sock=local_socket, limit=MAX_HEAD_BYTES)
    except BaseException:
        local_socket.close()
        raise
    try:
        writer.write(READY_BYTE)
        if initial_data := await reader.read(1):
            in_use.set()
            await proxy.serve((reader, writer), initial_data)
    except OSError:
        pass  # the connection broke
    finally:
        writer.close()
