"""A fake internet, and a client of the egress proxy."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.runtime.egress.proxy import EgressProxy
from patchwright.runtime.egress_forwarder import StreamPair
from patchwright.runtime.egress_policy import ConnectionLog
from tests.runtime.fake_internet import Internet, internet


@pytest.fixture
async def net() -> AsyncIterator[Internet]:
    async with internet() as made:
        yield made


class Client:
    """A sandbox as a client of its proxy."""

    def __init__(self, path: Path, connection_log: ConnectionLog) -> None:
        self.path = path
        self.connection_log = connection_log

    async def dial(self) -> StreamPair:
        return await asyncio.open_unix_connection(self.path)

    async def ask(self, data: bytes) -> bytes:
        """Send data and return the complete response."""
        reader, writer = await self.dial()
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    async def tunnel(self, host: str, port: int = 443) -> tuple[bytes, StreamPair]:
        """Return the first line of the response to CONNECT, and the connection."""
        stream = await self.dial()
        stream[1].write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        head = await asyncio.wait_for(stream[0].readuntil(b"\r\n\r\n"), 10)
        return head.split(b"\r\n")[0].removeprefix(b"HTTP/1.1 "), stream

    async def status(self, host: str, port: int = 443) -> bytes:
        line, (_, writer) = await self.tunnel(host, port)
        writer.close()
        return line

    def refused(self) -> dict[str, str]:
        return {visit.host: visit.denied for visit in self.connection_log.take() if visit.denied}


@pytest.fixture
async def client(net: Internet, short_tmp: Path) -> AsyncIterator[Client]:
    async with EgressProxy(net.egress()).listen(short_tmp / "e") as connection_log:
        yield Client(short_tmp / "e", connection_log)
