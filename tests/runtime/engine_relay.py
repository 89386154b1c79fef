"""A relay to the Docker engine that can be cut off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ENGINE = "/var/run/docker.sock"


class Relay:
    """Relays connections to the Docker engine until it is cut off."""

    def __init__(self) -> None:
        self._lines: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @asynccontextmanager
    async def at(self, path: Path | None) -> AsyncIterator[str]:
        """Listen on a Unix socket, or on a loopback port. Yields the engine's URL."""
        if path is not None:
            self._server = await asyncio.start_unix_server(self._serve, path)
            url = f"unix://{path}"
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            url = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        try:
            yield url
        finally:
            await self.cut()

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for line in self._lines:
            line.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_unix_connection(ENGINE)
        self._lines += [writer, onward]
        await asyncio.gather(_copy(reader, onward), _copy(there, writer))
        writer.close()
        onward.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
