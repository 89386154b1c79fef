"""Connects to the server in a container through `docker exec`. Used for an engine that is remote or runs in a
VM.

Such an engine cannot share a directory with this machine. The server listens in the container. For each
connection, the engine starts a bridge process in the container. The host never opens anything that the
container controls.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from pydantic import ValidationError

from patchwright.runtime.docker.build_context import APP_DIR, PYTHON
from patchwright.runtime.errors import SandboxLost
from patchwright.runtime.remote_sandbox import HELLO_TIMEOUT, SandboxTransport, StreamPair
from patchwright.runtime.stdio_relay import BOOTSTRAP_CODE, READY_BYTE
from patchwright.runtime.wire_protocol import (
    MAX_HELLO_BYTES,
    PROTOCOL_VERSION,
    FrameTooLarge,
    Hello,
    read_frame,
)

BRIDGE_COMMAND = (PYTHON, "-I", "-c", BOOTSTRAP_CODE, APP_DIR)
BRIDGE_USER = "0"
"""The user id of bridge processes. No command in the sandbox runs as this user, so the server knows that a
connection from this user is from the host.
"""
_CHUNK_SIZE = 1 << 16  # bytes
_STDOUT = 1  # stream number in the engine's frames


class ExecStream(Protocol):
    """The stream that the engine's client returns for an attached process. It behaves like a socket."""

    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> object: ...
    def close(self) -> object: ...


AttachBridge = Callable[[], Awaitable[ExecStream]]
"""Starts a bridge in the container. Returns the stream that is attached to the bridge."""


class ExecTransport(SandboxTransport):
    """Connects to the server of one container."""

    def __init__(self, attach: AttachBridge) -> None:
        super().__init__()
        self._attach = attach
        self._connect_lock = asyncio.Lock()

    async def get_connection(self, timeout: float) -> StreamPair:
        """Return the live connection. Raises TimeoutError if there is none within `timeout` seconds."""
        async with asyncio.timeout(timeout), self._connect_lock:
            while self._connection is None:
                if (connection := await self._connect()) is None:
                    await asyncio.sleep(0.1)
                self._connection = connection
            return self._connection

    async def _connect(self) -> StreamPair | None:
        local_socket = relay_to_socket(await self._attach())
        try:
            reader, writer = await asyncio.open_unix_connection(sock=local_socket)
        except BaseException:
            local_socket.close()
            raise
        try:
            writer.write(READY_BYTE)
            async with asyncio.timeout(HELLO_TIMEOUT):
                hello = Hello.model_validate_json(await read_frame(reader, MAX_HELLO_BYTES))
        except (TimeoutError, ValidationError, FrameTooLarge, asyncio.IncompleteReadError, OSError):
            writer.close()
            return None
        except BaseException:
            writer.close()
            raise
        if hello.version != PROTOCOL_VERSION:
            writer.close()
            raise SandboxLost("the server in the container uses another version of the protocol")
        self.hello = hello
        return reader, writer


def relay_to_socket(stream: ExecStream) -> socket.socket:
    """Return a local socket that is connected to the engine's stream. The stream may use TCP, TLS, or a pipe
    to ssh.

    Two threads copy the bytes, one for each direction. They end when either side closes. If the reader is
    slow, the engine has to wait.
    """
    local_end, remote_end = socket.socketpair()
    for copy in (_copy_to_engine, _copy_from_engine):
        threading.Thread(
            target=_copy_until_closed, args=(copy, stream, remote_end), name="sandbox stream", daemon=True
        ).start()
    return local_end


def _copy_until_closed(
    copy: Callable[[ExecStream, socket.socket], None], stream: ExecStream, end: socket.socket
) -> None:
    # sockets and pipes raise these errors after they were closed
    with contextlib.suppress(OSError, EOFError, ValueError):
        copy(stream, end)
    _close(end)
    _close(stream)


def _copy_to_engine(stream: ExecStream, source: socket.socket) -> None:
    while data := source.recv(_CHUNK_SIZE):
        stream.sendall(data)


def _copy_from_engine(stream: ExecStream, target: socket.socket) -> None:
    while True:
        head = _read_exactly(stream, 8)
        body = _read_exactly(stream, int.from_bytes(head[4:], "big"))
        if head[0] == _STDOUT:
            target.sendall(body)


def _read_exactly(stream: ExecStream, size: int) -> bytes:
    """Read exactly `size` bytes. The engine itself divides the stream into frames, so the container cannot
    corrupt them.
    """
    data = bytearray()
    while len(data) < size:
        if not (chunk := stream.recv(min(_CHUNK_SIZE, size - len(data)))):
            raise EOFError
        data += chunk
    return bytes(data)


def _close(stream: ExecStream | socket.socket) -> None:
    with contextlib.suppress(OSError):
        if isinstance(stream, socket.socket):
            stream.shutdown(socket.SHUT_RDWR)  # close() alone does not wake up the other thread
    with contextlib.suppress(OSError):
        stream.close()
