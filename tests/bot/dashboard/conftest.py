"""The dashboard of `patchwright serve` with a fake GitHub and its own Redis."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from patchwright.bot.http_server import listener_url, open_listener
from patchwright.bot.jobs import JobRecord
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.run_summary import summarize_log
from patchwright.bot.web.server import run_server
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.demo.github.oauth import OAuthClient
from patchwright.resolver.domain import Job, JobId, Repo, RunId, User
from patchwright.resolver.events import Event
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from tests.bot.dashboard.run_writer import RunWriter

OPERATOR = "operator-token-of-a-test"
SECRET = "hunter2-hunter2"


@dataclass
class DashboardServer:
    """A server without workers, and a fake GitHub."""

    fake_github: FakeGitHub
    repo: Repository
    login: OAuthClient
    redis: str
    data: Path
    url: str
    runs: SharedRunIndex
    queue: ArqQueue
    inbox: DeliveryInbox
    _clients: list[httpx.AsyncClient] = field(default_factory=list)

    def browser(self) -> httpx.AsyncClient:
        """Returns a browser that is not signed in."""
        client = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=20)
        self._clients.append(client)
        return client

    async def operator(self) -> httpx.AsyncClient:
        browser = self.browser()
        answer = await browser.post("/login", data={"token": OPERATOR})
        assert answer.status_code == 303, answer.text
        return browser

    async def person(self, login: str) -> httpx.AsyncClient:
        """Returns a browser in which this person has signed in with GitHub."""
        self.fake_github.sign_in(login)
        browser = self.browser()
        answer = await browser.get("/login/github", follow_redirects=True)
        if answer.url.path.startswith("/login/oauth"):  # the first sign-in asks for authorization
            answer = await browser.post(str(answer.url), follow_redirects=True)
        assert (answer.status_code, answer.url.path) == (200, "/"), answer.text
        return browser

    def job(self, run: str, number: int = 1, repo: str = "acme/calc", by: str = "maintainer") -> Job:
        owner, name = repo.split("/")
        person = self.fake_github.user(by)
        return Job(
            id=JobId(run),
            repo=Repo(owner=owner, name=name),
            number=number,
            requester=User(id=person.id, login=by),
        )

    async def add_finished_run(
        self, run: str, *events: Event, repo: str = "acme/calc", number: int = 1
    ) -> None:
        """Adds a finished run: its log is on disk, not in Redis."""
        logs = FileLogStore(self.data / "runs")
        async with logs.open(RunId(run)) as log:
            for event in events:
                await log.append(event)
            await self.runs.put(summarize_log(self.job(run, number, repo), log.trajectory, is_running=False))

    @asynccontextmanager
    async def add_running_run(
        self, run: str, repo: str = "acme/calc", number: int = 1
    ) -> AsyncIterator[RunWriter]:
        """Adds a running run whose worker is this test."""
        job = self.job(run, number, repo)
        record = JobRecord(job=job, requested_at=datetime.now(UTC)).with_next_try()
        await self.queue.put(job)
        await self.queue._records.write(record)
        async with RunWriter.open(self.redis, self.data / "elsewhere", job, self.runs) as writer:
            yield writer

    async def end_job(self, job: Job) -> None:
        """Completes a job."""
        from tests.bot.jobs import DONE

        await self.queue.complete(job, DONE)


async def wait_until_ready(url: str, paths: Sequence[str] = ("/healthz",)) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient(base_url=url, trust_env=False) as http:
        for path in paths:
            while True:
                try:
                    if (await http.get(path)).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.02)


@asynccontextmanager
async def dashboard_server(
    data: Path, path: str = "", scheme: str = "http"
) -> AsyncIterator[DashboardServer]:
    """Starts a server whose public URL has this path and scheme; the server itself speaks plain HTTP."""
    async with (
        AsyncExitStack() as stack,
        FakeGitHub() as fake_github,
        run_embedded_redis(data) as redis,
    ):
        listener = stack.enter_context(open_listener("127.0.0.1", 0))
        repo = fake_github.create_repository(
            "acme/calc",
            {"calc.py": "def add(a, b):\n    return a - b\n"},
            permissions={"maintainer": "write", "reader": "read"},
            private=True,
        )
        app = fake_github.create_app()
        fake_github.install_app(app, repo)
        url = listener_url(listener)
        public = f"{url.replace('http', scheme, 1)}{path}"
        login = fake_github.create_oauth_client(app, f"{public}/login/callback")
        settings = Settings(
            data=data,
            redis_url=redis,
            webhook_secret="story-webhook-secret",
            operator_token=OPERATOR,
            oauth_client_id=login.id,
            oauth_client_secret=login.secret,
            public_url=public,
            github_server_url=fake_github.server_url,
        )
        secrets = Secrets([SECRET])
        serving = asyncio.create_task(
            run_server(settings, (), {}, listener, secrets=secrets, announce=lambda line: None)
        )
        runs, queue, inbox = SharedRunIndex(redis), ArqQueue(redis), DeliveryInbox(redis)
        server = DashboardServer(fake_github, repo, login, redis, data, url, runs, queue, inbox)
        try:
            await wait_until_ready(url)
            yield server
        finally:
            for client in server._clients:
                await client.aclose()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            for store in (runs, queue, inbox):
                await store.close()


@pytest.fixture
async def server(short_tmp: Path) -> AsyncIterator[DashboardServer]:
    async with dashboard_server(short_tmp) as server:
        yield server
