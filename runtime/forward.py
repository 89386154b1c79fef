"""The way out, inside the container: a port of its own loopback that leads to the egress proxy's socket."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

PORT = 18_631  # of the container's own loopback: nobody else's, unless the repository's tests choose the same
EGRESS = "e"  # the proxy's socket, beside that of the actions
CONNECTIONS = 64  # at a time; those beyond wait for their turn
QUEUE = 1024  # that are open or wait: npm asks for some hundred packages at once
BRIDGES = "patchwright-egress"  # the abstract socket for a host that shares no directory with us
BRIDGE_SECONDS = 20.0  # that a connection waits for the host to come
CHUNK = 1 << 16  # bytes

_PROXY = f"http://127.0.0.1:{PORT}"
_HERE = "localhost,127.0.0.1,::1"  # a server that a test starts is reached without the proxy
_JAVA = " ".join(
    f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PORT}" for scheme in ("http", "https")
)
ENVIRONMENT = {
    # curl, pip, uv, git, Go, cargo, gem, composer, apt and Chromium read these; some only one of the spellings.
    **dict.fromkeys(
        ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _PROXY
    ),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), _HERE),
    **dict.fromkeys(("npm_config_proxy", "npm_config_https_proxy"), _PROXY),
    **dict.fromkeys(("YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"), _PROXY),
    "npm_config_noproxy": _HERE,
    "NODE_USE_ENV_PROXY": "1",  # without it, Node's own fetch knows no proxy; before Node 22.21 in no way
    "CARGO_REGISTRIES_CRATES_IO_PROTOCOL": "sparse",  # before cargo 1.70 the index came from github.com
    "JAVA_TOOL_OPTIONS": f"{_JAVA} -Dhttp.nonProxyHosts=localhost|127.*|[::1]",
}
"""What leads programs to the port. Only a sandbox that is online has it."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


Onward = Callable[[], AbstractAsyncContextManager[Stream]]


@asynccontextmanager
async def forwarding(way: str, host: int, port: int = PORT) -> AsyncIterator[None]:
    """Lead each connection to the port on to the proxy.

    `way`: path of the proxy's socket; or, after an @, the abstract socket to which processes of the user `host`
    bring connections to it.
    """
    if way.startswith("@"):
        async with _bridges(way[1:], host) as onward, _listening(onward, port):
            yield
    else:
        async with _listening(lambda: _socket(way), port):
            yield


@asynccontextmanager
async def _socket(path: str) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_unix_connection(path, limit=CHUNK)
    try:
        yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def _bridges(name: str, host: int) -> AsyncIterator[Onward]:
    waiting: asyncio.Queue[Stream] = asyncio.Queue()

    def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if user(writer) == host:
            waiting.put_nowait((reader, writer))
        else:
            writer.close()

    @asynccontextmanager
    async def take() -> AsyncIterator[Stream]:
        async with asyncio.timeout(BRIDGE_SECONDS):
            reader, writer = await waiting.get()
            while reader.at_eof():  # its host went away
                writer.close()
                reader, writer = await waiting.get()
        try:
            yield reader, writer
        finally:
            writer.close()

    server = await asyncio.start_unix_server(admit, f"\0{name}", limit=CHUNK)
    try:
        yield take
    finally:
        server.close()


@asynccontextmanager
async def _listening(onward: Onward, port: int) -> AsyncIterator[None]:
    queued = 0
    # A client that is hung up on instead may never notice: npm 9 waits for its own 300 s.
    turns = asyncio.Semaphore(CONNECTIONS)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal queued
        if queued >= QUEUE:
            writer.close()
            return
        queued += 1
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with turns, onward() as far:
                    await join((reader, writer), far)
        finally:
            queued -= 1
            writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", port, limit=CHUNK, backlog=QUEUE)
    try:
        yield
    finally:
        server.close()


def user(writer: asyncio.StreamWriter) -> int:
    """Who is at the other end of a Unix socket, as the kernel knows it."""
    peer: socket.socket = writer.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


async def join(near: Stream, far: Stream) -> None:
    """Carry bytes both ways until the far side has ended, or either is gone."""
    sending = asyncio.create_task(pour(near[0], far[1]))
    try:
        await pour(far[0], near[1])
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Carry bytes one way to the source's end, and tell the target that this is the end."""
    try:
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.close()  # a source that broke off must not look as if it had ended
