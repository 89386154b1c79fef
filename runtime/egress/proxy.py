"""The egress proxy. It runs on the host, once for each online sandbox. It listens on a Unix socket that
belongs to that sandbox.

The proxy speaks HTTP: CONNECT for TLS, and GET with an absolute URL for unencrypted reading. It resolves
names itself, and connects to the address that it has checked. A second lookup can therefore not lead to
another address. Everything that a sandbox sends is limited: the bytes of a request's head, the number of
connections, the time without data, and the total bytes.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from patchwright.runtime.egress.link_access import LinkAccess
from patchwright.runtime.egress.proxy_request import MalformedRequest, ProxyRequest, parse_request
from patchwright.runtime.egress.sni import MAX_CLIENT_HELLO_BYTES, NotTls, parse_server_name
from patchwright.runtime.egress_forwarder import CHUNK_SIZE, MAX_CONNECTIONS, StreamPair
from patchwright.runtime.egress_policy import (
    HTTP_PORT,
    HTTPS_PORT,
    Address,
    ConnectionLog,
    ConnectionSummary,
    EgressDenied,
    EgressPolicy,
    Origin,
    UpstreamProxy,
    expected_sni,
)

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16_384  # Maximum bytes of a request line together with its headers.
# Seconds for each of these steps: a request's head, a ClientHello, a name lookup, and a connection attempt to
# one address.
STEP_TIMEOUT = 20.0
IDLE_TIMEOUT = 120.0  # Maximum seconds without a byte in either direction.
# Seconds before a denial is sent. Without this delay, a sandbox could keep the host busy with denied
# requests.
DENIAL_DELAY = 0.1
CONNECTION_TIMEOUT = 1800.0  # Maximum seconds of one connection. No command runs longer than this.
# Maximum number of chunks in which a ClientHello may arrive. After each chunk, the ClientHello is parsed
# again from its start, which takes at most 4 ms.
MAX_HELLO_CHUNKS = 64
MAX_ADDRESSES = 3  # Maximum number of addresses that are tried for one name.

Resolver = Callable[[str, int], Awaitable[list[str]]]
Dialer = Callable[[str, int], Awaitable[StreamPair]]


@dataclass(frozen=True)
class EgressConfig:
    """Network access of online sandboxes."""

    policy: EgressPolicy
    upstream: UpstreamProxy | None = None
    resolve: Resolver | None = None
    """Resolves names to addresses. If this is None, the proxy uses the host's resolver."""
    dial: Dialer | None = None
    """Connects to an address. If this is None, the proxy opens a TCP connection."""
    ssl_context: ssl.SSLContext | None = None
    """The trusted certificates of linked hosts. If this is None, the proxy trusts those of the system."""
    max_connections: int = MAX_CONNECTIONS
    """Maximum number of connections that one sandbox may have at the same time."""
    step_timeout: float = STEP_TIMEOUT
    idle_timeout: float = IDLE_TIMEOUT


class EgressProxy:
    """Serves the connections of one sandbox."""

    def __init__(self, config: EgressConfig) -> None:
        self.connection_log = ConnectionLog()
        self._policy = config.policy
        self._upstream = config.upstream
        self._resolve = config.resolve or self._resolve_on_host
        self._dial = config.dial or _dial
        self._config = config
        self._connection_count = 0
        self.links = LinkAccess(config.ssl_context)
        # The proxy has its own threads. A lookup that never ends must not block the threads that the engine's
        # requests need.
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="egress")

    @asynccontextmanager
    async def listen(self, path: Path, origin: Origin | None = None) -> AsyncIterator[ConnectionLog]:
        """Listen on a Unix socket. Only processes with access to the socket's directory can connect.

        If `origin` is given, all connections lead to that server, and clients send no proxy request.
        """
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # The connection has a task of its own, because Python 3.11 logs an error if the callback of a
            # server is canceled.
            task = asyncio.ensure_future(self.serve((reader, writer), origin=origin))
            tasks.add(task)
            try:
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result()
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_unix_server(serve, path, limit=MAX_HEAD_BYTES)
        os.chmod(path, 0o666)  # noqa: S103
        try:
            yield self.connection_log
        finally:
            server.close()
            for task in (canceled := tuple(tasks)):
                task.cancel()
            await asyncio.gather(*canceled, return_exceptions=True)
            self.close()
            path.unlink(missing_ok=True)  # noqa: ASYNC240  # removing one file is fast

    def close(self) -> None:
        """Release the proxy's threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def serve(
        self, client: StreamPair, initial_data: bytes = b"", origin: Origin | None = None
    ) -> None:
        """Serve one connection. `initial_data` contains its first bytes if they were already read."""
        if self._connection_count >= self._config.max_connections:
            with contextlib.suppress(OSError):
                await _send_error(client, 503, "too many concurrent connections")
            return
        self._connection_count += 1
        try:
            async with asyncio.timeout(CONNECTION_TIMEOUT):
                await self._answer(client, initial_data, origin)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # The client or the server has disconnected, or has sent nothing for too long.
        except (MalformedRequest, asyncio.LimitOverrunError):
            with contextlib.suppress(OSError):
                await asyncio.sleep(DENIAL_DELAY)
                await _send_error(client, 400, "not a valid proxy request")
        finally:
            self._connection_count -= 1

    async def _answer(self, client: StreamPair, initial_data: bytes, origin: Origin | None) -> None:
        if origin is not None:
            request = ProxyRequest("CONNECT", origin.host, origin.port, "", (), origin=origin)
        else:
            async with asyncio.timeout(self._config.step_timeout):
                request = parse_request(initial_data + await client[0].readuntil(b"\r\n\r\n"))
        try:
            server = await self._connect(request)
        except EgressDenied as denial:
            self._record_denial(request, denial)
            await asyncio.sleep(DENIAL_DELAY)
            if origin is None:
                status = 502 if denial.reason in ("unknown", "unreachable") else 403
                await _send_error(client, status, f"{request.host}: {denial}")
            return
        try:
            if request.tls:
                async with asyncio.timeout(self._config.step_timeout):
                    await self.links.start_tls(server, request.host)
            await self._relay(request, client, server)
        except EgressDenied as denial:
            self._record_denial(request, denial)
            server[1].close()
            await asyncio.sleep(DENIAL_DELAY)
        finally:
            server[1].close()

    def _record_denial(self, request: ProxyRequest, denial: EgressDenied) -> None:
        # Equal denials are logged only once, because a line for each connection could fill the disk.
        visit = ConnectionSummary(
            host=request.host, port=request.port, denied=denial.reason, address=denial.address
        )
        if self.connection_log.add(visit):
            fields = {"host": request.host, "port": request.port, "reason": denial.reason}
            log.info("egress denied", extra=fields | ({"address": denial.address} if denial.address else {}))

    # --- connecting --------------------------------------------------------------------------------

    async def _connect(self, request: ProxyRequest) -> StreamPair:
        """Connect to the requested host. Raises EgressDenied."""
        host, port = request.host, request.port
        if not self.links.check(request):
            self._policy.check_host(host, port, request.is_plain_http)
        if request.is_plain_http and (
            request.method not in ("GET", "HEAD")
            or any(
                name == "transfer-encoding" or (name == "content-length" and value != "0")
                for name, value in request.headers
            )
        ):
            raise EgressDenied("method")
        if self.connection_log.bytes_sent >= self._policy.max_upload_bytes:
            raise EgressDenied("upload")
        # The lookup counts as sent data, because it reveals the name to the name server.
        self.connection_log.bytes_sent += len(host)
        addresses = await self._resolve_addresses(host, port)
        if self._upstream is not None and not ((host, port) in self._policy.trusted_endpoints and addresses):
            return await self._connect_via_upstream(self._upstream, request)
        for address in addresses[:MAX_ADDRESSES]:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._config.step_timeout):
                    return await self._dial(str(address), port)
        raise EgressDenied("unreachable")

    async def _resolve_addresses(self, host: str, port: int) -> list[Address]:
        try:
            async with asyncio.timeout(self._config.step_timeout):
                resolved = await self._resolve(host, port)
        except (OSError, TimeoutError, UnicodeError) as error:
            if self._upstream is not None:
                # A network that needs a proxy often cannot resolve external names itself. The upstream proxy
                # can resolve them.
                return []
            raise EgressDenied("unknown") from error
        return self._policy.check_addresses(host, port, resolved)

    async def _resolve_on_host(self, host: str, port: int) -> list[str]:
        def look_up() -> list[str]:
            results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [str(address[0]) for *_, address in results]

        return await asyncio.get_running_loop().run_in_executor(self._threads, look_up)

    async def _connect_via_upstream(self, upstream: UpstreamProxy, request: ProxyRequest) -> StreamPair:
        """Connect through the proxy of the operator's network. For a plain HTTP request, this does not use
        CONNECT.
        """
        try:
            async with asyncio.timeout(self._config.step_timeout):
                server = await self._dial(upstream.host, upstream.port)
                if request.is_plain_http and not request.tls:
                    return server
                try:
                    await self._send_connect(upstream, request, server)
                except BaseException:
                    server[1].close()
                    raise
                return server
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise EgressDenied("unreachable") from error

    async def _send_connect(self, upstream: UpstreamProxy, request: ProxyRequest, server: StreamPair) -> None:
        name = f"{request.host}:{request.port}"
        lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}", *_authorization_header(upstream), "", ""]
        server[1].write("\r\n".join(lines).encode())
        if (await server[0].readuntil(b"\r\n\r\n")).split(b" ", 2)[1:2] != [b"200"]:
            raise EgressDenied("unreachable")

    # --- relaying --------------------------------------------------------------------------------

    async def _relay(self, request: ProxyRequest, client: StreamPair, server: StreamPair) -> None:
        """Copy the bytes of a connection in both directions, and count them. Raises EgressDenied."""
        self.connection_log.record(request.host, request.port, None, count=1)
        if request.is_plain_http:
            self._send(request, server[1], self._rewrite_request(request))
        elif request.origin is None or request.origin.tls:
            if request.origin is None:
                client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await client[1].drain()
            self._send(request, server[1], await self._read_client_hello(client[0], request.host))
        async with asyncio.timeout(self._config.idle_timeout) as idle:
            tasks = [asyncio.create_task(self._copy_to_client(request, server[0], client[1], idle))]
            # The plain HTTP request was already sent completely. What the client sends after it is ignored.
            if not request.is_plain_http:
                tasks.append(asyncio.create_task(self._copy_to_server(request, client[0], server[1], idle)))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, EgressDenied | OSError):
                raise result

    async def _read_client_hello(self, client: asyncio.StreamReader, host: str) -> bytes:
        """Read the ClientHello of a TLS connection, and check the server name in it. Raises EgressDenied."""
        data = b""
        try:
            async with asyncio.timeout(self._config.step_timeout):
                chunks = 0
                while (name := parse_server_name(data)) is None:
                    chunk, chunks = await client.read(MAX_CLIENT_HELLO_BYTES), chunks + 1
                    if not chunk and not data:
                        # A connection pool may open a connection in advance, and close it without using it.
                        raise ConnectionAbortedError("closed before the ClientHello")
                    data += chunk
                    if not chunk or len(data) > 2 * MAX_CLIENT_HELLO_BYTES or chunks > MAX_HELLO_CHUNKS:
                        raise NotTls
        except NotTls as error:
            raise EgressDenied("sni") from error
        if name != expected_sni(host):
            raise EgressDenied("sni")
        return data

    async def _copy_to_server(
        self,
        request: ProxyRequest,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        idle: asyncio.Timeout,
    ) -> None:
        while data := await source.read(CHUNK_SIZE):
            self._reset_idle_timeout(idle)
            self._send(request, target, data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()

    async def _copy_to_client(
        self,
        request: ProxyRequest,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        idle: asyncio.Timeout,
    ) -> None:
        while data := await source.read(CHUNK_SIZE):
            self._reset_idle_timeout(idle)
            self.connection_log.record(request.host, request.port, None, bytes_received=len(data))
            target.write(data)
            await target.drain()
        target.close()  # The server has closed the connection, so the client can no longer use it.

    def _reset_idle_timeout(self, idle: asyncio.Timeout) -> None:
        if not idle.expired():
            idle.reschedule(asyncio.get_running_loop().time() + self._config.idle_timeout)

    def _send(self, request: ProxyRequest, target: asyncio.StreamWriter, data: bytes) -> None:
        if self.connection_log.bytes_sent + len(data) > self._policy.max_upload_bytes:
            raise EgressDenied("upload")
        self.connection_log.record(request.host, request.port, None, bytes_sent=len(data))
        target.write(data)

    def _rewrite_request(self, request: ProxyRequest) -> bytes:
        """Rewrite a plain HTTP request for the server. Removes the headers that concern the client's own
        connection. Asks the server to close the connection after its response.
        """
        dropped = {"host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect", "content-length"}
        connection_values = (value for name, value in request.headers if name == "connection")
        dropped |= {each.strip().lower() for value in connection_values for each in value.split(",")}
        is_default_port = request.port == (HTTPS_PORT if request.tls else HTTP_PORT)
        host = request.host if is_default_port else f"{request.host}:{request.port}"
        target, extra = request.target, list[str]()
        if self._upstream is not None and not request.tls:
            target, extra = f"http://{host}{request.target}", _authorization_header(self._upstream)
        headers = [
            f"{name}: {value}"
            for name, value in request.headers
            if name not in dropped and not name.startswith("proxy-")
        ]
        lines = [
            f"{request.method} {target} HTTP/1.1",
            f"Host: {host}",
            "Connection: close",
            *extra,
            *headers,
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _dial(address: str, port: int) -> StreamPair:
    return await asyncio.open_connection(address, port, limit=MAX_HEAD_BYTES)


async def _send_error(client: StreamPair, status: int, reason: str) -> None:
    # The status line also contains the reason, because many clients show nothing else.
    reason = re.sub("[^ -~]", "?", reason)
    client[1].write(
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(reason) + 1}\r\n"
        f"Connection: close\r\n\r\n{reason}\n".encode()
    )
    await client[1].drain()


def _authorization_header(upstream: UpstreamProxy) -> list[str]:
    return [f"Proxy-Authorization: {upstream.authorization}"] if upstream.authorization else []
