"""Connections of the HTTP server that send nothing, and WebSockets that stay open."""

import asyncio
from typing import Any

import pytest
from websockets.asyncio.client import connect

from patchwright.bot import http_server
from patchwright.bot.http_server import HttpServer, open_listener


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


async def test_a_silent_connection_is_closed_and_a_websocket_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "HEADER_TIMEOUT_SECONDS", 0.2)
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        server = HttpServer(echo)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with connect(f"ws://127.0.0.1:{port}/") as socket:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                assert await asyncio.wait_for(reader.read(), 20) == b""  # The server closed it.
                writer.close()
                assert socket.protocol.extensions == []  # No compression, which costs more than the rest.
                await socket.send("still there")
                assert await socket.recv() == "still there"
        finally:
            server.should_exit = True
            await serving
