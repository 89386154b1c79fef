"""How the host calls MCP servers: through the egress proxy of a sandbox, one for each server, which leads only there.

Names are resolved by the proxy and addresses pinned, what is sent is capped, and every connection is accounted for.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from resolver.settings.settings import Settings
from runtime.docker.place import Place
from runtime.egress.egress import WHY, Ledger, Origin, Upstream, Visit, merged, policy_for
from runtime.egress.proxy import Dial, Egress, Proxy, Resolve

CONNECT = 30.0  # seconds for a connection, and for each piece that is sent
SILENCE = 180.0  # seconds without a byte; a call may take 120
MOST_BYTES = 20_000_000  # of one answer, or of one stream of events


@dataclass(frozen=True)
class Door:
    """The way to one server."""

    socket: Path
    ledger: Ledger
    ca_bundle: Path | None = None

    def client(self, headers: Mapping[str, str]) -> httpx.AsyncClient:
        """A client whose connections all go to that server, whatever it is asked for."""
        return httpx.AsyncClient(
            transport=_Bounded(self.socket, self.ca_bundle),
            headers={"Accept-Encoding": "identity", **headers},
            timeout=httpx.Timeout(CONNECT, read=SILENCE),
            follow_redirects=False,
            trust_env=False,  # the machine's proxy is the proxy's to ask
        )

    def refusal(self) -> str | None:
        """Why no connection was made since the last question, if that is why."""
        return next((f"{host}: {WHY[why]}" for host, why in self.ledger.take_refused().items()), None)


@dataclass
class Outside:
    """The host's way to the MCP servers of one run, and the account of it."""

    upload_mb: int = 10
    """What may be sent to one server, MB."""
    allow_addresses: tuple[str, ...] = ()
    upstream: Upstream | None = None
    ca_bundle: Path | None = None
    resolve: Resolve | None = None
    dial: Dial | None = None
    _visits: list[Visit] = field(default_factory=list)

    @classmethod
    def of(cls, settings: Settings) -> "Outside":
        """As the operator has it for sandboxes."""
        return cls(
            upload_mb=settings.upload_mb,
            allow_addresses=settings.allow_addresses,
            upstream=Upstream.of(settings.proxy.get_secret_value()) if settings.proxy else None,
            ca_bundle=settings.ca_bundle,
        )

    @asynccontextmanager
    async def to(self, url: str) -> AsyncIterator[Door]:
        """The way to the server of this URL, as long as the context lasts."""
        origin = Origin.of(url)
        allowed = policy_for(origin, self.upload_mb, self.allow_addresses)
        proxy = Proxy(Egress(allowed, self.upstream, self.resolve, self.dial, idle=SILENCE))
        place = Place.make()
        try:
            async with proxy.listening(place.door / "m", origin) as ledger:
                yield Door(place.door / "m", ledger, self.ca_bundle)
        finally:
            place.remove()
            self._visits += proxy.ledger.take()

    def visits(self) -> tuple[Visit, ...]:
        """What was called, and what was refused, by ways that are closed."""
        return merged(self._visits)


class _Bounded(httpx.AsyncBaseTransport):
    """Connections to a Unix socket, and answers that end."""

    def __init__(self, socket: Path, ca_bundle: Path | None) -> None:
        trust = httpx.create_ssl_context()
        if ca_bundle is not None:
            trust.load_verify_locations(ca_bundle)
        self._inner = httpx.AsyncHTTPTransport(uds=str(socket), verify=trust)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        if answer.headers.get("content-encoding", "identity") != "identity":
            # Else the limit would hold for what comes, not for what it becomes.
            await answer.aclose()
            raise httpx.DecodingError("a compressed answer, which was not asked for")
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        answer.stream = _Ending(answer.stream)
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Ending(httpx.AsyncByteStream):
    """A stream that breaks off when it becomes too long."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx.ReadError(f"the answer is longer than {MOST_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
