"""A test scenario: one issue on a fake GitHub, and a trigger handler that receives its deliveries."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from patchwright.bot.comment_tags import parse_tag
from patchwright.bot.github.auth import RequestPolicy, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.triggers.queue_notice import QueueNotices
from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import Triggers, find_request
from patchwright.demo.github import Comment, Delivery, FakeGitHub, Issue, Repository
from patchwright.resolver.domain import Job
from tests.bot.inline_queue import InlineQueue
from tests.bot.local_services import LocalStartLocks, local_handler

QUICK = RequestPolicy(write_interval=0, initial_backoff=0.01, max_rate_limit_wait=2, timeout=5)


class DeferredQueueNotices(QueueNotices):
    """Posts queue notices only after `enabled` is set, so that tests do not depend on the speed of the machine."""

    def __init__(self, queue: InlineQueue, forge: GitHubForge) -> None:
        super().__init__(queue, LocalStartLocks(), forge, "@agent", delay=0.2)
        self.enabled = asyncio.Event()

    async def post_if_waiting(self, job: Job) -> None:
        await self.enabled.wait()
        await super().post_if_waiting(job)


@dataclass
class HandlerScenario:
    """One issue, and a trigger handler that receives its deliveries."""

    fake_github: FakeGitHub
    repo: Repository
    issue: Issue
    forge: GitHubForge
    queue: InlineQueue = field(default_factory=InlineQueue)

    def __post_init__(self) -> None:
        self.queue_notices = DeferredQueueNotices(self.queue, self.forge)
        self.handler = local_handler(self.queue, Triggers(), self.forge, queue_notices=self.queue_notices)

    async def wait_for_reply(self, prefix: str) -> str:
        """Waits for the first reply that starts with this text; also enables queue notices from here on."""
        self.queue_notices.enabled.set()
        async with asyncio.timeout(20):
            while True:
                if found := [reply for reply in self.replies if reply.startswith(prefix)]:
                    return found[0]
                await asyncio.sleep(0.02)

    async def comment(self, body: str, by: str = "maintainer") -> Delivery:
        return await self.fake_github.add_comment(self.issue, body, by=by)

    async def deliver(self, delivery: Delivery) -> Job:
        """Hands the delivery to the handler and returns the requested job."""
        parsed = parse_delivery(delivery.event, delivery.body)
        await self.handler.handle(parsed)
        trigger = find_request(parsed, self.handler.triggers)
        assert trigger is not None
        return trigger.job

    async def request(self, body: str, by: str = "maintainer") -> Job:
        return await self.deliver(await self.comment(body, by))

    async def label(self) -> Job:
        return await self.deliver(await self.fake_github.add_label(self.issue, "fix-me", by="maintainer"))

    @property
    def replies(self) -> list[str]:
        """The texts of our comments."""
        comments = self.repo.comments(self.issue.number)
        return [
            comment.body.partition("\n")[2].strip()
            for comment in comments
            if comment.body.startswith("<!-- patchwright:")
        ]

    @property
    def replies_in_progress(self) -> list[str]:
        """The texts of our comments whose tag says that the run is queued or running."""
        tags = [parse_tag(comment.body) for comment in self.repo.comments(self.issue.number)]
        return [tag.text.strip() for tag in tags if tag.is_in_progress]

    async def wait_for_reactions(self, thing: Issue | Comment) -> list[str]:
        """Waits for the first reaction and returns all reactions."""
        async with asyncio.timeout(60):
            while not thing.reactions:
                await asyncio.sleep(0.02)
        return [one.content for one in thing.reactions]


@pytest.fixture
async def scenario() -> AsyncIterator[HandlerScenario]:
    async with FakeGitHub() as fake_github:
        repo = fake_github.create_repository(
            "acme/sample", {"a.py": "x = 1\n"}, permissions={"maintainer": "write"}
        )
        issue = fake_github.create_issue(repo, title="a is wrong", body="It is.", by="reporter")
        fake_github.add_webhook("http://127.0.0.1:1/webhook", "s3cret")
        access = TokenAuth(SecretStr(fake_github.create_token("maintainer")))
        async with GitHubForge(
            access,
            fake_github.urls,
            policy=QUICK,
        ) as forge:
            scenario = HandlerScenario(fake_github, repo, issue, forge)
            yield scenario
            await scenario.handler.close()


QUEUED_NOTICE = "Queued: next in line, after my current run here. To stop this run, comment `@agent stop`."
