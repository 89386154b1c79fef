"""The host's connections to MCP servers follow the egress policy, except for the server that the operator
configured.
"""

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

from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.run_settings import McpServer
from patchwright.resolver.settings.settings import build_settings
from patchwright.resolver.tools.mcp import connect_mcp_tools
from patchwright.resolver.tools.mcp_transport import MAX_RESPONSE_BYTES, McpConnector
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.egress_forwarder import StreamPair
from patchwright.runtime.egress_policy import ConnectionSummary
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.sandbox import Sandbox
from tests.resolver.mcp_http_server import call_tool, serve_mcp_over_http

PUBLIC = "wiki.example.org"


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, dict(os.environ)).open("mcp") as opened:
        yield opened


async def leads_here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def try_call(url: str, sandbox: Sandbox, outside: McpConnector) -> str:
    """Returns the result of a call, or why the server was skipped."""
    received: list[str] = []
    async with connect_mcp_tools({"numbers": McpServer(url=url)}, sandbox, received.append, outside) as found:
        if received:
            return received[0]
        answer = await call_tool(ToolRegistry(found), "numbers_add", a=2, b=3)
        return answer.text if isinstance(answer, ExternalToolResult) else str(answer)


def of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    return parts.hostname, parts.port


@pytest.mark.slow
async def test_a_configured_private_address_is_called_and_recorded(
    sandbox: Sandbox,
) -> None:
    outside = McpConnector()
    async with serve_mcp_over_http() as server:
        assert server.url is not None
        assert await try_call(server.url, sandbox, outside) == "5"
        (visit,) = outside.get_connections()
        assert (visit.host, visit.port) == of(server.url) and visit.denied is None
        assert visit.bytes_sent > 500 and visit.bytes_received > 500


@pytest.mark.slow
async def test_a_public_name_that_resolves_to_this_machine_is_denied(sandbox: Sandbox) -> None:
    async with serve_mcp_over_http() as server:
        assert server.url is not None
        url = server.url.replace("127.0.0.1", PUBLIC)
        refusing = McpConnector(resolve=leads_here)
        assert await try_call(url, sandbox, refusing) == (
            f"the MCP server numbers is skipped: {PUBLIC}: it resolves to an address that is not public "
            "(setting `allowed_addresses`)"
        )
        (visit,) = refusing.get_connections()
        assert (visit.host, visit.port, visit.denied, visit.bytes_sent) == (*of(url), "private", 0)
        # The control: the same call with this machine's addresses allowed.
        assert (
            await try_call(url, sandbox, McpConnector(allowed_addresses=("127.0.0.0/8",), resolve=leads_here))
            == "5"
        )


async def test_a_name_is_checked_again_for_each_connection() -> None:
    received: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        received.append(host)
        return ["93.184.215.14"] if len(received) == 1 else ["169.254.169.254"]

    async def dial(address: str, port: int) -> StreamPair:
        assert address == "93.184.215.14", "nothing else is dialled"
        return await asyncio.open_connection("127.0.0.1", port)

    async with fixed_server(http_response(b"named")) as (url, _):
        url = url.replace("127.0.0.1", PUBLIC)
        async with (
            McpConnector(resolve=rebinding, dial=dial).connect(url) as door,
            door.build_client({}) as client,
        ):
            assert (await client.get(url)).text == "named"
            with pytest.raises(httpx.HTTPError):
                await client.get(url)
            assert door.take_denial() == (
                f"{PUBLIC}: it resolves to an address that is not public (setting `allowed_addresses`)"
            )


@asynccontextmanager
async def fixed_server(
    answer: bytes, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that sends every client the same bytes and records what it receives."""
    received: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        if length := re.search(rb"content-length: (\d+)", received[-1], re.IGNORECASE):
            await reader.readexactly(int(length[1]))
        writer.write(answer)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls) as server:
        yield f"http{'s' * bool(tls)}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", received


def http_response(body: bytes, *headers: bytes) -> bytes:
    head = (b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), b"connection: close", *headers)
    return b"\r\n".join(head) + b"\r\n\r\n" + body


async def test_another_host_is_unreachable() -> None:
    async with (
        fixed_server(http_response(b"named")) as (named, _),
        fixed_server(http_response(b"other")) as (other, received),
    ):
        async with McpConnector().connect(named) as door, door.build_client({}) as client:
            assert (await client.get(other)).text == "named"  # all connections lead to the configured server
        assert received == []
        async with httpx.AsyncClient() as control:
            assert (await control.get(other)).text == "other"


async def test_a_redirect_to_a_private_address_is_not_followed(sandbox: Sandbox) -> None:
    async with fixed_server(http_response(b"metadata")) as (private, received):
        away = b"HTTP/1.1 307 x\r\nlocation: %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        async with fixed_server(away % private.encode()) as (sending, _):
            assert "skipped" in await try_call(sending, sandbox, McpConnector())
            assert received == []
            async with httpx.AsyncClient(follow_redirects=True) as control:
                assert (await control.post(sending)).text == "metadata"


@pytest.mark.slow
async def test_the_upload_to_a_server_is_limited(sandbox: Sandbox) -> None:
    async with serve_mcp_over_http() as server:
        assert server.url is not None
        assert await try_call(server.url, sandbox, McpConnector(max_upload_mb=0)) == (
            "the MCP server numbers is skipped: 127.0.0.1: the upload limit is reached "
            "(setting `max_upload_mb`)"
        )
        assert await try_call(server.url, sandbox, McpConnector(max_upload_mb=1)) == "5"


async def test_a_new_connection_does_not_reset_the_upload_limit() -> None:
    async with (
        fixed_server(http_response(b"ok")) as (url, _),
        McpConnector(max_upload_mb=1).connect(url) as door,
    ):
        async with door.build_client({}) as client:
            assert (await client.post(url, content=b"x" * 600_000)).text == "ok"
        async with door.build_client({}) as client:
            with pytest.raises(httpx.HTTPError):
                await client.post(url, content=b"x" * 600_000)
        assert door.take_denial() == "127.0.0.1: the upload limit is reached (setting `max_upload_mb`)"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http_response(b"x" * (MAX_RESPONSE_BYTES + 1)), "larger than 20,000,000 bytes"),
        (http_response(b"x", b"content-encoding: gzip"), "compressed"),
    ],
)
async def test_an_endless_response_is_cut_off(answer: bytes, expected: str) -> None:
    async with (
        fixed_server(answer) as (url, _),
        McpConnector().connect(url) as door,
        door.build_client({}) as client,
    ):
        with pytest.raises(httpx.HTTPError, match=expected):
            await client.get(url)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a self-signed certificate for the public name."""
    pem = tmp_path_factory.mktemp("certificate") / "server.pem"
    make = f"openssl req -x509 -nodes -newkey ed25519 -days 2 -subj /CN=x -addext subjectAltName=DNS:{PUBLIC}"
    subprocess.run([*make.split(), "-keyout", pem, "-out", f"{pem}.crt"], check=True, capture_output=True)
    with pem.open("ab") as out:
        out.write(Path(f"{pem}.crt").read_bytes())
    return pem


async def test_tls_is_verified_with_the_operators_ca_bundle(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trusting = McpConnector(ca_bundle=certificate, resolve=leads_here, allowed_addresses=("127.0.0.0/8",))
    async with fixed_server(http_response(b"secure"), context) as (url, _):
        url = url.replace("127.0.0.1", PUBLIC)
        async with trusting.connect(url) as door, door.build_client({}) as client:
            assert (await client.get(url)).text == "secure"
            with pytest.raises(httpx.HTTPError):  # the TLS handshake names another host
                await client.get(url.replace(PUBLIC, "other.example.org"))
            assert door.take_denial() == f"{PUBLIC}: the TLS handshake does not name the requested host"
        wary = McpConnector(resolve=leads_here, allowed_addresses=("127.0.0.0/8",))
        async with wary.connect(url) as door, door.build_client({}) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(url)


async def test_the_operators_proxy_is_used_and_only_it_gets_the_password(tmp_path: Path) -> None:
    received: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http_response(b"through"))
        writer.close()

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("this network resolves no foreign names")

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = build_settings({"data": tmp_path, "proxy": f"http://u:p@127.0.0.1:{port}"})
        outside = McpConnector.from_settings(settings)
        outside.resolve = unknown
        url = f"http://{PUBLIC}:8080/mcp"
        async with outside.connect(url) as door, door.build_client({}) as client:
            assert (await client.get(url)).text == "through"
    assert received[0].startswith(b"CONNECT wiki.example.org:8080 HTTP/1.1") and b"Basic" in received[0]
    assert received[1].startswith(b"GET /mcp HTTP/1.1") and b"Basic" not in received[1]
    assert outside.get_connections() == (
        ConnectionSummary(
            host=PUBLIC, port=8080, bytes_sent=len(received[1]), bytes_received=len(http_response(b"through"))
        ),
    )


@pytest.mark.parametrize(
    "url", ["ftp://x.org", "https://", "https://:secret@x.org/mcp", "http://x.org:99999/"]
)
def test_an_invalid_server_url_is_rejected(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="mcp_servers") as error:
        build_settings({"data": tmp_path, "mcp_servers": {"wiki": {"url": url}}})
    assert "secret" not in str(error.value)
