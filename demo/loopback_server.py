"""Runs an ASGI application on a free loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:  # circular import
    from patchwright.demo.asgi import AsgiApp, AsgiMessage


SHUTDOWN_GRACE = 2.0  # seconds that responses in progress get when the server stops
TICK_SECONDS = 1.0  # seconds; uvicorn updates the Date header at this interval


class LoopbackUvicorn(uvicorn.Server):
    """A uvicorn server that leaves Ctrl-C to the surrounding program, stops without delay, and leaves no
    tasks behind.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop_requested = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stop_requested.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stop_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if tasks := set(self.server_state.tasks):
            _, late = await asyncio.wait(tasks, timeout=SHUTDOWN_GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for connection in list(self.server_state.connections) if late else ():
                connection.transport.abort()  # the client does not read its response
        await asyncio.sleep(0)  # lets the event loop remove the closed connections

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class LoopbackServer:
    """A server on loopback that runs from `start` to `stop`. Its URL is known before `start`."""

    def __init__(self, app: AsgiApp) -> None:
        # The protocol is named, because asyncio sets TCP_NODELAY only then. Otherwise, each response would
        # wait 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            app, interface="asgi3", lifespan="off", ws="none", http="h11", log_config=None,
            access_log=False, proxy_headers=False, timeout_keep_alive=60,
        )  # fmt: skip
        self._uvicorn = LoopbackUvicorn(config)
        self._running: asyncio.Task[None] | None = None

    @property
    def is_stopping(self) -> bool:
        return bool(self._uvicorn.should_exit)

    async def start(self) -> None:
        self._running = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]))
        while not self._uvicorn.started:
            if self._running.done():
                self._running.result()
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._uvicorn.stop()
        if self._running is not None:
            await self._running

    async def close_connection(self, scope: AsgiMessage, *, abort: bool) -> None:
        """Closes the connection of a request, which ASGI itself cannot do. With `abort`, unsent data is lost."""
        for connection in list(self._uvicorn.server_state.connections):
            if getattr(connection, "client", None) == tuple(scope["client"]):
                transport = connection.transport
                transport.abort() if abort else transport.close()
        # The server must notice the closed connection first. Otherwise it sends a response or logs an error.
        await asyncio.sleep(0)
