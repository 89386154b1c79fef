"""A fake GitHub whose webhook deliveries all fail, with a reconciler that finds what was missed."""

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from patchwright.bot.github.auth import AppAuth, GitHubServer, RequestPolicy, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.identity import Identity
from patchwright.bot.github.rest import RestClient
from patchwright.bot.reconcile.reconciler import PollSchedule, Reconciler, ReconcilerConfig
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.job_records import OPEN_JOBS_KEY
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import Triggers, find_job
from patchwright.demo.github import Delivery, FakeGitHub, GitHubApp, Repository
from patchwright.resolver.domain import Job, JobId, Repo
from tests.bot.local_services import local_handler

DEAD_WEBHOOK_URL = "http://127.0.0.1:1/webhook"
FAST_POLICY = RequestPolicy(write_interval=0, initial_backoff=0.01, max_rate_limit_wait=2, timeout=5)
NO_GRACE = PollSchedule(redelivery_interval=0.1, poll_interval=0, delivery_grace=0, settle_seconds=0)
WITH_GRACE = PollSchedule(redelivery_interval=0.1, poll_interval=0, settle_seconds=0)
PERMISSIONS = {
    **dict.fromkeys(("issues", "pull_requests", "contents"), "write"),
    **dict.fromkeys(("checks", "actions", "statuses"), "read"),
}
SAMPLE = Repo(owner="acme", name="sample")


@dataclass
class Deployment:
    """One App on one repository, with a Redis and everything that a reconciler needs."""

    fake_github: FakeGitHub
    repo: Repository
    app: GitHubApp
    url: str
    queue: ArqQueue
    triggers: Triggers
    rest: RestClient
    identity: Identity
    lease: LeaderLease
    forge: GitHubForge
    handler: TriggerHandler

    def build_reconciler(
        self, schedule: PollSchedule = NO_GRACE, *, name: str = "one", has_webhook: bool = False
    ) -> Reconciler:
        config = ReconcilerConfig(schedule, has_webhook=has_webhook)
        return Reconciler(self.forge, self.lease, self.handler, name, config, self.fake_github.now)

    def job_of(self, delivery: Delivery) -> Job:
        """Returns the job that this delivery requests."""
        job = find_job(parse_delivery(delivery.event, delivery.body), self.triggers)
        assert job is not None, json.loads(delivery.body)
        return job

    async def has_records(self, *jobs: Job) -> list[bool]:
        return [await self.queue.get_record(job.id) is not None for job in jobs]

    async def open(self) -> set[JobId]:
        """Returns the ids of all open jobs."""
        redis = redis_client(self.url)
        members = await cast("Awaitable[set[bytes]]", redis.smembers(OPEN_JOBS_KEY))
        await redis.aclose()
        return {JobId(name.decode()) for name in members}


def app_auth(app: GitHubApp) -> AppAuth:
    return AppAuth(str(app.id), SecretStr(app.private_key_pem))


@asynccontextmanager
async def open_deployment(directory: Path) -> AsyncIterator[Deployment]:
    async with FakeGitHub() as fake_github, run_embedded_redis(directory) as url:
        repo = fake_github.create_repository(
            "acme/sample", {"calc.py": "x = 1\ny = 2\n"}, permissions={"maintainer": "write"}
        )
        app = fake_github.create_app(permissions=PERMISSIONS)
        fake_github.install_app(app, repo)
        fake_github.add_webhook(DEAD_WEBHOOK_URL, "s3cret")
        forge = build_forge(fake_github, app_auth(app))
        rest, identity = forge.rest, forge.identity
        queue, lease = ArqQueue(url), LeaderLease(url)
        try:
            triggers = Triggers(app_id=str(app.id))
            handler = local_handler(queue, triggers, forge)
            yield Deployment(
                fake_github, repo, app, url, queue, triggers, rest, identity, lease, forge, handler
            )
        finally:
            await handler.close()
            await forge.aclose()
            await queue.close()
            await lease.close()


def build_forge(fake_github: FakeGitHub, auth: AppAuth | TokenAuth, server_url: str = "") -> GitHubForge:
    urls = GitHubServer(github_server_url=server_url) if server_url else fake_github.urls
    return GitHubForge(auth, urls, policy=FAST_POLICY)


def token_auth(fake_github: FakeGitHub, login: str) -> TokenAuth:
    return TokenAuth(SecretStr(fake_github.create_token(login)))


def token_client(fake_github: FakeGitHub, login: str) -> RestClient:
    return RestClient(token_auth(fake_github, login), fake_github.api_url, None, FAST_POLICY)
