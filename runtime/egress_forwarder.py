"""Forwards connections from a loopback port in the container to the socket of the egress proxy."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

# A port on the container's own loopback interface. The port is free, unless the repository's tests use the
# same one.
PROXY_PORT = 18_631
# Name of the proxy's socket. It is in the same directory as the socket of the action server.
EGRESS_SOCKET = "e"
MAX_CONNECTIONS = 64  # Maximum number of connections at the same time. Further connections wait in a queue.
# Maximum number of connections, both open and queued. npm requests hundreds of packages at once.
MAX_QUEUED = 1024
# The abstract socket for a host that cannot share a directory with the container.
BRIDGE_SOCKET = "patchwright-egress"
BRIDGE_TIMEOUT = 20.0  # Seconds for which a connection waits until the host connects.
CHUNK_SIZE = 1 << 16  # bytes

_PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"
# Servers that run in the sandbox itself, for example in a test, are reached without the proxy.
_NO_PROXY = "localhost,127.0.0.1,::1"
_JAVA_OPTIONS = " ".join(
    f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PROXY_PORT}" for scheme in ("http", "https")
)
PROXY_ENVIRONMENT = {
    # curl, pip, uv, git, Go, cargo, gem, composer, apt and Chromium read these variables. Some of these
    # programs read only one spelling.
    **dict.fromkeys(
        ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _PROXY_URL
    ),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), _NO_PROXY),
    **dict.fromkeys(("npm_config_proxy", "npm_config_https_proxy"), _PROXY_URL),
    **dict.fromkeys(("YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"), _PROXY_URL),
    "npm_config_noproxy": _NO_PROXY,
    # Without this variable, Node's own fetch does not use the proxy. Node has supported the variable since
    # 22.21.
    "NODE_USE_ENV_PROXY": "1",
    # Before cargo 1.70, the default index came from github.com.
    "CARGO_REGISTRIES_CRATES_IO_PROTOCOL": "sparse",
    "JAVA_TOOL_OPTIONS": f"{_JAVA_OPTIONS} -Dhttp.nonProxyHosts=localhost|127.*|[::1]",
}
"""Environment variables with which programs use the forwarder's port as their proxy. Only an online sandbox has them.
"""

StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


Connector = Callable[[], AbstractAsyncContextManager[StreamPair]]


@asynccontextmanager
async def forward_connections(target: str, host_uid: int, port: int = PROXY_PORT) -> AsyncIterator[None]:
    """Forward each connection on the port to the proxy.

    `target` is the path of the proxy's socket, or `@NAME` for an abstract socket. In the second case, this
    function listens on the abstract socket. Processes of the user `host_uid` connect to it, and relay to the
    proxy.
    """
    if target.startswith("@"):
        async with _accept_bridges(target[1:], host_uid) as connector, _listen(connector, port):
            yield
    else:
        async with _listen(lambda: _connect_socket(target), port):
            yield


@asynccontextmanager
async def _connect_socket(path: str) -> AsyncIterator[StreamPair]:
    reader, writer = await asyncio.open_unix_connection(path, limit=CHUNK_SIZE)
    try:
        yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def _accept_bridges(name: str, host_uid: int) -> AsyncIterator[Connector]:
    waiting: asyncio.Queue[StreamPair] = asyncio.Queue()

    def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if peer_uid(writer) == host_uid:
            waiting.put_nowait((reader, writer))
        else:
            writer.close()

    @asynccontextmanager
    async def take() -> AsyncIterator[StreamPair]:
        async with asyncio.timeout(BRIDGE_TIMEOUT):
            reader, writer = await waiting.get()
            while reader.at_eof():  # The host closed this connection.
                writer.close()
                reader, writer = await waiting.get()
        try:
            yield reader, writer
        finally:
            writer.close()

    server = await asyncio.start_unix_server(admit, f"\0{name}", limit=CHUNK_SIZE)
    try:
        yield take
    finally:
        server.close()


@asynccontextmanager
async def _listen(connector: Connector, port: int) -> AsyncIterator[None]:
    queued = 0
    # Clients wait in a queue instead of being disconnected. npm 9 may not notice that it was disconnected,
    # and would then wait for 300 s.
    semaphore = asyncio.Semaphore(MAX_CONNECTIONS)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal queued
        if queued >= MAX_QUEUED:
            writer.close()
            return
        queued += 1
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with semaphore, connector() as server:
                    await relay((reader, writer), server)
        finally:
            queued -= 1
            writer.close()

    listener = await asyncio.start_server(forward, "127.0.0.1", port, limit=CHUNK_SIZE, backlog=MAX_QUEUED)
    try:
        yield
    finally:
        listener.close()


def peer_uid(writer: asyncio.StreamWriter) -> int:
    """Return the user id of the process at the other end of a Unix socket, as the kernel reports it."""
    peer: socket.socket = writer.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


async def relay(client: StreamPair, server: StreamPair) -> None:
    """Copy bytes in both directions. Stops when the server has closed its side, or when a connection is broken."""
    sending = asyncio.create_task(copy_stream(client[0], server[1]))
    try:
        await copy_stream(server[0], client[1])
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def copy_stream(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until the source ends. Then close the target for writing."""
    try:
        while data := await source.read(CHUNK_SIZE):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.close()  # The target must be able to distinguish a broken connection from a regular end.
