"""The page as `patchwright serve` has it, before the stand-in for GitHub, on a Redis of its own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from bot.embedded import embedded_redis
from bot.glance import of_log
from bot.jobs import Record
from bot.redis.inbox import Inbox
from bot.redis.queue import ArqQueue
from bot.redis.runs import Runs
from bot.serve import serve
from demo.world import Repository, World
from demo.world.oauth import Client
from resolver.domain import Job, JobId, Repo, RunId, User
from resolver.events import Event
from resolver.log import FileLogs
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from tests.page.shared import Writer

OPERATOR = "operator-token-of-a-test"
SECRET = "hunter2-hunter2"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


@dataclass
class Room:
    """A server without workers, and GitHub."""

    world: World
    repo: Repository
    login: Client
    redis: str
    data: Path
    url: str
    runs: Runs
    queue: ArqQueue
    inbox: Inbox
    _clients: list[httpx.AsyncClient] = field(default_factory=list)

    def browser(self) -> httpx.AsyncClient:
        """One that nobody has logged in with."""
        made = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=20)
        self._clients.append(made)
        return made

    async def operator(self) -> httpx.AsyncClient:
        browser = self.browser()
        answer = await browser.post("/login", data={"token": OPERATOR})
        assert answer.status_code == 303, answer.text
        return browser

    async def person(self, login: str) -> httpx.AsyncClient:
        """A browser in which they have logged in with GitHub."""
        self.world.sit_down(login)
        browser = self.browser()
        answer = await browser.get("/login/github", follow_redirects=True)
        if answer.url.path.startswith("/login/oauth"):  # they are asked once
            answer = await browser.post(str(answer.url), follow_redirects=True)
        assert (answer.status_code, answer.url.path) == (200, "/"), answer.text
        return browser

    def job(self, run: str, number: int = 1, repo: str = "acme/calc", by: str = "maintainer") -> Job:
        owner, name = repo.split("/")
        person = self.world.user(by)
        return Job(
            id=JobId(run),
            repo=Repo(owner=owner, name=name),
            number=number,
            requester=User(id=person.id, login=by),
        )

    async def ran(self, run: str, *events: Event, repo: str = "acme/calc", number: int = 1) -> None:
        """A run that is over: on this disk and in the list, not in Redis."""
        logs = FileLogs(self.data / "runs")
        async with logs.open(RunId(run)) as log:
            for event in events:
                await log.append(event)
            await self.runs.put(of_log(self.job(run, number, repo), log.trajectory, working=False))

    @asynccontextmanager
    async def running(self, run: str, repo: str = "acme/calc", number: int = 1) -> AsyncIterator[Writer]:
        """A run that goes on; its worker is this test."""
        job = self.job(run, number, repo)
        record = Record(job=job, asked=datetime.now(UTC)).begun()
        await self.queue.put(job)
        await self.queue._records.write(record)
        async with Writer.opened(self.redis, self.data / "elsewhere", job, self.runs) as writer:
            yield writer

    async def end(self, job: Job) -> None:
        """Its job has ended."""
        from tests.bot.jobs import DONE

        await self.queue.settle(job, DONE)


async def answering(url: str, paths: Sequence[str] = ("/healthz",)) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient(base_url=url, trust_env=False) as http:
        for path in paths:
            while True:
                try:
                    if (await http.get(path)).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.02)


@asynccontextmanager
async def room_at(data: Path, path: str = "", scheme: str = "http") -> AsyncIterator[Room]:
    """A room whose public URL has this path and scheme, as behind a proxy; the server itself speaks plain HTTP."""
    async with World() as world, embedded_redis(data) as redis:
        repo = world.repository(
            "acme/calc",
            {"calc.py": "def add(a, b):\n    return a - b\n"},
            permissions={"maintainer": "write", "reader": "read"},
            private=True,
        )
        app, port = world.app(), free_port()
        world.install(app, repo)
        url = f"http://127.0.0.1:{port}"
        public = f"{scheme}://127.0.0.1:{port}{path}"
        login = world.client(app, f"{public}/login/callback")
        settings = Settings(
            data=data,
            redis_url=redis,
            webhook_secret="story-webhook-secret",
            operator_token=OPERATOR,
            oauth_client_id=login.id,
            oauth_client_secret=login.secret,
            public_url=public,
            github_api_url=world.api_url,
            github_server_url=world.server_url,
        )
        secrets = Secrets([SECRET])
        serving = asyncio.create_task(
            serve(settings, (), {}, host="127.0.0.1", port=port, secrets=secrets, announce=lambda line: None)
        )
        runs, queue, inbox = Runs(redis), ArqQueue(redis), Inbox(redis)
        made = Room(world, repo, login, redis, data, url, runs, queue, inbox)
        try:
            await answering(url)
            yield made
        finally:
            for client in made._clients:
                await client.aclose()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            for store in (runs, queue, inbox):
                await store.close()


@pytest.fixture
async def room(short_tmp: Path) -> AsyncIterator[Room]:
    async with room_at(short_tmp) as made:
        yield made
