"""A stand-in for the internet: names that lead to servers of this test, and a policy that lets them be dialled."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

from runtime.egress.egress import Address, Policy, Refused, is_public, policy
from runtime.egress.proxy import Egress
from runtime.forward import Stream

ALLOWED = "allowed.test"
PUBLIC = "93.184.215.14"  # never dialled: it stands for the test's own server


@dataclass
class Internet:
    """Answers for every name in `names`; all connections go to one server, which keeps what it heard."""

    names: dict[str, list[str]] = field(default_factory=lambda: {ALLOWED: [PUBLIC]})
    answer: bytes = b""
    """What the server says first; else it gives back what it hears."""
    heard: bytearray = field(default_factory=bytearray)
    looked_up: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)
    port: int = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        self.looked_up.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]

    async def dial(self, address: str, port: int) -> Stream:
        self.dialled.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.heard += data
                writer.write(self.answer or data)
                await writer.drain()
                if self.answer:
                    break
        writer.close()

    def egress(self, **policy: object) -> Egress:
        """Everything allowed that is in `hosts`; by default the one name."""
        made = Policy(**{"hosts": frozenset({ALLOWED}), **policy})
        return Egress(made, resolve=self.resolve, dial=self.dial)


class Naive(Policy):
    """A policy without its checks: the control of the cases that show them."""

    def admit(self, host: str, port: int, plain: bool) -> None:
        return

    def pin(self, host: str, port: int, found: object) -> list[Address]:
        if not isinstance(found, list) or not found:
            raise Refused("unknown")
        return [ip_address(each) for each in found]


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
    """What this Python really sends first to a TLS server."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def indexes() -> Egress:
    """The way to the real package indexes, also where a closed network's names lead to its mirrors."""
    found = socket.getaddrinfo("pypi.org", 443, type=socket.SOCK_STREAM)
    mirrors = [str(address[0]) for *_, address in found if not is_public(ip_address(str(address[0])))]
    allowed = policy("allow-list", allow_addresses=mirrors)
    assert allowed is not None
    return Egress(allowed)
