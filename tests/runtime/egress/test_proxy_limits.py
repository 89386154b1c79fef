"""The limits of the egress proxy, and how it closes."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from patchwright.runtime.egress.proxy import EgressProxy
from tests.runtime.egress.conftest import Client
from tests.runtime.fake_internet import ALLOWED, PUBLIC, Internet, client_hello


async def test_connections_at_a_time_are_limited(net: Internet, short_tmp: Path) -> None:
    busy = EgressProxy(dataclasses.replace(net.egress(), max_connections=3))
    async with busy.listen(short_tmp / "e") as connection_log, asyncio.timeout(30):
        client = Client(short_tmp / "e", connection_log)
        held = [await client.dial() for _ in range(3)]
        while busy._connection_count < 3:
            await asyncio.sleep(0.01)
        assert (await client.ask(b"")).startswith(b"HTTP/1.1 503 too many concurrent connections\r\n")
        for _, writer in held:
            writer.close()
        while busy._connection_count:
            await asyncio.sleep(0.01)
        assert (await client.status(ALLOWED)).startswith(b"200")


@pytest.mark.slow
async def test_an_idle_connection_ends(net: Internet, short_tmp: Path) -> None:
    hasty = dataclasses.replace(net.egress(), step_timeout=1, idle_timeout=1)
    async with EgressProxy(hasty).listen(short_tmp / "e") as connection_log:
        client = Client(short_tmp / "e", connection_log)
        assert await client.ask(b"") == b""
        _, (reader, writer) = await client.tunnel(ALLOWED)
        writer.write(client_hello(ALLOWED))
        for _ in range(6):  # traffic in either direction keeps a connection open
            await asyncio.sleep(0.25)
            writer.write(b"x")
        assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"xxxxxx")


async def test_unresolved_names_and_unreachable_hosts_are_reported(client: Client, net: Internet) -> None:
    net.names.clear()
    assert await client.status(ALLOWED) == b"502 allowed.test: its name does not resolve"
    net.names[ALLOWED] = [PUBLIC]
    net.port = 1
    assert await client.status(ALLOWED) == b"502 allowed.test: it does not respond"
    assert len(net.dialed) == 1


async def test_it_closes_quietly_while_connections_are_open(
    net: Internet, short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    async with EgressProxy(net.egress()).listen(short_tmp / "s"):
        _, writer = await asyncio.open_unix_connection(short_tmp / "s")
        writer.write(f"CONNECT {ALLOWED}:443 HTTP/1.1\r\n\r\n".encode())
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    writer.close()
    assert (complaints, caplog.messages) == ([], [])
