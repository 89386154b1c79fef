"""A fake internet: names that lead to servers of the test, and a policy that permits them."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.egress_forwarder import StreamPair
from patchwright.runtime.egress_policy import Address, EgressDenied, EgressPolicy, build_policy, is_public

ALLOWED = "allowed.test"
PUBLIC = "93.184.215.14"  # never dialed: it stands for the test's own server


@dataclass
class Internet:
    """Resolves the names in `names`. All connections go to one server, which records what it receives."""

    names: dict[str, list[str]] = field(default_factory=lambda: {ALLOWED: [PUBLIC]})
    answer: bytes = b""
    """The server's response; if empty, it echoes."""
    received: bytearray = field(default_factory=bytearray)
    looked_up: list[str] = field(default_factory=list)
    dialed: list[tuple[str, int]] = field(default_factory=list)
    port: int = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        self.looked_up.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]

    async def dial(self, address: str, port: int) -> StreamPair:
        self.dialed.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.received += data
                writer.write(self.answer or data)
                await writer.drain()
                if self.answer:
                    break
        writer.close()

    def egress(self, **policy: object) -> EgressConfig:
        """Return a configuration with this policy; by default only `ALLOWED` is permitted."""
        made = EgressPolicy(**{"allowed_hosts": frozenset({ALLOWED}), **policy})
        return EgressConfig(made, resolve=self.resolve, dial=self.dial)


class UncheckedPolicy(EgressPolicy):
    """A policy without checks, for controls."""

    def check_host(self, host: str, port: int, is_plain_http: bool) -> None:
        return

    def check_addresses(self, host: str, port: int, resolved: object) -> list[Address]:
        if not isinstance(resolved, list) or not resolved:
            raise EgressDenied("unknown")
        return [ip_address(each) for each in resolved]


@asynccontextmanager
async def internet() -> AsyncIterator[Internet]:
    made = Internet()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def client_hello(host: str | None) -> bytes:
    """Return the ClientHello of this Python's TLS."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def package_index_egress() -> EgressConfig:
    """Return access to the real package package_index_egress, including those that a closed network mirrors."""
    found = socket.getaddrinfo("pypi.org", 443, type=socket.SOCK_STREAM)
    mirrors = [str(address[0]) for *_, address in found if not is_public(ip_address(str(address[0])))]
    allowed = build_policy("allowlist", allowed_addresses=mirrors)
    assert allowed is not None
    return EgressConfig(allowed)
