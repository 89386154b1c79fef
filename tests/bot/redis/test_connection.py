"""A Redis client reliably responds to cancellation, and a worker needs Redis to start."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from patchwright.bot.redis.connection import redis_client, wait_for_redis
from patchwright.bot.redis.embedded_redis import find_redis_server, run_embedded_redis
from patchwright.resolver.errors import SettingsError

pytestmark = pytest.mark.redis

LOOP_ITERATIONS = 60  # iterations of the event loop, enough for several requests


async def count_lost_cancellations(redis: Redis, within: float) -> int:
    """Returns how many of many polling tasks miss their cancellation, each canceled one loop iteration later."""

    async def ask() -> None:
        while True:
            await redis.get("x")

    count = 0
    for iterations in range(LOOP_ITERATIONS):
        task = asyncio.create_task(ask())
        for _ in range(iterations):
            await asyncio.sleep(0)
        task.cancel()
        _, running = await asyncio.wait((task,), timeout=within)
        count += bool(running)
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=0.05)
    await redis.aclose()
    return count


@pytest.mark.slow
async def test_a_task_that_polls_redis_receives_every_cancellation(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        assert await count_lost_cancellations(redis_client(url), within=10) == 0
        # From 3.11.3 to 3.11, redis-py's own timeout loses some cancellations; before, it uses another timeout.
        if (3, 11, 3) <= sys.version_info < (3, 12):
            assert await count_lost_cancellations(Redis.from_url(url, socket_timeout=5), within=0.1) > 0


def _find_lookup_error() -> str:
    """Returns why a host's name cannot be resolved here: the system's reason is another one without a network."""
    with pytest.raises(socket.gaierror) as failed:
        socket.getaddrinfo("no-such-host.invalid", 6379)
    return str(failed.value.strerror)


UNKNOWN_HOST = _find_lookup_error()


@pytest.mark.parametrize(
    ("url", "shown", "reason"),
    [
        ("redis://me:hunter2@127.0.0.1:1/0?password=hunter2", "redis://127.0.0.1:1/0", "connection refused"),
        pytest.param(
            "rediss://:hunter2@no-such-host.invalid",
            "rediss://no-such-host.invalid",
            UNKNOWN_HOST,
            id="unknown-host",
        ),
        ("unix://me:hunter2@/nowhere/redis.sock", "unix:///nowhere/redis.sock", "no such file or directory"),
    ],
)
async def test_a_worker_without_redis_says_so_and_gives_up_in_time(url: str, shown: str, reason: str) -> None:
    notices: list[str] = []
    with pytest.raises(SettingsError) as failed:
        await wait_for_redis(url, notices.append, seconds=0.2)
    problem = f"Redis at {shown} does not respond ({reason})."
    assert notices == [f"NOTICE: {problem} Trying again for 0 s."]
    assert str(failed.value) == f"{problem} Start it, or correct REDIS_URL."


async def test_a_worker_does_not_wait_for_a_server_that_is_not_redis() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    notices: list[str] = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"redis://me:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(
            SettingsError, match=r"^The server at .* is not Redis\. Correct REDIS_URL\.$"
        ) as failed:
            await wait_for_redis(url, notices.append, seconds=60)
    assert notices == [] and "hunter2" not in str(failed.value)


async def test_a_worker_waits_for_a_redis_that_is_about_to_start(short_tmp: Path) -> None:
    socket, started = short_tmp / "redis.sock", list[subprocess.Popen[bytes]]()

    def start_redis(_: str) -> None:
        command = (find_redis_server(), "--port", "0", "--unixsocket", str(socket), "--save", "")
        started.append(subprocess.Popen(command, cwd=short_tmp, stdout=subprocess.DEVNULL))

    try:
        await wait_for_redis(f"unix://{socket}", start_redis, seconds=60)
        assert len(started) == 1
    finally:
        for process in started:
            process.terminate()
            process.wait()
