"""Connects the host to MCP servers. Each server has its own egress proxy, which allows connections only to
this server.

The proxy resolves names and pins addresses, limits the upload size and logs every connection.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.docker.socket_dir import SocketDir
from patchwright.runtime.egress.proxy import Dialer, EgressConfig, EgressProxy, Resolver
from patchwright.runtime.egress_policy import (
    DENIAL_MESSAGES,
    ConnectionLog,
    ConnectionSummary,
    Origin,
    UpstreamProxy,
    build_origin_policy,
    merge_summaries,
)

CONNECT_TIMEOUT = 30.0  # seconds to connect, and seconds to send one chunk
READ_TIMEOUT = 180.0  # seconds without a byte; longer than the 120 seconds that a call may take
MAX_RESPONSE_BYTES = 20_000_000  # bytes of one response or one event stream


@dataclass(frozen=True)
class McpEndpoint:
    """The proxied connection to one server."""

    socket: Path
    connection_log: ConnectionLog
    ca_bundle: Path | None = None

    def build_client(self, headers: Mapping[str, str]) -> httpx.AsyncClient:
        """Returns an HTTP client that connects only to this endpoint's server, even if a URL names another
        host.
        """
        return httpx.AsyncClient(
            transport=_LimitedTransport(self.socket, self.ca_bundle),
            headers={"Accept-Encoding": "identity", **headers},
            timeout=httpx.Timeout(CONNECT_TIMEOUT, read=READ_TIMEOUT),
            follow_redirects=False,
            trust_env=False,  # only the egress proxy may use a proxy of this machine
        )

    def take_denial(self) -> str | None:
        """Returns why the proxy has denied a connection since the last call of this method. Returns None if
        it has denied no connection.
        """
        return next(
            (
                f"{host}: {DENIAL_MESSAGES[reason]}"
                for host, reason in self.connection_log.take_denied().items()
            ),
            None,
        )


@dataclass
class McpConnector:
    """Opens connections to the MCP servers of one run, and records these connections."""

    max_upload_mb: int = 10
    """Upload limit per server, in MB."""
    allowed_addresses: tuple[str, ...] = ()
    upstream: UpstreamProxy | None = None
    ca_bundle: Path | None = None
    resolve: Resolver | None = None
    dial: Dialer | None = None
    _connections: list[ConnectionSummary] = field(default_factory=list)

    @classmethod
    def from_settings(cls, settings: Settings) -> "McpConnector":
        """Returns a connector with the same network settings as the sandboxes."""
        return cls(
            max_upload_mb=settings.max_upload_mb,
            allowed_addresses=settings.allowed_addresses,
            upstream=UpstreamProxy.from_url(settings.proxy.get_secret_value()) if settings.proxy else None,
            ca_bundle=settings.ca_bundle,
        )

    @asynccontextmanager
    async def connect(self, url: str) -> AsyncIterator[McpEndpoint]:
        """Yields an endpoint for the server with this URL. The endpoint works only inside the context."""
        origin = Origin.from_url(url)
        policy = build_origin_policy(origin, self.max_upload_mb, self.allowed_addresses)
        proxy = EgressProxy(
            EgressConfig(policy, self.upstream, self.resolve, self.dial, idle_timeout=READ_TIMEOUT)
        )
        socket_dir = SocketDir.create()
        try:
            async with proxy.listen(socket_dir.mounted_dir / "m", origin) as connection_log:
                yield McpEndpoint(socket_dir.mounted_dir / "m", connection_log, self.ca_bundle)
        finally:
            socket_dir.remove()
            self._connections += proxy.connection_log.take()

    def get_connections(self) -> tuple[ConnectionSummary, ...]:
        """Returns the allowed and denied connections of all closed endpoints."""
        return merge_summaries(self._connections)


class _LimitedTransport(httpx.AsyncBaseTransport):
    """Connects through a Unix socket and limits the size of responses."""

    def __init__(self, socket: Path, ca_bundle: Path | None) -> None:
        ssl_context = httpx.create_ssl_context()
        if ca_bundle is not None:
            ssl_context.load_verify_locations(ca_bundle)
        self._inner = httpx.AsyncHTTPTransport(uds=str(socket), verify=ssl_context)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # The size limit applies to transferred bytes. Compressed data could be much larger after
            # decompression.
            await response.aclose()
            raise httpx.DecodingError(
                "the server compressed the response, although the request did not allow this"
            )
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _LimitedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LimitedStream(httpx.AsyncByteStream):
    """A stream that raises ReadError once it exceeds the size limit."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = MAX_RESPONSE_BYTES
        async for chunk in self._stream:
            remaining -= len(chunk)
            if remaining < 0:
                raise httpx.ReadError(f"the response is larger than {MAX_RESPONSE_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
