"""The Redis that `patchwright serve` brings along."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from bot.embedded import embedded_redis, redis_server
from bot.redis.client import answers
from bot.redis.queue import ArqQueue
from resolver.errors import SettingsError
from tests.bot.jobs import job

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[2]


async def put(url: str) -> bool:
    """Whether the job was new to this Redis."""
    queue = ArqQueue(url)
    try:
        return await queue.put(job())
    finally:
        await queue.close()


async def gone(pid: int, seconds: float = 10) -> bool:
    for _ in range(round(seconds / 0.05)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_it_keeps_its_data_in_any_directory_and_leaves_no_socket(tmp_path: Path) -> None:
    data = tmp_path / "a directory with a space" / "ü" / ("deep" * 20)
    async with embedded_redis(data) as url:
        socket = Path(unquote(url.removeprefix("unix://")))
        assert len(os.fsencode(socket)) < 107
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert await put(url) is True
    assert not socket.parent.exists()
    async with embedded_redis(data) as url:
        assert await put(url) is False


async def test_where_the_path_is_short_the_socket_is_beside_the_data(short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        assert url == f"unix://{short_tmp}/redis/redis.sock"
        assert stat.S_IMODE((short_tmp / "redis").stat().st_mode) == 0o700


async def test_a_second_one_on_the_same_data_is_refused(short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        with pytest.raises(SettingsError, match=r"Another patchwright serves from .*PATCHWRIGHT_DATA"):
            async with embedded_redis(short_tmp):
                pass
        assert await put(url) is True


OWNER = """
import asyncio, sys
from pathlib import Path
from bot.embedded import embedded_redis
from bot.redis.queue import ArqQueue
from tests.bot.jobs import job

async def main():
    async with embedded_redis(Path(sys.argv[1])) as url:
        queue = ArqQueue(url)
        await queue.put(job())
        print((await queue._redis.info())["process_id"], flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start ends it")
async def test_when_its_owner_is_killed_it_ends_and_the_next_one_has_its_data(short_tmp: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(short_tmp)), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    redis = int(await owner.stdout.readline())
    owner.kill()
    await owner.wait()
    assert await gone(redis)
    async with embedded_redis(short_tmp) as url:
        assert await put(url) is False


async def test_one_that_was_left_behind_is_shut_down_first(short_tmp: Path) -> None:
    directory = short_tmp / "redis"
    directory.mkdir(mode=0o700)
    socket = directory / "redis.sock"
    command = [redis_server(), "--port", "0", "--unixsocket", str(socket), "--dir", str(directory)]
    orphan = await asyncio.create_subprocess_exec(
        *command, "--appendonly", "yes", "--save", "", stdout=subprocess.DEVNULL
    )
    while not socket.exists():
        await asyncio.sleep(0.01)
    assert await put(f"unix://{socket}") is True
    async with embedded_redis(short_tmp) as url:
        assert await put(url) is False
        assert await orphan.wait() == 0


async def test_when_it_is_killed_it_is_started_again_with_its_data(short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        queue = ArqQueue(url)
        assert await queue.put(job()) is True
        before = (await queue._redis.info())["process_id"]
        os.kill(before, signal.SIGKILL)
        assert await gone(before)
        async with asyncio.timeout(10):
            while not await answers(queue._redis):
                await asyncio.sleep(0.05)
        assert (await queue._redis.info())["process_id"] != before
        assert await queue.put(job()) is False
        await queue.close()


async def test_data_that_is_ruined_is_said_with_the_place_to_look(short_tmp: Path) -> None:
    directory = short_tmp / "redis"
    directory.mkdir(mode=0o700)
    (directory / "appendonly.aof").write_bytes(b"no append-only file at all" * 100)
    with pytest.raises(SettingsError, match=f"{directory}/redis.log says why"):
        async with embedded_redis(short_tmp):
            pass
    assert "Bad file format" in (directory / "redis.log").read_text()


def test_a_machine_without_redis_is_told_what_to_install() -> None:
    seen = subprocess.run(
        # -S: without the packages that are installed here.
        [sys.executable, "-S", "-c", "from bot.embedded import redis_server; redis_server()"],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "There is no redis-server on this machine: install one, or set REDIS_URL." in seen.stderr
