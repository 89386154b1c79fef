"""The server process: started, stopped, killed and restarted."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from patchwright.bot.http_server import open_listener
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.embedded_redis import find_redis_server, run_embedded_redis
from patchwright.bot.web.server import run_server
from patchwright.bot.worker.worker_process import run_worker
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime import processes
from tests.bot.deliveries import LABELED, SECRET, signed
from tests.bot.jobs import job

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[3]

WORKER = """
import asyncio, os, sys
from pathlib import Path
from patchwright.bot.worker.worker_process import run_worker
from patchwright.resolver.settings.settings import Settings
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

async def report_failure(job, error):
    raise AssertionError(error)

if (data / "broken").exists():
    sys.exit("the worker has no model")
(data / "pid").write_text(str(os.getpid()))
settings = Settings(data=data, redis_url=os.environ["REDIS_URL"])
asyncio.run(run_worker(settings, resolve, report_failure, exclusive=True))
"""

SLOW_SHUTDOWN = """
import asyncio, os, sys
from pathlib import Path
from patchwright.bot.worker.worker_process import run_worker
from patchwright.resolver.settings.settings import Settings

data = Path(sys.argv[1])

async def resolve(job):
    (data / "begun").write_text(job.id + "\\n")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(2.5)
        (data / "saved").touch()

async def report_failure(job, error):
    raise AssertionError(error)

asyncio.run(run_worker(Settings(data=data, redis_url=os.environ["REDIS_URL"]), resolve, report_failure))
"""

SERVER = """
import asyncio, os, sys
from pathlib import Path
from patchwright.bot.errors import WorkerFailed
from patchwright.bot.http_server import open_listener
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings

data = Path(sys.argv[1])
settings = Settings(data=data, webhook_secret=sys.argv[2], redis_url=sys.argv[3] or None)
worker = (sys.executable, "-c", sys.argv[4], str(data))
try:
    with open_listener("127.0.0.1", 0) as listener:
        print(repr(asyncio.run(run_server(settings, worker, os.environ, listener))))
except WorkerFailed as exc:
    print(exc)
"""


READY = "patchwright is ready: add the label fix-me to an issue, or start a comment with @agent. Press Ctrl-C to stop."
STOPS = "patchwright is stopping: running jobs are saved within 40 s and resume at the next start"
ENDS = {number: [STOPS, repr(number)] for number in (signal.SIGTERM, signal.SIGINT)} | {signal.SIGKILL: []}


@dataclass
class Server:
    process: asyncio.subprocess.Process
    url: str

    async def deliver(self) -> dict[str, str]:
        headers, body = signed("issues", LABELED)
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{self.url}/webhook", headers=headers, content=body)
        assert answer.status_code == 202
        data: dict[str, str] = answer.json()
        return data

    async def health(self, page: str = "readyz") -> tuple[int, dict[str, Any]]:
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{self.url}/{page}")
        return answer.status_code, answer.json()


@asynccontextmanager
async def running(data: Path, redis: str = "") -> AsyncIterator[Server]:
    command = (sys.executable, "-c", SERVER, str(data), SECRET, redis, WORKER)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("patchwright is listening on http://127.0.0.1:")
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


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_a_server_stopped_during_a_job_resumes_it_after_a_restart(
    short_tmp: Path, number: signal.Signals
) -> None:
    async with running(short_tmp) as server:
        await server.deliver()
        (job,) = await written(short_tmp / "begun", 1)
        well = {"version": "", "redis": True, "worker": True, "github": True}
        assert (await server.health())[1] | {"version": ""} == well
        if number is signal.SIGINT:
            os.killpg(server.process.pid, number)  # As Ctrl-C does.
        else:
            server.process.send_signal(number)
        async with asyncio.timeout(8):
            left = await server.process.wait()
        assert server.process.stdout is not None
        output = (await server.process.stdout.read()).decode().splitlines()
        assert (left, output) == (-9 if number is signal.SIGKILL else 0, [READY, *ENDS[number]])
    await gone(int((short_tmp / "pid").read_text()))

    (short_tmp / "go").touch()
    async with running(short_tmp) as server:
        await written(short_tmp / "ended", 1)
        await server.deliver()
        await asyncio.sleep(1.0)
    assert (short_tmp / "begun").read_text().splitlines() == [job, job]
    assert (short_tmp / "ended").read_text().splitlines() == [job]


@pytest.mark.slow
async def test_a_second_stop_signal_does_not_shorten_the_grace_period(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        queue = ArqQueue(url)
        await queue.put(job())
        command = (sys.executable, "-c", SLOW_SHUTDOWN, str(short_tmp))
        worker = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env={**os.environ, "REDIS_URL": url}, stdout=subprocess.PIPE
        )
        await written(short_tmp / "begun", 1)
        assert worker.stdout is not None
        lines = [await worker.stdout.readline()]
        for _ in range(2):
            worker.terminate()
            lines.append(await worker.stdout.readline())
        assert await worker.wait() == 0
        assert [b" ".join(line.split()[:3]) for line in lines] == [
            b"patchwright worker ready",
            b"patchwright is stopping:",
            b"patchwright is already",
        ]
        assert (short_tmp / "saved").exists()
        left = await queue.get_record(job().id)
        assert left is not None and (left.state, left.tries) == ("queued", 0)
        await queue.close()


async def gone(pid: int) -> None:
    """Waits until the process has ended. A zombie has ended, even if no init reaps it."""
    async with asyncio.timeout(60):
        while processes.start_time(pid) is not None:
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_worker_that_dies_is_replaced_and_its_job_resumes(short_tmp: Path) -> None:
    async with running(short_tmp) as server:
        await server.deliver()
        (job,) = await written(short_tmp / "begun", 1)
        os.kill(int((short_tmp / "pid").read_text()), signal.SIGKILL)
        assert await server.deliver() == {"status": "stored"}
        assert (await server.health("healthz"))[0] == 200
        (short_tmp / "go").touch()
        assert await written(short_tmp / "ended", 1) == [job]
    assert (short_tmp / "begun").read_text().splitlines() == [job, job]


@pytest.mark.slow
async def test_a_worker_that_cannot_start_ends_the_server(short_tmp: Path) -> None:
    (short_tmp / "broken").touch()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(short_tmp), SECRET, "", WORKER),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        text, complained = await process.communicate()
    assert text.decode() == "The worker exited with code 1 before it was ready.\n"
    assert "the worker has no model" in complained.decode()


@pytest.mark.slow
async def test_a_server_without_redis_says_so_and_accepts_nothing(short_tmp: Path) -> None:
    async with running(short_tmp, "redis://127.0.0.1:1/0") as server:
        status, text = await server.health()
        assert (status, text["redis"], text["worker"]) == (503, False, False)
        assert (await server.health("healthz"))[0] == 200
        headers, body = signed("issues", LABELED)
        async with httpx.AsyncClient() as http:
            assert (
                await http.post(f"{server.url}/webhook", headers=headers, content=body)
            ).status_code == 503
        server.process.terminate()
        async with asyncio.timeout(8):
            assert await server.process.wait() == 0
        assert server.process.stdout is not None
        waits, *ends = (await server.process.stdout.read()).decode().splitlines()
        assert "Redis at redis://127.0.0.1:1/0 does not respond (connection refused). Start it" in waits
        assert ends == [*ENDS[signal.SIGTERM]]


@pytest.mark.slow
async def test_a_server_reports_ready_once_redis_responds(short_tmp: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with running(short_tmp, f"redis://127.0.0.1:{port}/0") as server:
        assert server.process.stdout is not None
        assert (await server.process.stdout.readline()).startswith(b"patchwright is waiting: Redis at")
        redis = await asyncio.create_subprocess_exec(
            find_redis_server(), "--port", str(port), "--save", "", cwd=short_tmp, stdout=subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(20):
                assert (await server.process.stdout.readline()).decode().strip() == READY
        finally:
            redis.terminate()
            await redis.wait()


@pytest.mark.slow
async def test_the_metrics_of_a_server_can_be_scraped(short_tmp: Path) -> None:
    async with running(short_tmp) as server:
        await server.deliver()
        await written(short_tmp / "begun", 1)
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{server.url}/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = set(answer.text.splitlines())
        assert {
            'patchwright_deliveries_total{event="issues",result="stored"} 1.0',
            "patchwright_workers 1.0",
        } <= lines
        assert 'patchwright_jobs{state="running"} 1.0' in lines


async def never(*_: object) -> None:
    raise AssertionError("nothing was asked")


async def test_a_server_without_a_secret_does_not_start(short_tmp: Path) -> None:
    with (
        open_listener("127.0.0.1", 0) as listener,
        pytest.raises(SettingsError, match="PATCHWRIGHT_WEBHOOK_SECRET is not set"),
    ):
        await run_server(Settings(data=short_tmp), ("false",), {}, listener)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("203.0.113.1", 0), ("no such host", 0)])
def test_an_unavailable_address_is_reported_with_its_options(host: str, port: int) -> None:
    with pytest.raises(SettingsError, match="Change --host or --port"), open_listener(host, port):
        pass


async def test_a_separate_worker_needs_a_redis_url(short_tmp: Path) -> None:
    with pytest.raises(SettingsError, match="REDIS_URL is not set"):
        await run_worker(Settings(data=short_tmp), never, never)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_idle_connections_are_closed(short_tmp: Path) -> None:
    post = b"POST /webhook HTTP/1.1\r\nhost: x\r\n"
    async with running(short_tmp) as server:

        async def last_words(sent: bytes) -> bytes:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            async with asyncio.timeout(15):
                output = await reader.read()
            writer.close()
            return output[:12]

        assert await asyncio.gather(
            last_words(b""),
            last_words(post),
            last_words(post + b"content-length: 1000\r\n\r\nabc"),
            last_words(post + b"content-length: 99999999\r\n\r\nabc"),
        ) == [b"", b"", b"HTTP/1.1 408", b"HTTP/1.1 413"]


@pytest.mark.slow
def test_the_receiver_imports_nothing_of_the_worker() -> None:
    code = (
        "import sys\n"
        "from patchwright.bot.cli import command_runner, main, settings_loading\n"
        "from patchwright.bot.web import server\n"
        "from patchwright.bot.setup import bootstrap, image_preparation\n"
        "print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert {"patchwright.bot.worker.worker_process", "githubkit", "httpx", "litellm"} & set(
        result.stdout.split()
    ) == set()
