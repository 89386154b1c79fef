"""The host's way to MCP servers: the egress policy holds for it, but for the server that the operator named."""

import asyncio
import contextlib
import os
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from resolver.actions import Called
from resolver.errors import SettingsError
from resolver.settings.mcp_server import McpServer
from resolver.settings.settings import build
from resolver.tools.mcp import mcp_tools
from resolver.tools.mcp_way import MOST_BYTES, Outside
from resolver.tools.tool import Tools
from runtime.egress.egress import Visit
from runtime.forward import Stream
from runtime.local import LocalSandboxes
from runtime.sandbox import Sandbox
from tests.resolver.served_mcp import by_http, call

PUBLIC = "wiki.example.org"


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, dict(os.environ)).open("mcp") as opened:
        yield opened


async def leads_here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def tried(url: str, sandbox: Sandbox, outside: Outside) -> str:
    """What a call gives, or why there is nothing to call."""
    said: list[str] = []
    async with mcp_tools({"numbers": McpServer(url=url)}, sandbox, said.append, outside) as found:
        if said:
            return said[0]
        answer = await call(Tools(found), "numbers_add", a=2, b=3)
        return answer.text if isinstance(answer, Called) else str(answer)


def of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    return parts.hostname, parts.port


async def test_a_private_address_that_the_operator_wrote_is_called_and_accounted_for(
    sandbox: Sandbox,
) -> None:
    outside = Outside()
    async with by_http() as server:
        assert server.url is not None
        assert await tried(server.url, sandbox, outside) == "5"
        (visit,) = outside.visits()
        assert (visit.host, visit.port) == of(server.url) and visit.refused is None
        assert visit.sent > 500 and visit.received > 500


async def test_a_public_name_that_leads_to_this_machine_is_refused(sandbox: Sandbox) -> None:
    async with by_http() as server:
        assert server.url is not None
        url = server.url.replace("127.0.0.1", PUBLIC)
        refusing = Outside(resolve=leads_here)
        assert await tried(url, sandbox, refusing) == (
            f"the MCP server numbers is left out: {PUBLIC}: it leads to an address that is not public "
            "(setting `allow_addresses`)"
        )
        (visit,) = refusing.visits()
        assert (visit.host, visit.port, visit.refused, visit.sent) == (*of(url), "private", 0)
        # The control: the same, where this machine's addresses count as a mirror's.
        assert await tried(url, sandbox, Outside(allow_addresses=("127.0.0.0/8",), resolve=leads_here)) == "5"


async def test_what_a_name_leads_to_is_looked_at_again_for_each_connection() -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.215.14"] if len(asked) == 1 else ["169.254.169.254"]

    async def dial(address: str, port: int) -> Stream:
        assert address == "93.184.215.14", "nothing else is dialled"
        return await asyncio.open_connection("127.0.0.1", port)

    async with answering(said(b"named")) as (url, _):
        url = url.replace("127.0.0.1", PUBLIC)
        async with Outside(resolve=rebinding, dial=dial).to(url) as door, door.client({}) as client:
            assert (await client.get(url)).text == "named"
            with pytest.raises(httpx.HTTPError):
                await client.get(url)
            assert door.refusal() == (
                f"{PUBLIC}: it leads to an address that is not public (setting `allow_addresses`)"
            )


@asynccontextmanager
async def answering(
    answer: bytes, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that says the same to everybody, and keeps what it was asked."""
    heard: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        if length := re.search(rb"content-length: (\d+)", heard[-1], re.IGNORECASE):
            await reader.readexactly(int(length[1]))
        writer.write(answer)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls) as server:
        yield f"http{'s' * bool(tls)}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", heard


def said(body: bytes, *headers: bytes) -> bytes:
    head = (b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), b"connection: close", *headers)
    return b"\r\n".join(head) + b"\r\n\r\n" + body


async def test_a_second_host_is_out_of_reach() -> None:
    async with answering(said(b"named")) as (named, _), answering(said(b"other")) as (other, heard):
        async with Outside().to(named) as door, door.client({}) as client:
            assert (await client.get(other)).text == "named"  # all connections lead there
        assert heard == []
        async with httpx.AsyncClient() as control:
            assert (await control.get(other)).text == "other"


async def test_a_redirect_to_a_private_address_is_not_followed(sandbox: Sandbox) -> None:
    async with answering(said(b"metadata")) as (private, heard):
        away = b"HTTP/1.1 307 x\r\nlocation: %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        async with answering(away % private.encode()) as (sending, _):
            assert "left out" in await tried(sending, sandbox, Outside())
            assert heard == []
            async with httpx.AsyncClient(follow_redirects=True) as control:
                assert (await control.post(sending)).text == "metadata"


async def test_what_is_sent_to_a_server_is_capped(sandbox: Sandbox) -> None:
    async with by_http() as server:
        assert server.url is not None
        assert await tried(server.url, sandbox, Outside(upload_mb=0)) == (
            "the MCP server numbers is left out: 127.0.0.1: more would be sent than the sandbox may "
            "(setting `upload_mb`)"
        )
        assert await tried(server.url, sandbox, Outside(upload_mb=1)) == "5"


async def test_a_cap_is_not_set_back_by_a_new_connection() -> None:
    async with answering(said(b"ok")) as (url, _), Outside(upload_mb=1).to(url) as door:
        async with door.client({}) as client:
            assert (await client.post(url, content=b"x" * 600_000)).text == "ok"
        async with door.client({}) as client:
            with pytest.raises(httpx.HTTPError):
                await client.post(url, content=b"x" * 600_000)
        assert door.refusal() == "127.0.0.1: more would be sent than the sandbox may (setting `upload_mb`)"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (said(b"x" * (MOST_BYTES + 1)), "longer than 20,000,000 bytes"),
        (said(b"x", b"content-encoding: gzip"), "compressed"),
    ],
)
async def test_an_answer_without_end_is_broken_off(answer: bytes, told: str) -> None:
    async with answering(answer) as (url, _), Outside().to(url) as door, door.client({}) as client:
        with pytest.raises(httpx.HTTPError, match=told):
            await client.get(url)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of its own for the public name."""
    pem = tmp_path_factory.mktemp("certificate") / "server.pem"
    make = f"openssl req -x509 -nodes -newkey ed25519 -days 2 -subj /CN=x -addext subjectAltName=DNS:{PUBLIC}"
    subprocess.run([*make.split(), "-keyout", pem, "-out", f"{pem}.crt"], check=True, capture_output=True)
    with pem.open("ab") as out:
        out.write(Path(f"{pem}.crt").read_bytes())
    return pem


async def test_tls_is_checked_against_the_operators_certificates(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trusting = Outside(ca_bundle=certificate, resolve=leads_here, allow_addresses=("127.0.0.0/8",))
    async with answering(said(b"secure"), context) as (url, _):
        url = url.replace("127.0.0.1", PUBLIC)
        async with trusting.to(url) as door, door.client({}) as client:
            assert (await client.get(url)).text == "secure"
            with pytest.raises(httpx.HTTPError):  # a handshake that names another host
                await client.get(url.replace(PUBLIC, "other.example.org"))
            assert door.refusal() == f"{PUBLIC}: the TLS handshake does not name the host that was asked for"
        wary = Outside(resolve=leads_here, allow_addresses=("127.0.0.0/8",))
        async with wary.to(url) as door, door.client({}) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(url)


async def test_the_operators_own_proxy_is_used_and_only_it_hears_its_password(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said(b"through"))
        writer.close()

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("this network resolves no foreign names")

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = build({"data": tmp_path, "proxy": f"http://u:p@127.0.0.1:{port}"}, "the test")
        outside = Outside.of(settings)
        outside.resolve = unknown
        url = f"http://{PUBLIC}:8080/mcp"
        async with outside.to(url) as door, door.client({}) as client:
            assert (await client.get(url)).text == "through"
    assert heard[0].startswith(b"CONNECT wiki.example.org:8080 HTTP/1.1") and b"Basic" in heard[0]
    assert heard[1].startswith(b"GET /mcp HTTP/1.1") and b"Basic" not in heard[1]
    assert outside.visits() == (
        Visit(host=PUBLIC, port=8080, sent=len(heard[1]), received=len(said(b"through"))),
    )


@pytest.mark.parametrize(
    "url", ["ftp://x.org", "https://", "https://:secret@x.org/mcp", "http://x.org:99999/"]
)
def test_a_url_that_names_no_server_is_told_at_once(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="mcp_servers") as told:
        build({"data": tmp_path, "mcp_servers": {"wiki": {"url": url}}}, "the test")
    assert "secret" not in str(told.value)
