"""An ASGI application on a free port of this machine's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:  # the package imports this module
    from demo.world.asgi import App, Message


GRACE = 2.0  # seconds for the answers that are under way when it stops
SECOND = 1.0  # after which an answer has another date


class Listening(uvicorn.Server):
    """Leaves Ctrl-C to the program around it, ends as soon as it may, and leaves no task behind."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECOND):
                    await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if tasks := set(self.server_state.tasks):
            _, late = await asyncio.wait(tasks, timeout=GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for connection in list(self.server_state.connections) if late else ():
                connection.transport.abort()  # whoever is there does not read
        await asyncio.sleep(0)  # what was closed is gone then

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Loopback:
    """Serves from `start` to `stop`; its address is known before."""

    def __init__(self, app: App) -> None:
        # With its protocol named: asyncio sets TCP_NODELAY on no other, and each answer would wait 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            app, interface="asgi3", lifespan="off", ws="none", http="h11", log_config=None,
            access_log=False, proxy_headers=False, timeout_keep_alive=60,
        )  # fmt: skip
        self._uvicorn = Listening(config)
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

    async def hang_up(self, scope: Message, *, at_once: bool) -> None:
        """Close the connection of a request, for which ASGI has no word; `at_once`: what is not sent yet is lost."""
        for connection in list(self._uvicorn.server_state.connections):
            if getattr(connection, "client", None) == tuple(scope["client"]):
                transport = connection.transport
                transport.abort() if at_once else transport.close()
        await asyncio.sleep(0)  # the server must see that it is gone, else it answers or complains
