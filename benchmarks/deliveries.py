"""Whether anything is lost or done twice while all that carries it is killed again and again.

50 deliveries a second for 10 minutes, 30% of them duplicates, in no order, 5% forged; the server (receiver and worker)
is killed every 30 s and its Redis every 2 minutes. What did not arrive is sent again only where the server asks for it
through the deliveries API. Every trigger must end as one job, begun once more only where its worker was killed; no
forged one is begun. GitHub is the stand-in (demo/world), which judges each request by GitHub's description.
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
from bot.embedded import embedded_redis
from bot.http import listening, url_of
from bot.jobs import Record
from bot.redis.queue import ArqQueue
from bot.webhooks.delivery import read
from bot.webhooks.triggers import Triggers, job_for
from demo.world import App, Delivery, World
from demo.world.told import Hook
from resolver.domain import JobId

RATE, DUPLICATES, FORGED = 50, 0.30, 0.05
SECRET = "benchmark"
AFTER_SECONDS = 600.0  # for what is still on its way when the last delivery was sent: promise R6
MENTION, LABEL = "@agent mend it", "fix-me"

SERVER = """
import asyncio, os, sys
from pathlib import Path
from bot.serve import serve
from resolver.settings.settings import Settings
settings = Settings(data=Path(sys.argv[1]), webhook_secret=sys.argv[2], redis_url=sys.argv[3])
worker = (sys.executable, "-c", sys.argv[5], *sys.argv[1:4])
asyncio.run(serve(settings, worker, os.environ, host="127.0.0.1", port=int(sys.argv[4])))
"""
WORKER = """
import asyncio, logging, os, sys, time
from datetime import timedelta
from pathlib import Path
from pydantic import SecretStr
from bot.reconcile.reconcile import Rhythm
from bot.github.rest import AppAccess, Pace
from bot.reconcile.watching import watching
from bot.work import work
from resolver.domain import Refused
from resolver.settings.settings import Settings

data = Path(sys.argv[1])
settings = Settings(data=data, webhook_secret=sys.argv[2], redis_url=sys.argv[3], jobs_at_once=64,
                    github_api_url=os.environ["API"])
begun = os.open(data / "begun", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

async def resolve(job):
    os.write(begun, f"{job.id} {time.time()}\\n".encode())
    return Refused(explanation="only counted")

async def apologize(job, error):
    raise error

async def main():
    rhythm = Rhythm(every=2, settle=0, first_wait=timedelta(seconds=2))
    access = AppAccess(os.environ["APP"], SecretStr((data / "key").read_text()))
    async with watching(settings, access, pace=Pace(between_writes=0), rhythm=rhythm) as watch:
        await work(settings, resolve, apologize, sole=True, watch=watch if os.environ["RECOVERS"] else None)

asyncio.run(main())
"""


@dataclass
class Soak:
    """What was sent, what was killed, and what came of it."""

    wanted: set[JobId] = field(default_factory=set)
    forged: set[JobId] = field(default_factory=set)
    begun: dict[JobId, list[float]] = field(default_factory=lambda: defaultdict(list))
    ended: set[JobId] = field(default_factory=set)
    kills: list[float] = field(default_factory=list)
    """When the server was killed."""
    redis_kills: int = 0
    failed: int = 0
    """First attempts that did not arrive."""
    sent: int = 0
    late: float = 0.0
    """Seconds from the last delivery until everything had ended."""

    @property
    def lost(self) -> int:
        return len(self.wanted - self.ended)

    @property
    def doubled(self) -> int:
        """Jobs that nothing asked for, and those begun once more though nobody had killed their worker."""
        again = sum(
            not any(first <= kill <= then for kill in self.kills)
            for times in self.begun.values()
            for first, then in pairwise(times)
        )
        return again + len(self.begun.keys() - self.wanted - self.forged)

    @property
    def taken(self) -> int:
        """Forged ones that were begun."""
        return len(self.begun.keys() & self.forged)


class Trigger(NamedTuple):
    event: str
    action: str
    body: bytes
    job: JobId


def trigger(number: int) -> Trigger:
    """A label or a mention on an issue of its own."""
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
    job = job_for(read(event, body), Triggers(label=LABEL))
    assert job is not None
    return Trigger(event, str(more["action"]), body, job.id)


async def soak(seconds: float, server_every: float, redis_every: float, *, recovers: bool = True) -> Soak:
    """Deliver for so long, kill as often, and wait until everything has ended.

    `recovers` False: the control, a server that does not ask for what it has missed.
    """
    told = Soak()
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as place:
        data = Path(place)
        async with World() as world, embedded_redis(data) as url:
            repo = world.repository("acme/sample", {"x": "y"})
            app = world.app()
            world.install(app, repo)
            (data / "key").write_text(app.private_key_pem)
            with listening("127.0.0.1", 0) as socket:
                port = int(url_of(socket).rpartition(":")[2])
            hook = world.hook(f"http://127.0.0.1:{port}/webhook", SECRET)
            async with _server(data, url, port, world, app, recovers) as restart:
                over = asyncio.Event()
                killers = [
                    asyncio.create_task(_again(server_every, over, lambda: _kill_server(told, restart))),
                    asyncio.create_task(_again(redis_every, over, lambda: _kill_redis(told, data))),
                ]
                await _deliver(world, hook, seconds, told)
                over.set()
                await asyncio.gather(*killers)
                await _ended(url, told, AFTER_SECONDS if recovers else 10)
            for line in (data / "begun").read_text().splitlines():
                job, _, at = line.partition(" ")
                told.begun[JobId(job)].append(float(at))
    return told


@contextlib.asynccontextmanager
async def _server(
    data: Path, url: str, port: int, world: World, app: App, recovers: bool
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Runs; what is yielded kills it and starts another."""
    command = (sys.executable, "-c", SERVER, str(data), SECRET, url, str(port), WORKER)
    environment = {
        **os.environ,
        "API": world.api_url,
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


async def _kill_server(told: Soak, restart: Callable[[], Awaitable[None]]) -> None:
    told.kills.append(time.time())
    await restart()
    told.kills.append(time.time())  # a worker outlives its server by a moment


async def _kill_redis(told: Soak, data: Path) -> None:
    async with asyncio.timeout(20):
        while (redis := _redis_of(data)) is None:  # noqa: ASYNC110  # its server has just been killed, too
            await asyncio.sleep(0.1)
    os.kill(redis, signal.SIGKILL)
    told.redis_kills += 1


def _redis_of(data: Path) -> int | None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            program = (path.parent / "exe").readlink().name
            if program == "redis-server" and os.fsencode(data / "redis") in path.read_bytes():
                return int(path.parent.name)
    return None


async def _again(every: float, over: asyncio.Event, act: Callable[[], Awaitable[None]]) -> None:
    """Until it is over, and then to the end: a server that is being started again is needed."""
    while True:
        try:
            async with asyncio.timeout(every):
                await over.wait()
            return
        except TimeoutError:
            await act()


async def _deliver(world: World, hook: Hook, seconds: float, told: Soak) -> None:
    """At an even rate, in no order."""
    chance, waiting, number = random.Random(7), list[tuple[Trigger, str]](), 0
    tasks: set[asyncio.Task[None]] = set()
    outcomes: Counter[bool] = Counter()

    async def send(one: Trigger, guid: str) -> None:
        attempt: Delivery = await world.send(hook, one.event, one.action, one.body, guid=guid)
        outcomes[attempt.status == 202] += 1

    async with httpx.AsyncClient(timeout=10, trust_env=False) as stranger:
        begun = time.monotonic()
        for tick in range(round(seconds * RATE)):
            await asyncio.sleep(max(0.0, begun + tick / RATE - time.monotonic()))
            if chance.random() < FORGED:
                number += 1
                fake = trigger(number)
                told.forged.add(fake.job)
                task = asyncio.create_task(_forge(stranger, hook, fake))
            else:
                while len(waiting) < 100:
                    number += 1
                    fresh = (trigger(number), str(uuid.UUID(int=chance.getrandbits(128))))
                    waiting += [fresh] * (2 if chance.random() < DUPLICATES / (1 - DUPLICATES) else 1)
                one, guid = waiting.pop(chance.randrange(len(waiting)))
                told.wanted.add(one.job)
                task = asyncio.create_task(send(one, guid))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
    told.sent, told.failed = outcomes.total(), outcomes[False]


async def _forge(stranger: httpx.AsyncClient, hook: Hook, one: Trigger) -> None:
    signature = hmac.new(b"guessed", one.body, hashlib.sha256).hexdigest()
    headers = {"x-hub-signature-256": f"sha256={signature}", "x-github-event": one.event}
    with contextlib.suppress(httpx.TransportError):
        await stranger.post(hook.url, content=one.body, headers=headers)


async def _ended(url: str, told: Soak, most: float) -> None:
    """Wait for the end of everything that was asked for, at most so many seconds."""
    queue, begun = ArqQueue(url), time.monotonic()
    while (open_ := told.wanted - told.ended) and time.monotonic() - begun < most:
        for job in open_:
            record: Record | None = await queue.state(job)
            if record is not None and record.state == "ended":
                told.ended.add(job)
        await asyncio.sleep(0.5)
    told.late = time.monotonic() - begun
    await queue.close()


def measure() -> list[Result]:
    """How many triggers of how many were lost, done twice or made up."""
    told = asyncio.run(soak(600, 30, 120))
    return [
        Result(
            name="deliveries_triggers",
            value=len(told.wanted),
            unit="",
            better="higher",
            floor=None,
            target=None,
        ),
        Result(name="deliveries_failed_at_first", value=told.failed, unit="", floor=None, target=None),
        Result(name="deliveries_lost", value=told.lost, unit="", floor=None, target=0),
        Result(name="deliveries_doubled", value=told.doubled, unit="", floor=None, target=0),
        Result(name="deliveries_forged_taken", value=told.taken, unit="", floor=None, target=0),
        Result(
            name="deliveries_all_ended_after", value=round(told.late, 1), unit="s", floor=None, target=600
        ),
    ]


if __name__ == "__main__":
    report(measure())
