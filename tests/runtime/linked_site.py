"""A website behind TLS with a name of its own, which only a proxy of the test can reach."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from patchwright.runtime.egress.proxy import EgressConfig
from tests.runtime.fake_internet import PUBLIC, Internet

LINKED = "linked.test"


@dataclass
class LinkedSite(Internet):
    """Serves the pages in `pages` to every name of the fake internet."""

    pages: dict[str, bytes] = field(default_factory=dict)
    """Whole responses by path."""
    ssl_context: ssl.SSLContext | None = None
    requests: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            writer.write(self.pages.get(head.split(" ")[1], missing))
            await writer.drain()
        writer.close()

    def egress(self, **policy: object) -> EgressConfig:
        return replace(super().egress(**policy), ssl_context=self.ssl_context)


def html(body: str) -> bytes:
    """Return a response with this page."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@asynccontextmanager
async def linked_site(directory: Path) -> AsyncIterator[LinkedSite]:
    """Run the site under the name `LINKED`, with a certificate that only its own `ssl_context` trusts."""
    certificate = _write_certificate(directory)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate)
    site = LinkedSite(
        names={LINKED: [PUBLIC]}, ssl_context=ssl.create_default_context(cafile=str(certificate))
    )
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=server_context)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


def _write_certificate(directory: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, LINKED)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(LINKED)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "site.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
