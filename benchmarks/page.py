"""How soon the page shows ten thousand runs, and how soon fifty watchers see each entry of a live run.

The server as `patchwright serve` starts it, on a Redis with 10,000 runs of 100 repositories; the operator's view of
`/`, the first one (which brings the page into memory), the median of those after it, and the slowest of five filters.
Then a run of 500 entries is written at 25 a second, as a worker writes it, while 50 browsers watch: the time from when
an entry was safe in the log until the last watcher has it, and what the server's memory has grown by since it was a
receiver alone. Floors, in the same run: the same server program answering with a page of that size from memory, and a
bare ASGI application in which each watcher reads the run's stream from the same Redis and sends it on as it is.
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
from bot.embedded import embedded_redis
from bot.glance import Glance
from bot.redis.log import SharedLogs
from bot.redis.queue import ArqQueue
from bot.redis.runs import Runs
from resolver.domain import Issue, Job, JobId, Repo, User
from resolver.events import Call, Decided, Event, Observed, Started, Usage
from resolver.log import FileLogs
from runtime.actions import RunShell
from runtime.observations import Ran

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
from bot.serve import serve
from resolver.settings.settings import Settings
settings = Settings(data=Path(sys.argv[1]), redis_url=sys.argv[2], webhook_secret="x" * 20, operator_token=sys.argv[3])
uvloop.run(serve(settings, (), os.environ, host="127.0.0.1", port=0))
"""
FLOOR = """
import sys
import uvloop
from bot.http import Server, listening, url_of
from bot.redis.client import redis_client
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
    with listening("127.0.0.1", 0) as socket:
        print("patchwright listens on " + url_of(socket) + "/webhook", flush=True)
        await Server(app).serve(sockets=[socket])
uvloop.run(main())
"""


@dataclass
class Served:
    """A server that is being measured."""

    url: str
    pid: int

    @property
    def megabytes(self) -> float:
        """10^6 bytes that it holds now."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024 / 1e6


@dataclass
class Watched:
    """What was seen, and when."""

    logged: dict[int, float] = field(default_factory=dict)
    last_seen: dict[int, float] = field(default_factory=dict)
    seen: int = 0
    peak: float = 0.0

    @property
    def waits(self) -> list[float]:
        """Milliseconds from the log to the last watcher, an entry each."""
        return [1000 * (self.last_seen[seq] - at) for seq, at in self.logged.items()]


def measure() -> list[Result]:
    """Milliseconds and MB."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        async with embedded_redis(Path(place)) as redis:
            await _fill(redis)
            async with _server(SERVER, place, redis, TOKEN) as served:
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
                        redis, Path(place) / "worker", served, f"/runs/{RUN}/events", browser.cookies
                    )
            async with _server(FLOOR, redis, str(size), f"patchwright:log:{RUN}-floor") as bare:
                async with httpx.AsyncClient(base_url=bare.url, trust_env=False) as browser:
                    floor = statistics.median([(await _timed(browser, {}))[0] for _ in range(VIEWS)])
                least = await _watched(redis, Path(place) / "worker", bare, "/events", None, "-floor")
    least_view, view = round(floor, 1), round(statistics.median(views), 1)
    slowest, least_slowest = round(max(live.waits), 1), round(max(least.waits), 1)
    return [
        Result(name="page_first_view", value=round(first, 1), unit="ms", floor=least_view, target=300),
        Result(name="page_further_view", value=view, unit="ms", floor=least_view, target=None),
        Result(name="page_filter", value=round(max(filters), 1), unit="ms", floor=least_view, target=300),
        Result(name="page_live_p99", value=_p99(live), unit="ms", floor=_p99(least), target=500),
        Result(name="page_live_slowest", value=slowest, unit="ms", floor=least_slowest, target=500),
        Result(
            name="page_memory_growth", value=round(live.peak - alone, 1), unit="MB", floor=None, target=50
        ),
    ]


def _p99(watched: Watched) -> float:
    return round(statistics.quantiles(watched.waits, n=100)[98], 1)


async def _fill(redis: str) -> None:
    rnd, now, runs = random.Random(1), time.time(), Runs(redis)
    states = ("delivered", "delivered", "delivered", "commented", "asked", "refused", "failed", "cancelled")
    for number in range(MANY):
        glance = {
            "run": f"acme-service-{number % 100}-{number}-0123456789ab",
            "state": rnd.choice(states),
            "repository": f"acme/service-{number % 100}",
            "number": number + 1,
            "title": f"The parser keeps a field of each line and drops what follows separator {number}",
            "by": f"person-{number % 30}",
            "verdict": rnd.choice(("fixed", "fixed", "unproven", "regressed", "")),
            "usd": rnd.random(),
            "seconds": rnd.random() * 3000,
            "steps": rnd.randrange(100),
            "began": now - number * 60,
            "pull": number if number % 3 else 0,
        }
        await runs.put(Glance.model_validate(glance))
    await runs.close()


async def _timed(browser: httpx.AsyncClient, query: dict[str, str]) -> tuple[float, int]:
    begun = time.perf_counter()
    answer = await browser.get("/", params=query)
    passed = time.perf_counter() - begun
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
    queue, logs = ArqQueue(redis), SharedLogs(FileLogs(directory), redis)
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
    """Until the last entry has come."""
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
    """501: how it began, then replies and what came of them."""
    thread = Issue(
        number=7, title="add() subtracts", body="", author=User(id=2, login="reporter"), trusted=False, open=True,
        url="https://forge.test/acme/calc/issues/7",
    )  # fmt: skip
    events: list[Event] = [
        Started(
            job=job, thread=thread, base="ab" * 20, base_branch="main", source="https://forge.test/acme/calc",
            model="m", sandbox="docker", network="none",
        )
    ]  # fmt: skip
    for step in range(ENTRIES // 2):
        call = Call(id=f"c{step}", action=RunShell(command=f"python3 -m pytest tests/test_{step}.py -q"))
        thought = f"Step {step}: the separator is looked for before the line is stripped, so I look at that."
        events.append(
            Decided(thought=thought, calls=(call,), usage=Usage(model="m", prompt_tokens=step * 400))
        )
        events.append(
            Observed(call=call.id, observation=Ran(output=output(step), exit_code=0, cwd="/", seconds=1))
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
