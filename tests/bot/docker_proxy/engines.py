"""Sends raw requests to the engine or the proxy."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from patchwright.runtime.egress_forwarder import relay

ENGINE = Path("/var/run/docker.sock")
IMAGE = "debian:bookworm-slim"


async def send_raw(socket_path: Path, sent: bytes) -> bytes:
    """Sends bytes and returns everything that is received."""
    reader, writer = await asyncio.open_unix_connection(socket_path)
    writer.write(sent)
    response = b""
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        async with asyncio.timeout(2):
            while piece := await reader.read(1 << 16):
                response += piece
    writer.close()
    return response


class _UnixHttpConnection(http.client.HTTPConnection):
    def __init__(self, socket_path: Path) -> None:
        super().__init__("x", timeout=60)
        self._socket_path = socket_path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._socket_path))


async def send_request(
    socket_path: Path, request: str, data: bytes = b"", kind: str = "application/json", **headers: str
) -> tuple[int, bytes]:
    """Sends a request `METHOD target`; returns status and body of the response."""

    def send() -> tuple[int, bytes]:
        connection = _UnixHttpConnection(socket_path)
        try:
            connection.request(*request.split(" ", 1), data, {"Content-Type": kind, **headers})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    return await asyncio.to_thread(send)


async def create_container(socket_path: Path, name: str, description: bytes) -> str:
    """Creates a container and returns its ID."""
    status, body = await send_request(socket_path, f"POST /v1.41/containers/create?name={name}", description)
    assert status == 201, body
    return str(json.loads(body)["Id"])


async def remove_container(container: str) -> None:
    await send_request(ENGINE, f"DELETE /v1.41/containers/{container}?force=1&v=1")


@contextlib.asynccontextmanager
async def racing_engine(socket_path: Path, between: Callable[[], Any]) -> AsyncIterator[Path]:
    """Forwards another socket to the engine, and calls `between` before the second connection."""
    connections = 0

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 2:
            await asyncio.to_thread(between)
        await relay((reader, writer), await asyncio.open_unix_connection(ENGINE))

    async with await asyncio.start_unix_server(forward, socket_path):
        yield socket_path
