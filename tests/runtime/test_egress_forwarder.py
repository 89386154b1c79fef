"""The forwarder's port in a container, with real sockets."""

import asyncio
import os
import socket
from pathlib import Path

from patchwright.runtime.egress_forwarder import MAX_CONNECTIONS, forward_connections

MORE = 40


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def test_connections_beyond_the_limit_are_queued(short_tmp: Path) -> None:
    """npm opens a connection for each package; one that is closed silently costs it five minutes."""
    served = 0
    all_at_once, go = asyncio.Event(), asyncio.Event()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        output = await reader.readline()
        served += 1
        if served == MAX_CONNECTIONS:
            all_at_once.set()
        await go.wait()
        writer.write(b"answer to " + output)
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
        forward_connections(way, os.getuid(), port),
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        tasks = [group.create_task(ask(number)) for number in range(MAX_CONNECTIONS + MORE)]
        await all_at_once.wait()
        await asyncio.sleep(0.2)
        assert served == MAX_CONNECTIONS
        assert not any(task.done() for task in tasks)
        go.set()
    assert [task.result() for task in tasks] == [b"answer to %d\n" % n for n in range(MAX_CONNECTIONS + MORE)]
