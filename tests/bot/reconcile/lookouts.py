"""A world whose webhook nobody hears, and what finds again what was missed."""

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from bot.desk import Desk
from bot.embedded import embedded_redis
from bot.github.forge import GitHubForge
from bot.github.graphql import GraphQL
from bot.github.identity import Identity
from bot.github.rest import AppAccess, Pace, Rest, TokenAccess
from bot.reconcile.reconcile import Reconcile, Rhythm
from bot.redis.client import redis_client
from bot.redis.lookout import Lookout
from bot.redis.queue import ArqQueue
from bot.redis.records import OPEN
from bot.webhooks.delivery import read
from bot.webhooks.triggers import Triggers, job_for
from demo.world import App, Delivery, Repository, World
from resolver.domain import Job, JobId, Repo

NOBODY = "http://127.0.0.1:1/webhook"
QUICK = Pace(between_writes=0, first_pause=0.01, longest_wait=2, timeout=5)
AT_ONCE = Rhythm(every=0.1, all=0, grace=0, settle=0)
PATIENT = Rhythm(every=0.1, all=0, settle=0)
PERMISSIONS = {
    **dict.fromkeys(("issues", "pull_requests", "contents"), "write"),
    **dict.fromkeys(("checks", "actions", "statuses"), "read"),
}
SAMPLE = Repo(owner="acme", name="sample")


@dataclass
class Place:
    """One App on one repository, one Redis, and whoever looks for them."""

    world: World
    repo: Repository
    app: App
    url: str
    queue: ArqQueue
    rules: Triggers
    rest: Rest
    us: Identity
    lookout: Lookout
    forge: GitHubForge
    desk: Desk

    def looker(self, rhythm: Rhythm = AT_ONCE, *, name: str = "one", redelivers: bool = False) -> Reconcile:
        return Reconcile(
            self.rest,
            self.us,
            self.lookout,
            self.desk,
            name,
            rhythm=rhythm,
            clock=self.world.now,
            redelivers=redelivers,
        )

    def job_of(self, delivery: Delivery) -> Job:
        """What this delivery would have become."""
        job = job_for(read(delivery.event, delivery.body), self.rules)
        assert job is not None, json.loads(delivery.body)
        return job

    async def known(self, *jobs: Job) -> list[bool]:
        return [await self.queue.state(job.id) is not None for job in jobs]

    async def open(self) -> set[JobId]:
        """All jobs that wait or run."""
        redis = redis_client(self.url)
        members = await cast("Awaitable[set[bytes]]", redis.smembers(OPEN))
        await redis.aclose()
        return {JobId(name.decode()) for name in members}


def access(app: App) -> AppAccess:
    return AppAccess(str(app.id), SecretStr(app.private_key_pem))


@asynccontextmanager
async def a_place(directory: Path) -> AsyncIterator[Place]:
    async with World() as world, embedded_redis(directory) as url:
        repo = world.repository(
            "acme/sample", {"calc.py": "x = 1\ny = 2\n"}, permissions={"maintainer": "write"}
        )
        app = world.app(permissions=PERMISSIONS)
        world.install(app, repo)
        world.hook(NOBODY, "s3cret")
        rest = Rest(access(app), world.api_url, None, QUICK)
        urls = {name: getattr(world, name) for name in ("api_url", "graphql_url", "server_url")}
        forge = GitHubForge(access(app), **urls, pace=QUICK)
        queue, lookout = ArqQueue(url), Lookout(url)
        try:
            rules = Triggers(app_id=str(app.id))
            desk = Desk(queue, rules, forge)
            us = Identity(rest, GraphQL(rest, world.graphql_url))
            yield Place(world, repo, app, url, queue, rules, rest, us, lookout, forge, desk)
        finally:
            await desk.close()
            await forge.aclose()
            await rest.aclose()
            await queue.close()
            await lookout.close()


def with_token(world: World, login: str) -> Rest:
    return Rest(TokenAccess(SecretStr(world.token(login))), world.api_url, None, QUICK)
