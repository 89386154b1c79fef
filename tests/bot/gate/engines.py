"""What is said to the engine or the gate as it stands, byte by byte."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from runtime.forward import join

ENGINE = Path("/var/run/docker.sock")
IMAGE = "debian:bookworm-slim"


async def raw(place: Path, sent: bytes) -> bytes:
    """All that is answered to these bytes."""
    reader, writer = await asyncio.open_unix_connection(place)
    writer.write(sent)
    answer = b""
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        async with asyncio.timeout(2):
            while piece := await reader.read(1 << 16):
                answer += piece
    writer.close()
    return answer


class _Plain(http.client.HTTPConnection):
    def __init__(self, place: Path) -> None:
        super().__init__("x", timeout=60)
        self._place = place

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._place))


async def ask(
    place: Path, asked: str, body: bytes = b"", kind: str = "application/json", **headers: str
) -> tuple[int, bytes]:
    """Status and body of what is answered to `METHOD target`."""

    def talk() -> tuple[int, bytes]:
        there = _Plain(place)
        try:
            there.request(*asked.split(" ", 1), body, {"Content-Type": kind, **headers})
            answer = there.getresponse()
            return answer.status, answer.read()
        finally:
            there.close()

    return await asyncio.to_thread(talk)


async def made(place: Path, name: str, described: bytes) -> str:
    """The id of a new container."""
    status, said = await ask(place, f"POST /v1.41/containers/create?name={name}", described)
    assert status == 201, said
    return str(json.loads(said)["Id"])


async def gone(container: str) -> None:
    await ask(ENGINE, f"DELETE /v1.41/containers/{container}?force=1&v=1")


@contextlib.asynccontextmanager
async def disturbed(place: Path, between: Callable[[], Any]) -> AsyncIterator[Path]:
    """The engine at another socket, where something happens between the first question and the second."""
    asked = 0

    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            await asyncio.to_thread(between)
        await join((reader, writer), await asyncio.open_unix_connection(ENGINE))

    async with await asyncio.start_unix_server(passing, place):
        yield place
