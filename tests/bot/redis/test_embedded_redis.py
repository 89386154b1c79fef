"""The embedded Redis of `patchwright serve`."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import can_write
from patchwright.bot.redis.embedded_redis import find_redis_server, run_embedded_redis
from patchwright.resolver.errors import SettingsError
from patchwright.runtime import processes
from tests.bot.jobs import job

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[3]


async def put(url: str) -> bool:
    """Queues a job and returns True if it is new to this Redis."""
    queue = ArqQueue(url)
    try:
        return await queue.put(job())
    finally:
        await queue.close()


async def gone(pid: int, seconds: float = 10) -> bool:
    for _ in range(round(seconds / 0.05)):
        if processes.start_time(pid) is None:  # A zombie has ended, even if no init reaps it.
            return True
        await asyncio.sleep(0.05)
    return False


async def test_data_persists_in_any_directory_and_no_socket_remains(tmp_path: Path) -> None:
    data = tmp_path / "a directory with a space" / "ü" / ("deep" * 20)
    async with run_embedded_redis(data) as url:
        socket = Path(unquote(url.removeprefix("unix://")))
        assert len(os.fsencode(socket)) < 107
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert await put(url) is True
    assert not socket.parent.exists()
    async with run_embedded_redis(data) as url:
        assert await put(url) is False


async def test_with_a_short_path_the_socket_is_next_to_the_data(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        assert url == f"unix://{short_tmp}/redis/redis.sock"
        assert stat.S_IMODE((short_tmp / "redis").stat().st_mode) == 0o700


async def test_a_second_server_on_the_same_data_is_rejected(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        with pytest.raises(SettingsError, match=r"Another patchwright server uses .*PATCHWRIGHT_DATA"):
            async with run_embedded_redis(short_tmp):
                pass
        assert await put(url) is True


OWNER = """
import asyncio, sys
from pathlib import Path
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.arq_queue import ArqQueue
from tests.bot.jobs import job

async def main():
    async with run_embedded_redis(Path(sys.argv[1])) as url:
        queue = ArqQueue(url)
        await queue.put(job())
        print((await queue._redis.info())["process_id"], flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start ends it")
async def test_redis_stops_when_its_owner_is_killed_and_keeps_its_data(short_tmp: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(short_tmp)), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    redis = int(await owner.stdout.readline())
    owner.kill()
    await owner.wait()
    assert await gone(redis)
    async with run_embedded_redis(short_tmp) as url:
        assert await put(url) is False


async def accepts_connections(socket: Path) -> bool:
    """Redis creates the socket a moment before it listens."""
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.close()
    return True


async def test_an_orphaned_redis_is_shut_down_first(short_tmp: Path) -> None:
    directory = short_tmp / "redis"
    directory.mkdir(mode=0o700)
    socket = directory / "redis.sock"
    command = [find_redis_server(), "--port", "0", "--unixsocket", str(socket), "--dir", str(directory)]
    orphan = await asyncio.create_subprocess_exec(
        *command, "--appendonly", "yes", "--save", "", stdout=subprocess.DEVNULL
    )
    while not await accepts_connections(socket):
        await asyncio.sleep(0.01)
    assert await put(f"unix://{socket}") is True
    async with run_embedded_redis(short_tmp) as url:
        assert await put(url) is False
        assert await orphan.wait() == 0


async def test_a_killed_redis_restarts_with_its_data(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        queue = ArqQueue(url)
        assert await queue.put(job()) is True
        before = (await queue._redis.info())["process_id"]
        os.kill(before, signal.SIGKILL)
        assert await gone(before)
        async with asyncio.timeout(60):
            while not await can_write(queue._redis):
                await asyncio.sleep(0.05)
        assert (await queue._redis.info())["process_id"] != before
        assert await queue.put(job()) is False
        await queue.close()


async def test_corrupt_data_is_reported_with_the_log_file(short_tmp: Path) -> None:
    directory = short_tmp / "redis"
    directory.mkdir(mode=0o700)
    (directory / "appendonly.aof").write_bytes(b"no append-only file at all" * 100)
    with pytest.raises(SettingsError, match=f"{directory}/redis.log"):
        async with run_embedded_redis(short_tmp):
            pass
    assert "Bad file format" in (directory / "redis.log").read_text()


def test_a_missing_redis_server_is_reported_with_what_to_install() -> None:
    result = subprocess.run(
        # -S: without the installed packages.
        [
            sys.executable,
            "-S",
            "-c",
            "from patchwright.bot.redis.embedded_redis import find_redis_server; find_redis_server()",
        ],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No redis-server was found. Install Redis, or set REDIS_URL." in result.stderr
