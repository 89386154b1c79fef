"""Measures how fast the dashboard shows ten thousand runs, and how fast fifty viewers see each entry of a
live run.

The server as `patchwright serve` starts it, on a Redis with 10,000 runs of 100 repositories. Measures the
operator's view of `/`: the first one (which loads the dashboard), the median of later ones, and the slowest
of five filters. Then a run of 500 entries is written at 25 per second, as a worker writes it, while 50
browsers watch. Measures the time from when an entry was safe in the log until the last viewer has it, and the
growth of the server's memory since it was a receiver only.

Floors, in the same run: the same server program answering with a page of that size from memory, and a bare
ASGI application in which each viewer reads the run's stream from the same Redis and forwards it unchanged.
"""

import asyncio
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.context import output
from benchmarks.measure import Result, report
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.bot.run_summary import RunSummary
from patchwright.resolver.domain import Issue, Job, JobId, Repo, User
from patchwright.resolver.events import Event, ModelReply, ReplyUsage, RunStarted, ToolCall, ToolResult
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult

MANY, VIEWS = 10_000, 15
WATCHERS, ENTRIES, PAUSE = 50, 500, 0.04
TOKEN, RUN = "operator-token-of-a-benchmark", JobId("acme-calc-7-live")
FILTERS = (
    {"state": "failed"},
    {"verdict": "fixed", "repository": "acme/service-7"},
    {"text": "nothing has this title"},
    {"text": "separator"},
    {"page": "150"},
)

SERVER = """
import asyncio, os, sys
from pathlib import Path
import uvloop
from patchwright.bot.http_server import open_listener
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings
settings = Settings(data=Path(sys.argv[1]), redis_url=sys.argv[2], webhook_secret="x" * 20, operator_token=sys.argv[3])
with open_listener("127.0.0.1", 0) as listener:
    uvloop.run(run_server(settings, (), os.environ, listener))
"""
FLOOR = """
import sys
import uvloop
from patchwright.bot.http_server import HttpServer, listener_url, open_listener
from patchwright.bot.redis.connection import redis_client
async def main():
    redis = redis_client(sys.argv[1])
    body = b"x" * int(sys.argv[2])
    async def app(scope, receive, send):
        if scope["path"] == "/":
            size = [(b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": size})
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        last, seq = b"0", 0
        while True:
            found = await redis.xread({sys.argv[3]: last}, 100, 4000)
            for place, fields in found[0][1] if found else ():
                event = b"id: %d\\ndata: %s\\n\\n" % (seq, fields[b"entry"])
                last, seq = place, seq + 1
                await send({"type": "http.response.body", "body": event, "more_body": True})
    with open_listener("127.0.0.1", 0) as socket:
        print("patchwright is listening on " + listener_url(socket) + "/webhook", flush=True)
        await HttpServer(app).serve(sockets=[socket])
uvloop.run(main())
"""


@dataclass
class Served:
    """A server under measurement."""

    url: str
    pid: int

    @property
    def megabytes(self) -> float:
        """Returns its current memory, in 10^6 bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024 / 1e6


@dataclass
class Watched:
    """What the viewers received, and when."""

    logged: dict[int, float] = field(default_factory=dict)
    last_seen: dict[int, float] = field(default_factory=dict)
    received_count: int = 0
    peak: float = 0.0

    @property
    def waits(self) -> list[float]:
        """Returns the milliseconds from the log to the last viewer, per entry."""
        return [1000 * (self.last_seen[seq] - at) for seq, at in self.logged.items()]


def measure() -> list[Result]:
    """Returns milliseconds and MB."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        async with run_embedded_redis(Path(directory)) as redis:
            await _fill(redis)
            async with _server(SERVER, directory, redis, TOKEN) as served:
                alone = served.megabytes
                async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60) as browser:
                    await browser.post("/login", data={"token": TOKEN})
                    first, size = await _timed(browser, {})
                    views = [(await _timed(browser, {}))[0] for _ in range(VIEWS)]
                    filters = [
                        statistics.median([(await _timed(browser, query))[0] for _ in range(5)])
                        for query in FILTERS
                    ]
                    live = await _watched(
                        redis, Path(directory) / "worker", served, f"/runs/{RUN}/events", browser.cookies
                    )
            async with _server(FLOOR, redis, str(size), f"patchwright:log:{RUN}-floor") as bare:
                async with httpx.AsyncClient(base_url=bare.url, trust_env=False) as browser:
                    floor = statistics.median([(await _timed(browser, {}))[0] for _ in range(VIEWS)])
                least = await _watched(redis, Path(directory) / "worker", bare, "/events", None, "-floor")
    least_view, view = round(floor, 1), round(statistics.median(views), 1)
    slowest, least_slowest = round(max(live.waits), 1), round(max(least.waits), 1)
    return [
        Result(name="dashboard_first_view", value=round(first, 1), unit="ms", floor=least_view, target=300),
        Result(name="dashboard_further_view", value=view, unit="ms", floor=least_view, target=None),
        Result(
            name="dashboard_filter", value=round(max(filters), 1), unit="ms", floor=least_view, target=300
        ),
        Result(name="dashboard_live_p99", value=_p99(live), unit="ms", floor=_p99(least), target=500),
        Result(name="dashboard_live_slowest", value=slowest, unit="ms", floor=least_slowest, target=500),
        Result(
            name="dashboard_memory_growth",
            value=round(live.peak - alone, 1),
            unit="MB",
            floor=None,
            target=50,
        ),
    ]


def _p99(watched: Watched) -> float:
    return round(statistics.quantiles(watched.waits, n=100)[98], 1)


async def _fill(redis: str) -> None:
    rnd, now, runs = random.Random(1), time.time(), SharedRunIndex(redis)
    states = (
        "published",
        "published",
        "published",
        "reported",
        "input_required",
        "rejected",
        "failed",
        "stopped",
    )
    for number in range(MANY):
        summary = {
            "run": f"acme-service-{number % 100}-{number}-0123456789ab",
            "state": rnd.choice(states),
            "repository": f"acme/service-{number % 100}",
            "number": number + 1,
            "title": f"The parser keeps a field of each line and drops what follows separator {number}",
            "requester": f"person-{number % 30}",
            "verdict": rnd.choice(("fixed", "fixed", "unproven", "regressed", "")),
            "cost_usd": rnd.random(),
            "seconds": rnd.random() * 3000,
            "steps": rnd.randrange(100),
            "started_at": now - number * 60,
            "pull_request": number if number % 3 else 0,
        }
        await runs.put(RunSummary.model_validate(summary))
    await runs.close()


async def _timed(browser: httpx.AsyncClient, query: dict[str, str]) -> tuple[float, int]:
    started_at = time.perf_counter()
    answer = await browser.get("/", params=query)
    passed = time.perf_counter() - started_at
    if answer.status_code != 200:
        raise RuntimeError(f"{answer.status_code}: {answer.text[:500]}")
    return passed * 1000, len(answer.content)


async def _watched(
    redis: str, directory: Path, served: Served, path: str, cookies: httpx.Cookies | None, also: str = ""
) -> Watched:
    watched, run = Watched(), JobId(f"{RUN}{also}")
    job = Job(
        id=run, repo=Repo(owner="acme", name="calc"), number=7, requester=User(id=5, login="maintainer")
    )
    queue, logs = ArqQueue(redis), SharedLogStore(FileLogStore(directory), redis)
    await queue.put(job)
    ready = asyncio.Semaphore(0)
    try:
        async with (
            logs.open(run) as log,
            httpx.AsyncClient(
                base_url=served.url,
                trust_env=False,
                timeout=60,
                cookies=cookies,
                limits=httpx.Limits(max_connections=None),
            ) as browser,
        ):
            await log.append(_events(job)[0])
            tasks = [asyncio.create_task(_watch(browser, path, watched, ready)) for _ in range(WATCHERS)]
            for _ in tasks:
                await ready.acquire()
            for seq, event in enumerate(_events(job)[1:], start=1):
                await log.append(event)
                watched.logged[seq] = time.perf_counter()
                watched.peak = max(watched.peak, served.megabytes)
                await asyncio.sleep(PAUSE)
            async with asyncio.timeout(60):
                await asyncio.gather(*tasks)
    finally:
        await queue.close()
        await logs.close()
    return watched


async def _watch(browser: httpx.AsyncClient, path: str, watched: Watched, ready: asyncio.Semaphore) -> None:
    """Reads until the last entry has arrived."""
    async with browser.stream("GET", path, headers={"accept": "text/event-stream"}) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                seq = int(line[4:])
                watched.last_seen[seq] = time.perf_counter()
                if seq == 0:
                    ready.release()
                if seq == ENTRIES:
                    return


def _events(job: Job) -> list[Event]:
    """Returns 501 events: the start, then replies and their results."""
    thread = Issue(
        number=7, title="add() subtracts", body="", author=User(id=2, login="reporter"), trusted=False, open=True,
        url="https://forge.test/acme/calc/issues/7",
    )  # fmt: skip
    events: list[Event] = [
        RunStarted(
            job=job, thread=thread, base_sha="ab" * 20, base_branch="main", source="https://forge.test/acme/calc",
            model="m", sandbox="docker", network="none",
        )
    ]  # fmt: skip
    for step in range(ENTRIES // 2):
        call = ToolCall(id=f"c{step}", action=RunShell(command=f"python3 -m pytest tests/test_{step}.py -q"))
        thought = f"Step {step}: the separator is looked for before the line is stripped, so I look at that."
        events.append(
            ModelReply(thought=thought, calls=(call,), usage=ReplyUsage(model="m", prompt_tokens=step * 400))
        )
        events.append(
            ToolResult(
                call_id=call.id, observation=ShellResult(output=output(step), exit_code=0, cwd="/", seconds=1)
            )
        )
    return events


@contextlib.asynccontextmanager
async def _server(program: str, *arguments: str) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments,
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[1], env=dict(os.environ),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        yield Served(line.split()[-1].removesuffix("/webhook"), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(30):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    report(measure())
