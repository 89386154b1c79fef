"""A room of the tests of the bot: one issue, and a desk that hears of it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from bot.desk import Desk
from bot.github.forge import GitHubForge
from bot.github.rest import Pace, TokenAccess
from bot.queued import HoldsHere, Waiting
from bot.webhooks.delivery import read
from bot.webhooks.triggers import Triggers, wish_for
from demo.world import Comment, Delivery, Issue, Repository, World
from resolver.domain import Job
from tests.bot.inline_queue import InlineQueue

QUICK = Pace(between_writes=0, first_pause=0.01, longest_wait=2, timeout=5)


class Patient(Waiting):
    """Says that a job waits only while somebody listens: else it hung on the machine what a test hears of it."""

    def __init__(self, queue: InlineQueue, forge: GitHubForge) -> None:
        super().__init__(queue, HoldsHere(), forge, "@agent", grace=0.2)
        self.listened_to = asyncio.Event()

    async def tell(self, job: Job) -> None:
        await self.listened_to.wait()
        await super().tell(job)


@dataclass
class Room:
    """One issue, and a desk that hears of it."""

    world: World
    repo: Repository
    issue: Issue
    forge: GitHubForge
    queue: InlineQueue = field(default_factory=InlineQueue)

    def __post_init__(self) -> None:
        self.waiting = Patient(self.queue, self.forge)
        self.desk = Desk(self.queue, Triggers(), self.forge, waiting=self.waiting)

    async def answered(self, begins: str) -> str:
        """The first answer that begins so, once there is one; from here on, also that something waits."""
        self.waiting.listened_to.set()
        async with asyncio.timeout(20):
            while True:
                if found := [answer for answer in self.answers if answer.startswith(begins)]:
                    return found[0]
                await asyncio.sleep(0.02)

    async def says(self, body: str, by: str = "maintainer") -> Delivery:
        return await self.world.comment(self.issue, body, by=by)

    async def hears(self, delivery: Delivery) -> Job:
        """The desk is told; the job, or what has a job's name, that it asks for."""
        told = read(delivery.event, delivery.body)
        await self.desk.take(told)
        wish = wish_for(told, self.desk.rules)
        assert wish is not None
        return wish.job

    async def asked(self, body: str, by: str = "maintainer") -> Job:
        return await self.hears(await self.says(body, by))

    async def labelled(self) -> Job:
        return await self.hears(await self.world.label(self.issue, "fix-me", by="maintainer"))

    @property
    def answers(self) -> list[str]:
        said = self.repo.comments(self.issue.number)
        return [
            one.body.partition("\n")[2].strip() for one in said if one.body.startswith("<!-- patchwright:")
        ]

    async def seen(self, thing: Issue | Comment) -> list[str]:
        """The reactions to it, once there is one."""
        async with asyncio.timeout(10):
            while not thing.reactions:
                await asyncio.sleep(0.02)
        return [one.content for one in thing.reactions]


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with World() as world:
        repo = world.repository("acme/sample", {"a.py": "x = 1\n"}, permissions={"maintainer": "write"})
        issue = world.issue(repo, title="a is wrong", body="It is.", by="reporter")
        world.hook("http://127.0.0.1:1/webhook", "s3cret")
        access = TokenAccess(SecretStr(world.token("maintainer")))
        async with GitHubForge(
            access,
            api_url=world.api_url,
            graphql_url=world.graphql_url,
            server_url=world.server_url,
            pace=QUICK,
        ) as forge:
            room = Room(world, repo, issue, forge)
            yield room
            await room.desk.close()


HERE = (
    "This is queued, 1 ahead: I am at work on something else here. I begin with it by myself, "
    "and this comment will say how it goes. To take it off my list, comment `@agent stop`."
)
