"""Measures how many deliveries per second one process stores and answers, the wait of each, and the memory.

The server as `patchwright serve` starts it (receiver, embedded Redis, and a worker that handles what is
stored), with the receiver on one core. Signed `issues.labeled` deliveries of 12 kB arrive over 32 connections
from the other core. Floor, in the same run and way: a bare ASGI application that parses the body and pushes
it to the same Redis. Peers, measured on a Debian 12 machine with 2 cores.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from benchmarks.measure import Result, report, stopped

SECONDS, CONNECTIONS, MANY = 4.0, 32, 100_000
SECRET = "benchmark"
BODY = json.dumps(
    {
        "action": "labeled",
        "issue": {"number": 7, "updated_at": "2026-11-20T06:00:00Z", "body": "x" * 11_600},
        "label": {"name": "fix-me"},
        "repository": {"id": 9, "name": "sample", "owner": {"login": "acme"}},
        "sender": {"id": 5, "login": "maintainer", "type": "User"},
    }
).encode()

SERVER = """
import os, sys
from pathlib import Path
import uvloop
from patchwright.bot.http_server import open_listener
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings
os.sched_setaffinity(0, {0})
settings = Settings(data=Path(sys.argv[1]), webhook_secret=sys.argv[2])
worker = (sys.executable, "-c", sys.argv[3], sys.argv[1])
with open_listener("127.0.0.1", 0) as listener:
    uvloop.run(run_server(settings, worker, os.environ, listener))
"""
WORKER = """
import asyncio, os, sys
from pathlib import Path
from patchwright.bot.worker.worker_process import run_worker
from patchwright.resolver.domain import Rejected
from patchwright.resolver.settings.settings import Settings
os.sched_setaffinity(0, range(os.cpu_count()))
async def resolve(job):
    return Rejected(explanation="only counted")
async def report_failure(job, error):
    raise error
settings = Settings(data=Path(sys.argv[1]), redis_url=os.environ["REDIS_URL"])
asyncio.run(run_worker(settings, resolve, report_failure, exclusive=True))
"""
FLOOR = """
import json, os, sys
from pathlib import Path
import uvloop
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.http_server import HttpServer, listener_url, open_listener
from patchwright.bot.redis.connection import redis_client
os.sched_setaffinity(0, {0})
async def main():
    async with run_embedded_redis(Path(sys.argv[1])) as url:
        redis = redis_client(url)
        async def app(scope, receive, send):
            body = b""
            while True:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
            json.loads(body)
            await redis.rpush("floor", body)
            await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        with open_listener("127.0.0.1", 0) as socket:
            print("listens on " + listener_url(socket) + "/webhook", flush=True)
            await HttpServer(app).serve(sockets=[socket])
uvloop.run(main())
"""


def measure() -> list[Result]:
    """Returns deliveries per second, milliseconds, and MB."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, _server(FLOOR, directory) as (port, process):
        floor, floor_late = uvloop.run(_load(port, SECONDS))
        floor_memory = _resident(process.pid)
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as directory,
        _server(SERVER, directory, SECRET, WORKER) as (port, process),
    ):
        idle = _resident(process.pid)
        rate, late = uvloop.run(_load(port, SECONDS))
        uvloop.run(_load(port, None, MANY - round(rate * SECONDS)))
        after = _resident(process.pid)
    peers = {"pr-agent": 146, "FastAPI + githubkit + arq": 320, "FastAPI + arq": 3660, "probot": 10900}
    return [
        Result(
            name="receiver_rate",
            value=round(rate),
            unit="/s",
            better="higher",
            floor=round(floor),
            peers=peers,
            target=5000,
        ),
        Result(name="receiver_p99", value=round(late, 1), unit="ms", floor=round(floor_late, 1), target=15),
        Result(
            name="receiver_memory_idle",
            value=idle,
            unit="MB",
            floor=floor_memory,
            peers={"pr-agent": 256, "probot": 126},
            target=80,
        ),
        Result(name="receiver_memory_after_100000", value=after, unit="MB", floor=floor_memory, target=80),
    ]


@contextlib.contextmanager
def _server(program: str, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        (sys.executable, "-c", program, *arguments),
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    with stopped(process):
        assert process.stdout is not None
        line = process.stdout.readline()
        yield int(line.rpartition(":")[2].partition("/")[0]), process


def _resident(pid: int) -> float:
    """Returns MB (10^6 bytes) of the process itself."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
    return round(int(line.split()[1]) * 1024 / 1e6, 1)


async def _load(port: int, seconds: float | None, times: int | None = None) -> tuple[float, float]:
    """Returns deliveries per second, and the 99th percentile of their waits in milliseconds."""
    os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
    signature = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    head = (
        "POST /webhook HTTP/1.1\r\nhost: receiver\r\nuser-agent: GitHub-Hookshot/1\r\naccept: */*\r\n"
        "x-github-event: issues\r\nx-github-delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\n"
        "x-github-hook-id: 292430182\r\nx-github-hook-installation-target-id: 79929171\r\n"
        f"x-hub-signature-256: sha256={signature}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    )
    request = head.encode() + BODY
    waits: list[float] = []
    end = time.monotonic() + seconds if seconds else None
    left = times or 0

    async def one() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < end if end else left > 0:
            left -= 1
            started_at = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            at = answer.lower().index(b"content-length: ") + 16
            if size := int(answer[at : answer.index(b"\r", at)]):
                await reader.readexactly(size)
            if b" 202 " not in answer[:16]:
                raise RuntimeError(answer.decode(errors="replace"))
            waits.append(time.perf_counter() - started_at)
        writer.close()

    started_at = time.monotonic()
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    passed = time.monotonic() - started_at
    return len(waits) / passed, statistics.quantiles(waits, n=100)[98] * 1000


if __name__ == "__main__":
    report(measure())
