"""The wire through `docker exec`: for an engine that shares no directory with us, far away or in a VM.

The server listens inside, and each connection is a bridge that the engine starts beside it. Nothing that the
container owns is opened on this host.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from pydantic import ValidationError

from runtime.bridge import BOOT, READY
from runtime.docker.image import APP, PYTHON
from runtime.errors import SandboxLost
from runtime.remote import INTRODUCTION, Line
from runtime.wire import HELLO, VERSION, FrameTooLarge, Hello, receive

BRIDGE = (PYTHON, "-I", "-c", BOOT, APP)
BRIDGE_USER = "0"
"""No command in the sandbox has this id: so the server knows the host."""
_PIECE = 1 << 16  # bytes
_STDOUT = 1  # stream number in the engine's frames


class Stream(Protocol):
    """What the engine's client hands out for an attached stream: a socket, whatever it is made of."""

    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> object: ...
    def close(self) -> object: ...


Attach = Callable[[], Awaitable[Stream]]
"""Starts a bridge in the container and attaches to it."""


class ExecDoor:
    """Connections to one container's server; a new one takes the place of the last."""

    def __init__(self, attach: Attach) -> None:
        self._attach = attach
        self._line: Line | None = None
        self._dialling = asyncio.Lock()
        self.hello = Hello(version=VERSION)

    async def line(self, timeout: float) -> Line:
        """The live connection. Raises TimeoutError when there is none within `timeout` seconds."""
        async with asyncio.timeout(timeout), self._dialling:
            while self._line is None:
                if (line := await self._dial()) is None:
                    await asyncio.sleep(0.1)
                self._line = line
            return self._line

    def hang_up(self, line: Line | None = None) -> None:
        """Drop the connection, if it is still this one."""
        if self._line is not None and line in (None, self._line):
            self._line[1].close()
            self._line = None

    async def _dial(self) -> Line | None:
        near = pumped(await self._attach())
        try:
            reader, writer = await asyncio.open_unix_connection(sock=near)
        except BaseException:
            near.close()
            raise
        try:
            writer.write(READY)
            async with asyncio.timeout(INTRODUCTION):
                hello = Hello.model_validate_json(await receive(reader, HELLO))
        except (TimeoutError, ValidationError, FrameTooLarge, asyncio.IncompleteReadError, OSError):
            writer.close()
            return None
        except BaseException:
            writer.close()
            raise
        if hello.version != VERSION:
            writer.close()
            raise SandboxLost("the server in the container speaks another version of our protocol")
        self.hello = hello
        return reader, writer


def pumped(stream: Stream) -> socket.socket:
    """A plain local socket at the near end of the engine's stream, whatever that is: TCP, TLS, a pipe of ssh.

    Two threads carry the bytes. Both end when either side hangs up; a reader that waits makes the engine wait.
    """
    near, far = socket.socketpair()

    def carry(work: Callable[[], None]) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError):  # what closed sockets and pipes raise
            work()
        _close(far)
        _close(stream)

    def outward() -> None:
        while data := far.recv(_PIECE):
            stream.sendall(data)

    def inward() -> None:
        while head := _exactly(stream, 8):
            body = _exactly(stream, int.from_bytes(head[4:], "big"))
            if head[0] == _STDOUT:
                far.sendall(body)

    for work in (outward, inward):
        threading.Thread(target=carry, args=(work,), name="sandbox stream", daemon=True).start()
    return near


def _exactly(stream: Stream, size: int) -> bytes:
    """The next bytes, as the engine frames them: by itself, so that nothing in the container can break it."""
    parts = bytearray()
    while len(parts) < size:
        if not (part := stream.recv(min(_PIECE, size - len(parts)))):
            raise EOFError
        parts += part
    return bytes(parts)


def _close(stream: Stream | socket.socket) -> None:
    with contextlib.suppress(OSError):
        if isinstance(stream, socket.socket):
            stream.shutdown(socket.SHUT_RDWR)  # wakes the other thread, which close() alone does not
    with contextlib.suppress(OSError):
        stream.close()
