"""The server as a process: started, stopped, killed, and started again."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bot.deliveries import LABELED, SECRET, signed

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[2]

SERVER = """
import asyncio, sys
from pathlib import Path
from bot.app import serve
from resolver.settings import Settings
from tests.bot.jobs import DONE

data = Path(sys.argv[1])
begun, ended, go = data / "begun", data / "ended", data / "go"

async def resolve(job):
    with begun.open("a") as file:
        file.write(job.id + "\\n")
    while not go.exists():
        await asyncio.sleep(0.05)
    with ended.open("a") as file:
        file.write(job.id + "\\n")
    return DONE

async def apologize(job, error):
    raise AssertionError(error)

settings = Settings(data=data, webhook_secret=sys.argv[2], redis_url=sys.argv[3] or None)
print(repr(asyncio.run(serve(settings, resolve, apologize, host="127.0.0.1", port=0))))
"""


@dataclass
class Server:
    process: asyncio.subprocess.Process
    url: str

    async def deliver(self) -> dict[str, str]:
        headers, body = signed("issues", LABELED)
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{self.url}/webhook", headers=headers, content=body)
        assert answer.status_code == 202
        said: dict[str, str] = answer.json()
        return said

    async def health(self) -> tuple[int, dict[str, Any]]:
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{self.url}/healthz")
        return answer.status_code, answer.json()


@asynccontextmanager
async def running(data: Path, redis: str = "") -> AsyncIterator[Server]:
    command = (sys.executable, "-c", SERVER, str(data), SECRET, redis)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("patchwright listens on http://127.0.0.1:")
        yield Server(process, line.split()[-1].removesuffix("/webhook"))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def written(path: Path, lines: int) -> list[str]:
    async with asyncio.timeout(20):
        while not path.exists() or len(path.read_text().splitlines()) < lines:
            await asyncio.sleep(0.05)
    return path.read_text().splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_a_server_stopped_in_mid_job_goes_on_when_it_is_started_again(
    short_tmp: Path, number: signal.Signals
) -> None:
    async with running(short_tmp) as server:
        job = (await server.deliver())["job"]
        await written(short_tmp / "begun", 1)
        assert (await server.health())[1] | {"version": ""} == {"version": "", "redis": True, "worker": True}
        if number is signal.SIGINT:
            os.killpg(server.process.pid, number)  # as Ctrl-C does
        else:
            server.process.send_signal(number)
        async with asyncio.timeout(8):
            left = await server.process.wait()
        assert server.process.stdout is not None
        said = (await server.process.stdout.read()).decode()
        assert (left, said) == ((-9, "") if number is signal.SIGKILL else (0, f"{number!r}\n"))

    (short_tmp / "go").touch()
    async with running(short_tmp) as server:
        await written(short_tmp / "ended", 1)
        assert await server.deliver() == {"status": "known", "job": job}
        await asyncio.sleep(0.6)
    assert (short_tmp / "begun").read_text().splitlines() == [job, job]
    assert (short_tmp / "ended").read_text().splitlines() == [job]


async def test_a_server_whose_redis_is_away_says_so_and_takes_nothing(short_tmp: Path) -> None:
    async with running(short_tmp, "redis://127.0.0.1:1/0") as server:
        status, said = await server.health()
        assert (status, said["redis"], said["worker"]) == (503, False, True)
        headers, body = signed("issues", LABELED)
        async with httpx.AsyncClient() as http:
            assert (
                await http.post(f"{server.url}/webhook", headers=headers, content=body)
            ).status_code == 503
        server.process.terminate()
        async with asyncio.timeout(8):
            assert await server.process.wait() == 0


async def test_connections_that_fall_silent_are_closed(short_tmp: Path) -> None:
    post = b"POST /webhook HTTP/1.1\r\nhost: x\r\n"
    async with running(short_tmp) as server:

        async def last_words(sent: bytes) -> bytes:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            async with asyncio.timeout(15):
                said = await reader.read()
            writer.close()
            return said[:12]

        assert await asyncio.gather(
            last_words(b""),
            last_words(post),
            last_words(post + b"content-length: 1000\r\n\r\nabc"),
            last_words(post + b"content-length: 99999999\r\n\r\nabc"),
        ) == [b"", b"", b"HTTP/1.1 408", b"HTTP/1.1 413"]
