"""Tests contact no other machine (tests/conftest.py), so that they have the same result anywhere."""

import asyncio
import socket

import pytest

REFUSED = r"a test must not connect to 192\.0\.2\.1"
OTHER_MACHINE = ("192.0.2.1", 443)
"""Source: RFC 5737, addresses for documentation."""


def test_a_connection_to_another_machine_is_refused_with_the_reason() -> None:
    with socket.socket() as client, pytest.raises(OSError, match=REFUSED):
        client.connect(OTHER_MACHINE)


async def test_asyncio_cannot_connect_to_another_machine_either() -> None:
    with pytest.raises(OSError, match=REFUSED):
        await asyncio.open_connection(*OTHER_MACHINE)


async def test_a_server_on_this_machine_is_reached() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
