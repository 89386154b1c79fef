"""The egress proxy on its real socket, with a fake internet behind it."""

import asyncio
import contextlib
import dataclasses
import time
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.runtime.egress import proxy_request
from patchwright.runtime.egress.proxy import EgressConfig, EgressProxy
from patchwright.runtime.egress_policy import ConnectionSummary, UpstreamProxy, merge_summaries
from tests.runtime.egress.conftest import Client
from tests.runtime.fake_internet import ALLOWED, PUBLIC, Internet, UncheckedPolicy, client_hello


async def naive(net: Internet, place: Path, host: str, port: int = 443) -> bytes:
    """Send the same request to a proxy whose policy checks nothing."""
    async with EgressProxy(EgressConfig(UncheckedPolicy(), resolve=net.resolve, dial=net.dial)).listen(
        place / "n"
    ) as connection_log:
        return await Client(place / "n", connection_log).status(host, port)


# --- permitted
# --------------------------------------------------------------------------------------------------


async def test_tls_to_an_allowed_host_is_relayed_both_ways(client: Client, net: Internet) -> None:
    line, (reader, writer) = await client.tunnel(ALLOWED)
    assert line == b"200 Connection established"
    hello = client_hello(ALLOWED)
    for part in (hello[:3], hello[3:100], hello[100:]):
        writer.write(part)
        await asyncio.sleep(0.01)
    assert await reader.readexactly(len(hello)) == hello
    large = bytes(range(256)) * 4096  # 1 MiB
    writer.write(large)
    assert await asyncio.wait_for(reader.readexactly(len(large)), 10) == large
    writer.write_eof()
    assert await reader.read() == b""
    assert net.dialed == [(PUBLIC, 443)]
    sent = len(hello) + len(large)
    assert client.connection_log.take() == (
        ConnectionSummary(host=ALLOWED, port=443, count=1, bytes_sent=sent, bytes_received=sent),
    )


async def test_plain_http_requests_are_rewritten(client: Client, net: Internet) -> None:
    net.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    request = (
        f"GET http://{ALLOWED}/a?b=c HTTP/1.1\r\nHost: elsewhere.test\r\nAccept: */*\r\nConnection: TE, X-Own\r\n"
        "TE: trailers\r\nExpect: 100-continue\r\nKeep-Alive: 5\r\nTrailer: X\r\nContent-Length: 0\r\n"
        "X-Own: 1\r\nProxy-Authorization: secret\r\nUpgrade: h2c\r\n\r\nGET http://elsewhere.test/ HTTP/1.1\r\n\r\n"
    )
    assert await client.ask(request.encode()) == net.answer
    expected = f"GET /a?b=c HTTP/1.1\r\nHost: {ALLOWED}\r\nConnection: close\r\naccept: */*\r\n\r\n"
    assert bytes(net.received).decode() == expected
    assert net.dialed == [(PUBLIC, 80)]


async def test_the_upstream_proxy_gets_names_and_its_password_stays_outside(
    net: Internet, short_tmp: Path
) -> None:
    net.answer = b"HTTP/1.1 200 OK\r\n\r\n"
    net.names.clear()  # a network that resolves no foreign names
    upstream = UpstreamProxy.from_url("http://me:p%40ss@proxy.corp:3128")
    egress = EgressConfig(net.egress().policy, upstream=upstream, resolve=net.resolve, dial=net.dial)
    async with EgressProxy(egress).listen(short_tmp / "e") as connection_log:
        client = Client(short_tmp / "e", connection_log)
        assert (await client.status(ALLOWED)).startswith(b"200")
        assert net.dialed == [("proxy.corp", 3128)]
        assert bytes(net.received).decode() == (
            f"CONNECT {ALLOWED}:443 HTTP/1.1\r\nHost: {ALLOWED}:443\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
        )
        net.received.clear()
        await client.ask(f"GET http://{ALLOWED}/x HTTP/1.1\r\n\r\n".encode())
        assert net.received.startswith(f"GET http://{ALLOWED}/x HTTP/1.1\r\nHost: {ALLOWED}\r\n".encode())
        net.names["inside.corp"] = ["10.0.0.1"]
        assert (await client.status("inside.corp")).startswith(b"403")


async def test_a_silent_upstream_proxy_is_dropped(net: Internet, short_tmp: Path) -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other side closes
        ended.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    net.port = server.sockets[0].getsockname()[1]
    policy = dataclasses.replace(
        net.egress(), upstream=UpstreamProxy.from_url("http://10.0.0.9:3128"), step_timeout=0.3
    )
    async with EgressProxy(policy).listen(short_tmp / "e") as connection_log:
        status = await Client(short_tmp / "e", connection_log).status(ALLOWED)
        assert status == b"502 allowed.test: it does not respond"
        await asyncio.wait_for(ended.wait(), 5)
    server.close()


@pytest.mark.parametrize("url", ["socks5://x:1", "https://proxy:3128", "http://", "http://proxy/path"])
def test_a_proxy_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^write a proxy as http://host:port$"):
        UpstreamProxy.from_url(url)


# --- denied, with controls that check nothing
# -------------------------------------------------------------------


async def test_an_unlisted_host_is_not_resolved(client: Client, net: Internet, short_tmp: Path) -> None:
    net.names["github.com"] = [PUBLIC]
    expected = b"403 github.com: it is not on the allowlist (setting `allowed_hosts`)"
    assert await client.status("github.com") == expected
    assert net.looked_up == []
    assert client.refused() == {"github.com": "unlisted"}
    assert client.connection_log.take_denied() == {"github.com": "unlisted"}
    assert (await naive(net, short_tmp, "github.com")).startswith(b"200")


@pytest.mark.parametrize(
    "addresses",
    [["169.254.169.254"], ["127.0.0.1"], ["10.0.0.1"], ["::1"], ["::ffff:10.0.0.1"], [PUBLIC, "192.168.0.1"]],
)
async def test_an_allowed_name_with_a_private_address_is_not_dialed(
    client: Client, net: Internet, short_tmp: Path, addresses: list[str]
) -> None:
    net.names[ALLOWED] = addresses
    assert (await client.status(ALLOWED)).startswith(b"403")
    assert net.dialed == []
    (visit,) = merge_summaries(client.connection_log.take())
    assert (visit.host, visit.denied) == (ALLOWED, "private")
    assert ip_address(visit.address) == ip_address(addresses[-1])
    assert (await naive(net, short_tmp, ALLOWED)).startswith(b"200")
    assert net.dialed


async def test_a_name_is_resolved_once_so_that_it_cannot_change(client: Client, net: Internet) -> None:
    """The checked address is dialed, so a second answer of the name server (DNS rebinding) has no effect."""
    assert (await client.status(ALLOWED)).startswith(b"200")
    assert net.dialed == [(PUBLIC, 443)]
    assert net.looked_up == [ALLOWED]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:169.254.169.254]"])
async def test_an_ip_address_as_a_host_is_denied(client: Client, net: Internet, host: str) -> None:
    assert (await client.status(host)).startswith(b"403")
    assert net.dialed == []


@pytest.mark.parametrize("port", [22, 25, 80, 8080])
async def test_other_ports_are_refused(client: Client, net: Internet, short_tmp: Path, port: int) -> None:
    assert (await client.status(ALLOWED, port)).startswith(b"403")
    assert net.dialed == []
    assert (await naive(net, short_tmp, ALLOWED, port)).startswith(b"200")


@pytest.mark.parametrize(
    "first",
    [client_hello("evil.test"), client_hello(None), b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n"],
    ids=["another host", "no host", "ssh", "http"],
)
async def test_a_handshake_without_the_requested_host_is_denied(
    client: Client, net: Internet, first: bytes
) -> None:
    _, (reader, writer) = await client.tunnel(ALLOWED)
    writer.write(first)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert bytes(net.received) == b""
    assert client.refused() == {ALLOWED: "sni"}


async def test_a_client_that_closes_without_a_word_is_not_denied(client: Client, net: Internet) -> None:
    """Some clients, such as package installers, open more connections than they need."""
    _, (reader, writer) = await client.tunnel(ALLOWED)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert (bytes(net.received), client.refused()) == (b"", {})


async def test_a_handshake_in_many_chunks_is_rejected(client: Client, net: Internet) -> None:
    hello = client_hello(ALLOWED)
    for pieces, received in ((20, hello), (200, b"")):
        net.received.clear()
        _, (reader, writer) = await client.tunnel(ALLOWED)
        for at in range(pieces):
            writer.write(hello[at : at + 1] if at < pieces - 1 else hello[at:])
            await asyncio.sleep(0.002)
        writer.write_eof()
        with contextlib.suppress(OSError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert bytes(net.received) == received
    assert client.refused() == {ALLOWED: "sni"}


async def test_a_package_index_with_an_ip_address_is_reached(net: Internet, short_tmp: Path) -> None:
    net.names["10.0.0.5"] = ["10.0.0.5"]
    own = net.egress(trusted_endpoints=frozenset({("10.0.0.5", 8443)}))
    async with EgressProxy(own).listen(short_tmp / "e") as connection_log:
        client = Client(short_tmp / "e", connection_log)
        _, (reader, writer) = await client.tunnel("10.0.0.5", 8443)
        hello = client_hello(None)  # TLS names no addresses
        writer.write(hello)
        assert await asyncio.wait_for(reader.readexactly(len(hello)), 10) == hello
        writer.close()
        assert (await client.status("10.0.0.5")).startswith(b"403")


async def test_without_a_resolver_and_a_dialer_the_host_resolves_and_connects(
    net: Internet, short_tmp: Path
) -> None:
    endpoints = frozenset({("localhost", net.port), ("127.0.0.2", net.port)})
    policy = net.egress(trusted_endpoints=endpoints).policy
    async with EgressProxy(EgressConfig(policy)).listen(short_tmp / "e") as connection_log:
        client = Client(short_tmp / "e", connection_log)
        # The test's server listens only on 127.0.0.1.
        assert await client.status("127.0.0.2", net.port) == b"502 127.0.0.2: it does not respond"
        _, (reader, writer) = await client.tunnel("localhost", net.port)
        hello = client_hello("localhost")
        writer.write(hello)
        assert await asyncio.wait_for(reader.readexactly(len(hello)), 10) == hello
        writer.close()
    assert bytes(net.received) == hello


async def test_many_denials_are_slow_and_logged_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "patchwright.runtime.egress.proxy")
    start = time.monotonic()
    for _ in range(3):
        assert (await client.status("github.com")).startswith(b"403")
    assert time.monotonic() - start > 0.25
    [record] = caplog.records
    assert (record.getMessage(), vars(record)["host"], vars(record)["port"], vars(record)["reason"]) == (
        *("egress denied", "github.com", 443, "unlisted"),
    )
    assert client.connection_log.take() == (
        ConnectionSummary(host="github.com", port=443, denied="unlisted", count=3),
    )


@given(st.binary(max_size=200))
def test_no_bytes_break_the_proxy(data: bytes) -> None:
    for each in (data, b"CONNECT " + data + b" HTTP/1.1", b"GET http://" + data + b" HTTP/1.1\r\n" + data):
        with contextlib.suppress(proxy_request.MalformedRequest):
            proxy_request.parse_request(each + b"\r\n\r\n")


@pytest.mark.parametrize(
    "request_",
    [
        f"POST http://{ALLOWED}/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        f"GET http://{ALLOWED}/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        f"GET http://{ALLOWED}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        f"PUT http://{ALLOWED}/ HTTP/1.1\r\n\r\n",
    ],
)
async def test_plain_http_only_reads(client: Client, net: Internet, request_: str) -> None:
    assert (await client.ask(request_.encode())).startswith(b"HTTP/1.1 403 ")
    assert net.dialed == []


@pytest.mark.parametrize(
    "request_",
    [
        *(
            b"GET / HTTP/1.1\r\n\r\n",
            b"nonsense\r\n\r\n",
            b"CONNECT allowed.test HTTP/1.1\r\n\r\n",
            b"\r\n\r\n",
        ),
        *(b"GET ftp://allowed.test/ HTTP/1.1\r\n\r\n", b"GET http://u:p@allowed.test/ HTTP/1.1\r\n\r\n"),
        *(
            b"CONNECT allowed.test:99999 HTTP/1.1\r\n\r\n",
            b"CONNECT allowed.test:443/path HTTP/1.1\r\n\r\n",
            b"CONNECT allowed.test:443?query HTTP/1.1\r\n\r\n",
            b"CONNECT allowed.test:443#fragment HTTP/1.1\r\n\r\n",
            b"GET http://allowed.test/ HTTP/1.1\r\n folded\r\n\r\n",
        ),
        *(
            b"GET http://[::1/ HTTP/1.1\r\n\r\n",
            b"GET http://allowed.test/ HTTP/1.1\r\nX: a\nHost: b\r\n\r\n",
        ),
        b"GET http://allowed.test/ HTTP/1.1\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_malformed_requests_are_rejected_cheaply(
    client: Client, net: Internet, request_: bytes
) -> None:
    assert await client.ask(request_) == (
        b"HTTP/1.1 400 not a valid proxy request\r\nContent-Type: text/plain\r\nContent-Length: 26\r\n"
        b"Connection: close\r\n\r\nnot a valid proxy request\n"
    )
    assert net.dialed == []


async def test_the_upload_limit_is_enforced(net: Internet, short_tmp: Path) -> None:
    async with EgressProxy(net.egress(max_upload_bytes=100_000)).listen(short_tmp / "e") as connection_log:
        client = Client(short_tmp / "e", connection_log)
        _, (reader, writer) = await client.tunnel(ALLOWED)
        writer.write(client_hello(ALLOWED) + bytes(500_000))
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert len(net.received) <= 100_000 and connection_log.bytes_sent <= 100_000
        assert client.refused() == {ALLOWED: "upload"}
        assert connection_log.take_denied() == {ALLOWED: "upload"}
    net.received.clear()
    async with EgressProxy(net.egress()).listen(short_tmp / "e") as connection_log:  # control: a larger limit
        _, (reader, writer) = await Client(short_tmp / "e", connection_log).tunnel(ALLOWED)
        writer.write(client_hello(ALLOWED) + bytes(500_000))
        await asyncio.wait_for(reader.readexactly(500_000), 10)
        writer.close()
        assert len(net.received) > 500_000


async def test_the_upload_limit_counts_for_the_whole_sandbox(net: Internet, short_tmp: Path) -> None:
    async with EgressProxy(net.egress(max_upload_bytes=0)).listen(short_tmp / "e") as connection_log:
        status = await Client(short_tmp / "e", connection_log).status(ALLOWED)
        assert status == b"403 allowed.test: the upload limit is reached (setting `max_upload_mb`)"


async def test_resolved_names_count_as_sent_bytes(net: Internet, short_tmp: Path) -> None:
    """The name server of a domain learns the names that are resolved below it."""
    async with EgressProxy(net.egress(allowed_hosts=None, max_upload_bytes=100)).listen(
        short_tmp / "e"
    ) as connection_log:
        statuses = [
            await Client(short_tmp / "e", connection_log).status(f"{'x' * 50}.{n}.out.test") for n in range(5)
        ]
        assert [line[:3] for line in statuses] == [b"502", b"502", b"403", b"403", b"403"]
    assert len(net.looked_up) == 2
