"""Linked hosts can be read through the proxy with the key of one action, and nothing can be sent to them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from patchwright.runtime.egress.proxy import EgressProxy
from patchwright.runtime.egress_policy import UpstreamProxy
from tests.runtime.egress.conftest import Client
from tests.runtime.fake_internet import PUBLIC
from tests.runtime.linked_site import LINKED, LinkedSite, html, linked_site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LinkedSite]:
    async with linked_site(tmp_path) as site:
        site.pages["/a?b=c"] = html("hi")
        yield site


@pytest.fixture
async def proxy(site: LinkedSite) -> EgressProxy:
    return EgressProxy(site.egress())


@pytest.fixture
async def client(proxy: EgressProxy, short_tmp: Path) -> AsyncIterator[Client]:
    async with proxy.listen(short_tmp / "e") as connection_log:
        yield Client(short_tmp / "e", connection_log)


def request(key: str, method: str = "GET", url: str = f"https://{LINKED}/a?b=c", more: str = "") -> bytes:
    head = f"{method} {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer {key}\r\n{more}\r\n"
    return head.encode()


async def status(client: Client, data: bytes) -> bytes:
    return (await client.ask(data)).split(b" ", 2)[1]


async def test_a_linked_page_is_read_with_the_key(
    client: Client, proxy: EgressProxy, site: LinkedSite
) -> None:
    key = proxy.links.allow([LINKED])
    assert (await client.ask(request(key))) == html("hi")
    assert site.requests == [f"GET /a?b=c HTTP/1.1\r\nHost: {LINKED}\r\nConnection: close\r\n\r\n"]
    assert key not in str(site.requests)
    (visit,) = client.connection_log.take()
    assert (visit.host, visit.port, visit.denied) == (LINKED, 443, None)
    assert visit.bytes_sent > 0 and visit.bytes_received == len(html("hi"))


async def test_without_the_key_of_this_action_nothing_is_read(
    client: Client, proxy: EgressProxy, site: LinkedSite
) -> None:
    old = proxy.links.allow([LINKED])
    key = proxy.links.allow([LINKED])
    assert await status(client, request(old)) == b"400"
    assert await status(client, request("")) == b"400"
    assert (
        await client.status(LINKED)
        == f"403 {LINKED}: it is not on the allowlist (setting `allowed_hosts`)".encode()
    )
    assert await status(client, request(key, url="https://other.test/")) == b"400"
    assert site.dialed == []
    assert await status(client, request(key)) == b"200"
    proxy.links.deny()
    assert await status(client, request(key)) == b"400"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_can_be_sent_to_a_linked_host(
    client: Client, proxy: EgressProxy, site: LinkedSite, method: str
) -> None:
    key = proxy.links.allow([LINKED])
    assert await status(client, request(key, method)) == b"403"
    assert await status(client, request(key, more="Content-Length: 3\r\n")) == b"403"
    assert site.requests == []
    assert await status(client, request(key, "HEAD")) == b"200"


async def test_a_linked_name_with_a_private_address_is_not_dialed(
    client: Client, proxy: EgressProxy, site: LinkedSite
) -> None:
    site.names |= {
        "metadata.test": ["169.254.169.254"],
        "inner.test": ["10.0.0.1"],
        "two.test": [PUBLIC, "::1"],
    }
    key = proxy.links.allow([*site.names, "127.0.0.1", "localhost"])
    for host in ("metadata.test", "inner.test", "two.test", "127.0.0.1", "localhost"):
        assert await status(client, request(key, url=f"https://{host}/")) == b"403"
    assert await status(client, request(key, url=f"https://{LINKED}:8443/")) == b"403"
    assert site.dialed == []
    assert await status(client, request(key)) == b"200"


async def test_a_server_with_another_certificate_is_not_read(
    client: Client, proxy: EgressProxy, site: LinkedSite, short_tmp: Path
) -> None:
    site.names["fake.test"] = [PUBLIC]
    key = proxy.links.allow([LINKED, "fake.test"])
    assert await client.ask(request(key, url="https://fake.test/a?b=c")) == b""
    assert client.refused() == {"fake.test": "unreachable"}
    assert site.requests == []


async def test_what_a_page_sends_counts_toward_the_upload_limit(site: LinkedSite, short_tmp: Path) -> None:
    proxy = EgressProxy(site.egress(max_upload_bytes=200))
    async with proxy.listen(short_tmp / "e") as connection_log:
        client = Client(short_tmp / "e", connection_log)
        key = proxy.links.allow([LINKED])
        assert await client.ask(request(key, url=f"https://{LINKED}/{'x' * 200}")) == b""
        assert client.refused() == {LINKED: "upload"}
        assert await status(client, request(key)) == b"200"


async def test_a_linked_host_is_read_through_the_upstream_proxy(site: LinkedSite, short_tmp: Path) -> None:
    received: list[bytes] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        far = await asyncio.open_connection("127.0.0.1", site.port)
        await asyncio.gather(_copy(reader, far[1]), _copy(far[0], writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    config = site.egress()
    upstream = UpstreamProxy(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    proxy = EgressProxy(replace(config, upstream=upstream, dial=None))
    async with server, proxy.listen(short_tmp / "e") as connection_log:
        key = proxy.links.allow([LINKED])
        client = Client(short_tmp / "e", connection_log)
        assert await client.ask(request(key)) == html("hi")
    assert received == [f"CONNECT {LINKED}:443 HTTP/1.1\r\nHost: {LINKED}:443\r\n\r\n".encode()]


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    target.close()
