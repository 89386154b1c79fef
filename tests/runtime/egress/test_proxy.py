"""The egress proxy over its real socket, with the stand-in for the internet behind it."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.egress import proxy
from runtime.egress.egress import Ledger, Upstream, Visit
from runtime.egress.proxy import Egress, Proxy
from runtime.forward import Stream
from tests.runtime.hosts import ALLOWED, PUBLIC, Internet, Naive, client_hello, internet


@pytest.fixture
async def net() -> AsyncIterator[Internet]:
    async with internet() as made:
        yield made


class Client:
    """What a sandbox does to its proxy."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path = path
        self.ledger = ledger

    async def dial(self) -> Stream:
        return await asyncio.open_unix_connection(self.path)

    async def ask(self, data: bytes) -> bytes:
        """Everything that comes back."""
        reader, writer = await self.dial()
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    async def tunnel(self, host: str, port: int = 443) -> tuple[bytes, Stream]:
        """The first line of the answer to CONNECT, and the connection."""
        stream = await self.dial()
        stream[1].write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        head = await asyncio.wait_for(stream[0].readuntil(b"\r\n\r\n"), 10)
        return head.split(b"\r\n")[0].removeprefix(b"HTTP/1.1 "), stream

    async def status(self, host: str, port: int = 443) -> bytes:
        line, (_, writer) = await self.tunnel(host, port)
        writer.close()
        return line

    def refused(self) -> dict[str, str]:
        return {visit.host: visit.refused for visit in self.ledger.take() if visit.refused}


@pytest.fixture
async def client(net: Internet, short_tmp: Path) -> AsyncIterator[Client]:
    async with Proxy(net.egress()).listening(short_tmp / "e") as ledger:
        yield Client(short_tmp / "e", ledger)


async def naive(net: Internet, place: Path, host: str, port: int = 443) -> bytes:
    """The same question to a proxy whose policy checks nothing."""
    async with Proxy(Egress(Naive(), resolve=net.resolve, dial=net.dial)).listening(place / "n") as ledger:
        return await Client(place / "n", ledger).status(host, port)


# --- what goes through ------------------------------------------------------------------------------------------


async def test_tls_to_a_listed_host_goes_through_both_ways(client: Client, net: Internet) -> None:
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
    assert net.dialled == [(PUBLIC, 443)]
    sent = len(hello) + len(large)
    assert client.ledger.take() == (Visit(host=ALLOWED, port=443, times=1, sent=sent, received=sent),)


async def test_plain_reading_goes_through_rewritten(client: Client, net: Internet) -> None:
    net.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    request = (
        f"GET http://{ALLOWED}/a?b=c HTTP/1.1\r\nHost: elsewhere.test\r\nAccept: */*\r\nConnection: X-Own\r\n"
        "X-Own: 1\r\nProxy-Authorization: secret\r\nUpgrade: h2c\r\n\r\nGET http://elsewhere.test/ HTTP/1.1\r\n\r\n"
    )
    assert await client.ask(request.encode()) == net.answer
    expected = f"GET /a?b=c HTTP/1.1\r\nHost: {ALLOWED}\r\nConnection: close\r\naccept: */*\r\n\r\n"
    assert bytes(net.heard).decode() == expected
    assert net.dialled == [(PUBLIC, 80)]


async def test_the_operators_own_proxy_is_asked_by_name_and_its_password_stays_outside(
    net: Internet, short_tmp: Path
) -> None:
    net.answer = b"HTTP/1.1 200 OK\r\n\r\n"
    net.names.clear()  # a network that resolves no foreign names
    upstream = Upstream.of("http://me:p%40ss@proxy.corp:3128")
    egress = Egress(net.egress().policy, upstream=upstream, resolve=net.resolve, dial=net.dial)
    async with Proxy(egress).listening(short_tmp / "e") as ledger:
        client = Client(short_tmp / "e", ledger)
        assert (await client.status(ALLOWED)).startswith(b"200")
        assert net.dialled == [("proxy.corp", 3128)]
        assert bytes(net.heard).decode() == (
            f"CONNECT {ALLOWED}:443 HTTP/1.1\r\nHost: {ALLOWED}:443\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
        )
        net.heard.clear()
        await client.ask(f"GET http://{ALLOWED}/x HTTP/1.1\r\n\r\n".encode())
        assert net.heard.startswith(f"GET http://{ALLOWED}/x HTTP/1.1\r\nHost: {ALLOWED}\r\n".encode())
        net.names["inside.corp"] = ["10.0.0.1"]
        assert (await client.status("inside.corp")).startswith(b"403")


async def test_a_proxy_that_says_nothing_is_let_go(net: Internet, short_tmp: Path) -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # to the end that the other side makes
        ended.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    net.port = server.sockets[0].getsockname()[1]
    asked = dataclasses.replace(net.egress(), upstream=Upstream.of("http://10.0.0.9:3128"), patience=0.3)
    async with Proxy(asked).listening(short_tmp / "e") as ledger:
        told = await Client(short_tmp / "e", ledger).status(ALLOWED)
        assert told == b"502 allowed.test: it does not answer"
        await asyncio.wait_for(ended.wait(), 5)
    server.close()


@pytest.mark.parametrize("url", ["socks5://x:1", "https://proxy:3128", "http://", "http://proxy/path"])
def test_a_proxy_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="a proxy is given as"):
        Upstream.of(url)


# --- what does not, and the same where nothing is checked -------------------------------------------------------


async def test_a_host_off_the_list_is_not_even_looked_up(
    client: Client, net: Internet, short_tmp: Path
) -> None:
    net.names["github.com"] = [PUBLIC]
    told = b"403 github.com: it is not on the allow-list (setting `allow_hosts`)"
    assert await client.status("github.com") == told
    assert net.looked_up == []
    assert client.refused() == {"github.com": "unlisted"}
    assert client.ledger.take_refused() == {"github.com": "unlisted"}
    assert (await naive(net, short_tmp, "github.com")).startswith(b"200")


@pytest.mark.parametrize(
    "addresses",
    [["169.254.169.254"], ["127.0.0.1"], ["10.0.0.1"], ["::1"], ["::ffff:10.0.0.1"], [PUBLIC, "192.168.0.1"]],
)
async def test_a_listed_name_that_leads_inside_is_not_dialled(
    client: Client, net: Internet, short_tmp: Path, addresses: list[str]
) -> None:
    net.names[ALLOWED] = addresses
    assert (await client.status(ALLOWED)).startswith(b"403")
    assert net.dialled == []
    assert client.refused() == {ALLOWED: "private"}
    assert (await naive(net, short_tmp, ALLOWED)).startswith(b"200")
    assert net.dialled


async def test_a_name_is_looked_up_once_so_that_it_cannot_move(client: Client, net: Internet) -> None:
    """What is dialled is the address that was looked at: a second answer (DNS rebinding) has nobody to hear it."""
    assert (await client.status(ALLOWED)).startswith(b"200")
    assert net.dialled == [(PUBLIC, 443)]
    assert net.looked_up == [ALLOWED]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:169.254.169.254]"])
async def test_an_address_in_place_of_a_name_is_refused(client: Client, net: Internet, host: str) -> None:
    assert (await client.status(host)).startswith(b"403")
    assert net.dialled == []


@pytest.mark.parametrize("port", [22, 25, 80, 8080])
async def test_other_ports_are_refused(client: Client, net: Internet, short_tmp: Path, port: int) -> None:
    assert (await client.status(ALLOWED, port)).startswith(b"403")
    assert net.dialled == []
    assert (await naive(net, short_tmp, ALLOWED, port)).startswith(b"200")


@pytest.mark.parametrize(
    "first", [client_hello("evil.test"), client_hello(None), b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n"]
)
async def test_what_does_not_name_the_host_in_its_handshake_never_leaves(
    client: Client, net: Internet, first: bytes
) -> None:
    _, (reader, writer) = await client.tunnel(ALLOWED)
    writer.write(first)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert bytes(net.heard) == b""
    assert client.refused() == {ALLOWED: "sni"}


async def test_who_hangs_up_without_a_word_was_refused_nothing(client: Client, net: Internet) -> None:
    """A client that opens more connections than it needs, as package installers do."""
    _, (reader, writer) = await client.tunnel(ALLOWED)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert (bytes(net.heard), client.refused()) == (b"", {})


async def test_a_handshake_in_crumbs_is_not_read_again_for_each(client: Client, net: Internet) -> None:
    hello = client_hello(ALLOWED)
    for pieces, heard in ((20, hello), (200, b"")):
        net.heard.clear()
        _, (reader, writer) = await client.tunnel(ALLOWED)
        for at in range(pieces):
            writer.write(hello[at : at + 1] if at < pieces - 1 else hello[at:])
            await asyncio.sleep(0.002)
        writer.write_eof()
        with contextlib.suppress(OSError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert bytes(net.heard) == heard
    assert client.refused() == {ALLOWED: "sni"}


async def test_an_index_of_the_operators_own_that_has_only_an_address_is_reached(
    net: Internet, short_tmp: Path
) -> None:
    net.names["10.0.0.5"] = ["10.0.0.5"]
    own = net.egress(trusted=frozenset({("10.0.0.5", 8443)}))
    async with Proxy(own).listening(short_tmp / "e") as ledger:
        client = Client(short_tmp / "e", ledger)
        _, (reader, writer) = await client.tunnel("10.0.0.5", 8443)
        hello = client_hello(None)  # TLS names no addresses
        writer.write(hello)
        assert await asyncio.wait_for(reader.readexactly(len(hello)), 10) == hello
        writer.close()
        assert (await client.status("10.0.0.5")).startswith(b"403")


async def test_a_flood_of_refusals_is_slow_and_short_in_the_log(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "runtime.egress.proxy")
    begun = time.monotonic()
    for _ in range(3):
        assert (await client.status("github.com")).startswith(b"403")
    assert time.monotonic() - begun > 0.25
    assert [record.getMessage() for record in caplog.records] == ["egress refused"]
    assert client.ledger.take() == (Visit(host="github.com", port=443, refused="unlisted", times=3),)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_proxy(data: bytes) -> None:
    for each in (data, b"CONNECT " + data + b" HTTP/1.1", b"GET http://" + data + b" HTTP/1.1\r\n" + data):
        with contextlib.suppress(proxy._Malformed):
            proxy._parse(each + b"\r\n\r\n")


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
    assert net.dialled == []


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
            b"GET http://allowed.test/ HTTP/1.1\r\n folded\r\n\r\n",
        ),
        *(
            b"GET http://[::1/ HTTP/1.1\r\n\r\n",
            b"GET http://allowed.test/ HTTP/1.1\r\nX: a\nHost: b\r\n\r\n",
        ),
        b"GET http://allowed.test/ HTTP/1.1\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_answered_so_and_costs_little(
    client: Client, net: Internet, request_: bytes
) -> None:
    assert (await client.ask(request_)).startswith(b"HTTP/1.1 400 ")
    assert net.dialled == []


async def test_no_more_is_sent_than_a_sandbox_may(net: Internet, short_tmp: Path) -> None:
    async with Proxy(net.egress(upload=100_000)).listening(short_tmp / "e") as ledger:
        client = Client(short_tmp / "e", ledger)
        _, (reader, writer) = await client.tunnel(ALLOWED)
        writer.write(client_hello(ALLOWED) + bytes(500_000))
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert len(net.heard) <= 100_000 and ledger.sent <= 100_000
        assert client.refused() == {ALLOWED: "upload"}
        assert ledger.take_refused() == {ALLOWED: "upload"}
    net.heard.clear()
    async with Proxy(net.egress()).listening(short_tmp / "e") as ledger:  # the control: a larger allowance
        _, (reader, writer) = await Client(short_tmp / "e", ledger).tunnel(ALLOWED)
        writer.write(client_hello(ALLOWED) + bytes(500_000))
        await asyncio.wait_for(reader.readexactly(500_000), 10)
        writer.close()
        assert len(net.heard) > 500_000


async def test_a_used_up_allowance_is_for_the_whole_sandbox(net: Internet, short_tmp: Path) -> None:
    async with Proxy(net.egress(upload=0)).listening(short_tmp / "e") as ledger:
        told = await Client(short_tmp / "e", ledger).status(ALLOWED)
        assert told == b"403 allowed.test: more would be sent than the sandbox may (setting `upload_mb`)"


async def test_names_that_are_looked_up_count_as_sent(net: Internet, short_tmp: Path) -> None:
    """Whoever answers for a domain hears what is asked below it."""
    async with Proxy(net.egress(hosts=None, upload=100)).listening(short_tmp / "e") as ledger:
        told = [await Client(short_tmp / "e", ledger).status(f"{'x' * 50}.{n}.out.test") for n in range(5)]
        assert [line[:3] for line in told] == [b"502", b"502", b"403", b"403", b"403"]
    assert len(net.looked_up) == 2


async def test_connections_at_a_time_are_limited(net: Internet, short_tmp: Path) -> None:
    busy = Proxy(dataclasses.replace(net.egress(), connections=3))
    async with busy.listening(short_tmp / "e") as ledger, asyncio.timeout(30):
        client = Client(short_tmp / "e", ledger)
        held = [await client.dial() for _ in range(3)]
        while busy._open < 3:
            await asyncio.sleep(0.01)
        assert (await client.ask(b"")).startswith(b"HTTP/1.1 503 ")
        for _, writer in held:
            writer.close()
        while busy._open:
            await asyncio.sleep(0.01)
        assert (await client.status(ALLOWED)).startswith(b"200")


async def test_a_connection_without_a_byte_ends(net: Internet, short_tmp: Path) -> None:
    hasty = dataclasses.replace(net.egress(), patience=1, idle=1)
    async with Proxy(hasty).listening(short_tmp / "e") as ledger:
        client = Client(short_tmp / "e", ledger)
        assert await client.ask(b"") == b""
        _, (reader, writer) = await client.tunnel(ALLOWED)
        writer.write(client_hello(ALLOWED))
        for _ in range(6):  # a connection that is used lives on, in whichever direction
            await asyncio.sleep(0.25)
            writer.write(b"x")
        assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"xxxxxx")


async def test_names_that_do_not_resolve_and_hosts_that_do_not_answer_are_told(
    client: Client, net: Internet
) -> None:
    net.names.clear()
    assert await client.status(ALLOWED) == b"502 allowed.test: its name does not resolve"
    net.names[ALLOWED] = [PUBLIC]
    net.port = 1
    assert await client.status(ALLOWED) == b"502 allowed.test: it does not answer"
    assert len(net.dialled) == 1


async def test_it_closes_quietly_while_connections_are_open(
    net: Internet, short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    async with Proxy(net.egress()).listening(short_tmp / "s"):
        _, writer = await asyncio.open_unix_connection(short_tmp / "s")
        writer.write(f"CONNECT {ALLOWED}:443 HTTP/1.1\r\n\r\n".encode())
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    writer.close()
    assert (complaints, caplog.messages) == ([], [])
