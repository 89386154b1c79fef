"""Measures whether triggers are lost or duplicated while the server and Redis are killed repeatedly.

50 deliveries per second for 10 minutes, 30% of them duplicates, in random order, 5% forged. The server
(receiver and worker) is killed every 30 s and its Redis every 2 minutes. A lost delivery is sent again only
if the server requests it through the deliveries API. Every trigger must become one job, restarted only if its
worker was killed; no forged one may start. GitHub is the fake server (demo/github), which checks each request
with GitHub's API description.

It takes ten minutes: `script/bench long`.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import httpx

from benchmarks.measure import Result, report
from patchwright.bot.http_server import listener_url, open_listener
from patchwright.bot.jobs import JobRecord
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import Triggers, find_job
from patchwright.demo.github import Delivery, FakeGitHub, GitHubApp
from patchwright.demo.github.webhook_models import RegisteredWebhook
from patchwright.resolver.domain import JobId

RATE, DUPLICATES, FORGED = 50, 0.30, 0.05
SECRET = "benchmark"
AFTER_SECONDS = 600.0  # for events still in progress when the last delivery was sent: guarantee R6
MENTION, LABEL = "@agent fix it", "fix-me"

SERVER = """
import asyncio, os, sys
from pathlib import Path
from patchwright.bot.http_server import open_listener
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings
settings = Settings(data=Path(sys.argv[1]), webhook_secret=sys.argv[2], redis_url=sys.argv[3])
worker = (sys.executable, "-c", sys.argv[5], *sys.argv[1:4])
with open_listener("127.0.0.1", int(sys.argv[4])) as listener:
    asyncio.run(run_server(settings, worker, os.environ, listener))
"""
WORKER = """
import asyncio, logging, os, sys, time
from datetime import timedelta
from pathlib import Path
from pydantic import SecretStr
from patchwright.bot.reconcile.reconciler import PollSchedule
from patchwright.bot.github.auth import AppAuth, RequestPolicy, configured_server
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.reconcile.reconciler_factory import open_reconciler
from patchwright.bot.worker.worker_process import WorkerHooks, run_worker
from patchwright.resolver.domain import Rejected
from patchwright.resolver.settings.settings import Settings

data = Path(sys.argv[1])
settings = Settings(data=data, webhook_secret=sys.argv[2], redis_url=sys.argv[3], max_concurrent_jobs=64,
                    github_server_url=os.environ["SERVER"])
begun = os.open(data / "begun", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

async def resolve(job):
    os.write(begun, f"{job.id} {time.time()}\\n".encode())
    return Rejected(explanation="only counted")

async def report_failure(job, error):
    raise error

async def main():
    schedule = PollSchedule(redelivery_interval=2, settle_seconds=0, first_redelivery_wait=timedelta(seconds=2))
    access = AppAuth(os.environ["APP"], SecretStr((data / "key").read_text()))
    policy = RequestPolicy(write_interval=0)
    async with (
        GitHubForge(access, configured_server(settings), policy=policy) as github,
        open_reconciler(settings, github, schedule=schedule) as watcher,
    ):
        recovering = watcher if os.environ["RECOVERS"] else None
        await run_worker(settings, resolve, report_failure, hooks=WorkerHooks(watcher=recovering), exclusive=True)

asyncio.run(main())
"""


@dataclass
class Soak:
    """What was sent, what was killed, and the results."""

    wanted: set[JobId] = field(default_factory=set)
    forged: set[JobId] = field(default_factory=set)
    job_starts: dict[JobId, list[float]] = field(default_factory=lambda: defaultdict(list))
    ended: set[JobId] = field(default_factory=set)
    kills: list[float] = field(default_factory=list)
    """Times when the server was killed."""
    redis_kills: int = 0
    failed: int = 0
    """First attempts that did not arrive."""
    sent: int = 0
    late: float = 0.0
    """Seconds from the last delivery until all jobs had ended."""

    @property
    def lost(self) -> int:
        return len(self.wanted - self.ended)

    @property
    def doubled(self) -> int:
        """Jobs without a trigger, and jobs that restarted although nobody killed their worker."""
        again = sum(
            not any(first <= kill <= then for kill in self.kills)
            for times in self.job_starts.values()
            for first, then in pairwise(times)
        )
        return again + len(self.job_starts.keys() - self.wanted - self.forged)

    @property
    def forged_starts(self) -> int:
        """Forged triggers that started."""
        return len(self.job_starts.keys() & self.forged)


class Trigger(NamedTuple):
    event: str
    action: str
    body: bytes
    job: JobId


def trigger(number: int) -> Trigger:
    """Returns a label or a mention on its own issue."""
    payload: dict[str, object] = {
        "repository": {"id": 9, "name": "sample", "owner": {"login": "acme"}},
        "sender": {"id": 5, "login": "maintainer", "type": "User"},
        "issue": {"number": number, "updated_at": "2026-11-20T06:00:00Z", "body": "x" * 2_000},
    }
    if number % 2:
        event, more = "issues", {"action": "labeled", "label": {"name": LABEL}}
    else:
        event, more = "issue_comment", {"action": "created", "comment": {"id": number, "body": MENTION}}
    body = json.dumps(payload | more).encode()
    job = find_job(parse_delivery(event, body), Triggers(label=LABEL))
    assert job is not None
    return Trigger(event, str(more["action"]), body, job.id)


async def soak(seconds: float, server_every: float, redis_every: float, *, recovers: bool = True) -> Soak:
    """Sends deliveries for this time, kills processes at these intervals, and waits until all jobs have
    ended.

    `recovers` False: the control, a server that does not request missed deliveries.
    """
    record = Soak()
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as directory:
        data = Path(directory)
        async with FakeGitHub() as fake_github, run_embedded_redis(data) as url:
            repo = fake_github.create_repository("acme/sample", {"x": "y"})
            app = fake_github.create_app()
            fake_github.install_app(app, repo)
            (data / "key").write_text(app.private_key_pem)
            with open_listener("127.0.0.1", 0) as socket:
                port = int(listener_url(socket).rpartition(":")[2])
            hook = fake_github.add_webhook(f"http://127.0.0.1:{port}/webhook", SECRET)
            async with _server(data, url, port, fake_github, app, recovers) as restart:
                over = asyncio.Event()
                killers = [
                    asyncio.create_task(_again(server_every, over, lambda: _kill_server(record, restart))),
                    asyncio.create_task(_again(redis_every, over, lambda: _kill_redis(record, data))),
                ]
                await _deliver(fake_github, hook, seconds, record)
                over.set()
                await asyncio.gather(*killers)
                await _ended(url, record, AFTER_SECONDS if recovers else 10)
            for line in (data / "begun").read_text().splitlines():
                job, _, at = line.partition(" ")
                record.job_starts[JobId(job)].append(float(at))
    return record


@contextlib.asynccontextmanager
async def _server(
    data: Path, url: str, port: int, fake_github: FakeGitHub, app: GitHubApp, recovers: bool
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Runs a server; yields a function that kills it and starts another."""
    command = (sys.executable, "-c", SERVER, str(data), SECRET, url, str(port), WORKER)
    environment = {
        **os.environ,
        "SERVER": fake_github.server_url,
        "APP": str(app.id),
        "RECOVERS": "1" if recovers else "",
    }

    async def start() -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise RuntimeError("the server does not start")
        return process

    running = [await start()]

    async def restart() -> None:
        running[0].kill()
        await running[0].wait()
        running[0] = await start()

    try:
        yield restart
    finally:
        running[0].terminate()
        await running[0].wait()


async def _kill_server(record: Soak, restart: Callable[[], Awaitable[None]]) -> None:
    record.kills.append(time.time())
    await restart()
    record.kills.append(time.time())  # a worker outlives its server by a moment


async def _kill_redis(record: Soak, data: Path) -> None:
    async with asyncio.timeout(20):
        while (redis := _redis_of(data)) is None:  # noqa: ASYNC110  # its server has just been killed, too
            await asyncio.sleep(0.1)
    os.kill(redis, signal.SIGKILL)
    record.redis_kills += 1


def _redis_of(data: Path) -> int | None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            program = (path.parent / "exe").readlink().name
            if program == "redis-server" and os.fsencode(data / "redis") in path.read_bytes():
                return int(path.parent.name)
    return None


async def _again(every: float, over: asyncio.Event, act: Callable[[], Awaitable[None]]) -> None:
    """Repeats an action until the end, and completes the last one, because a restarting server is needed."""
    while True:
        try:
            async with asyncio.timeout(every):
                await over.wait()
            return
        except TimeoutError:
            await act()


async def _deliver(fake_github: FakeGitHub, hook: RegisteredWebhook, seconds: float, record: Soak) -> None:
    """Sends deliveries at an even rate, in random order."""
    chance, waiting, number = random.Random(7), list[tuple[Trigger, str]](), 0
    tasks: set[asyncio.Task[None]] = set()
    outcomes: Counter[bool] = Counter()

    async def send(one: Trigger, guid: str) -> None:
        attempt: Delivery = await fake_github.send_delivery(hook, one.event, one.action, one.body, guid=guid)
        outcomes[attempt.status == 202] += 1

    async with httpx.AsyncClient(timeout=10, trust_env=False) as stranger:
        started_at = time.monotonic()
        for tick in range(round(seconds * RATE)):
            await asyncio.sleep(max(0.0, started_at + tick / RATE - time.monotonic()))
            if chance.random() < FORGED:
                number += 1
                fake = trigger(number)
                record.forged.add(fake.job)
                task = asyncio.create_task(_forge(stranger, hook, fake))
            else:
                while len(waiting) < 100:
                    number += 1
                    fresh = (trigger(number), str(uuid.UUID(int=chance.getrandbits(128))))
                    waiting += [fresh] * (2 if chance.random() < DUPLICATES / (1 - DUPLICATES) else 1)
                one, guid = waiting.pop(chance.randrange(len(waiting)))
                record.wanted.add(one.job)
                task = asyncio.create_task(send(one, guid))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
    record.sent, record.failed = outcomes.total(), outcomes[False]


async def _forge(stranger: httpx.AsyncClient, hook: RegisteredWebhook, one: Trigger) -> None:
    signature = hmac.new(b"guessed", one.body, hashlib.sha256).hexdigest()
    headers = {"x-hub-signature-256": f"sha256={signature}", "x-github-event": one.event}
    with contextlib.suppress(httpx.TransportError):
        await stranger.post(hook.url, content=one.body, headers=headers)


async def _ended(url: str, record: Soak, most: float) -> None:
    """Waits until all requested jobs have ended, for at most this number of seconds."""
    queue, started_at = ArqQueue(url), time.monotonic()
    while (open_ := record.wanted - record.ended) and time.monotonic() - started_at < most:
        for job in open_:
            job_record: JobRecord | None = await queue.get_record(job)
            if job_record is not None and job_record.state == "completed":
                record.ended.add(job)
        await asyncio.sleep(0.5)
    record.late = time.monotonic() - started_at
    await queue.close()


def measure() -> list[Result]:
    """Returns how many triggers were lost, duplicated, or invented."""
    record = asyncio.run(soak(600, 30, 120))
    return [
        Result(
            name="deliveries_triggers",
            value=len(record.wanted),
            unit="",
            better="higher",
            floor=None,
            target=None,
        ),
        Result(name="deliveries_failed_at_first", value=record.failed, unit="", floor=None, target=None),
        Result(name="deliveries_lost", value=record.lost, unit="", floor=None, target=0),
        Result(name="deliveries_doubled", value=record.doubled, unit="", floor=None, target=0),
        Result(name="deliveries_forged_taken", value=record.forged_starts, unit="", floor=None, target=0),
        Result(
            name="deliveries_all_ended_after", value=round(record.late, 1), unit="s", floor=None, target=600
        ),
    ]


if __name__ == "__main__":
    report(measure())
