"""The port inside a container that leads to the proxy, over real sockets."""

import asyncio
import os
import socket
from pathlib import Path

from runtime.forward import CONNECTIONS, forwarding

MORE = 40


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def test_connections_beyond_the_limit_wait_for_their_turn(short_tmp: Path) -> None:
    """npm opens one for each package; one that is closed without a word costs it five minutes."""
    served = 0
    all_at_once, go = asyncio.Event(), asyncio.Event()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        asked = await reader.readline()
        served += 1
        if served == CONNECTIONS:
            all_at_once.set()
        await go.wait()
        writer.write(b"answer to " + asked)
        writer.close()

    async def ask(number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\n" % number)
        answer = await reader.read()
        writer.close()
        return answer

    port, way = free_port(), str(short_tmp / "e")
    async with (
        await asyncio.start_unix_server(proxy, way),
        forwarding(way, os.getuid(), port),
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        asked = [group.create_task(ask(number)) for number in range(CONNECTIONS + MORE)]
        await all_at_once.wait()
        await asyncio.sleep(0.2)
        assert served == CONNECTIONS
        assert not any(task.done() for task in asked)
        go.set()
    assert [task.result() for task in asked] == [b"answer to %d\n" % n for n in range(CONNECTIONS + MORE)]
