"""What becomes of our pull requests is counted once, and a merge that closes its issue stops nobody."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.desk import Desk
from bot.embedded import embedded_redis
from bot.github.forge import GitHubForge
from bot.github.graphql import GraphQL
from bot.github.identity import Identity
from bot.github.rest import Rest
from bot.jobs import Cancelled
from bot.lifecycle import Lifecycle
from bot.pulls import OurPulls
from bot.reconcile.reconcile import Reconcile
from bot.redis.ledger import Ledger
from bot.redis.lookout import Lookout
from bot.webhooks.delivery import read
from bot.webhooks.triggers import Triggers
from demo.world import Delivery, Issue, Pull, Repository, World
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import Handlers, settled, working
from tests.bot.reconcile.lookouts import AT_ONCE, QUICK, access

pytestmark = pytest.mark.redis

BRANCH = "patchwright/issue-1"


@dataclass
class Shop:
    """An App's repository with an issue, a desk that hears of it, and what is counted."""

    world: World
    repo: Repository
    issue: Issue
    queue: InlineQueue
    desk: Desk
    ledger: Ledger
    rest: Rest
    lookout: Lookout

    async def hears(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            await self.desk.take(read(delivery.event, delivery.body))

    def proposed(self, branch: str = BRANCH, by: str = "patchwright[bot]", body: str = "Closes #1.") -> Pull:
        self.pushed(branch, "patchwright[bot]")
        return self.world.pull(self.repo, branch, by=by, body=body)

    def pushed(self, branch: str, login: str) -> None:
        """Somebody's commit, with the address by which GitHub knows them."""
        person, bare = self.world.user(login), self.repo.bare
        who = f"{login} <{person.id}+{login}@users.noreply.127.0.0.1> {len(bare.branches())} +0000"
        lines = (
            f"commit refs/heads/{branch}",
            *(f"author {who}", f"committer {who}", "data 4", "Mend"),
            f"from {bare.sha(branch) or bare.sha('main')}",
            *(f"M 644 inline {login}.py", "data 6", "x = 2", ""),
        )
        bare.git("fast-import", "--quiet", stdin="\n".join(lines).encode())

    async def looks(self, looker: Reconcile, name: str) -> None:
        await looker.look()
        await self.lookout.leave(name)

    def looker(self, name: str) -> Reconcile:
        clock = self.world.now
        return Reconcile(
            *(self.rest, Identity(self.rest, GraphQL(self.rest, self.world.graphql_url))),
            *(self.lookout, self.desk, name),
            rhythm=AT_ONCE,
            clock=clock,
            redelivers=False,
        )

    async def counts(self) -> dict[str, float]:
        counted = (await self.ledger.counts()).get("default", {})
        return {name: number for name, number in counted.items() if number}


@pytest.fixture
async def shop(short_tmp: Path) -> AsyncIterator[Shop]:
    async with World() as world, embedded_redis(short_tmp) as url:
        repo = world.repository("acme/sample", {"a.py": "x = 1\n"}, permissions={"maintainer": "write"})
        app = world.app()
        world.install(app, repo)
        issue = world.issue(repo, title="a is wrong", body="It is.", by="reporter")
        world.hook("http://127.0.0.1:1/webhook", "s3cret")
        ledger, queue = Ledger(url), InlineQueue()
        async with GitHubForge(
            access(app),
            api_url=world.api_url,
            graphql_url=world.graphql_url,
            server_url=world.server_url,
            pace=QUICK,
        ) as forge:
            pulls = OurPulls(forge.rest, forge, ledger, "patchwright/")
            desk = Desk(queue, Triggers(), forge, Lifecycle(queue, "fix-me", forge, pulls))
            lookout = Lookout(url)
            yield Shop(world, repo, issue, queue, desk, ledger, forge.rest, lookout)
            await lookout.close()
            await desk.close()
        await ledger.close()


@pytest.mark.parametrize(
    ("merged", "others", "counted"),
    [(True, False, "untouched"), (True, True, "merged"), (False, False, "closed")],
)
async def test_it_is_counted_once_by_its_end_and_by_who_committed_to_it(
    shop: Shop, merged: bool, others: bool, counted: str
) -> None:
    pull = shop.proposed()
    if others:
        shop.pushed(BRANCH, "maintainer")
    ended = await shop.world.end(pull, by="maintainer", merged=merged)
    await shop.hears(ended, ended)
    assert await shop.counts() == {f"pulls {counted}": 1}


@pytest.mark.parametrize(
    ("merged", "others", "counted"),
    [(True, False, "untouched"), (True, True, "merged"), (False, False, "closed")],
)
async def test_where_nothing_is_delivered_it_is_counted_by_looking_and_once_with_what_is_told_as_well(
    shop: Shop, merged: bool, others: bool, counted: str
) -> None:
    pull, theirs = shop.proposed(), shop.proposed("topic", "maintainer")
    looker = shop.looker("one")
    await shop.looks(looker, "one")
    assert await shop.counts() == {}
    if others:
        shop.pushed(BRANCH, "maintainer")
    await shop.world.end(theirs, by="maintainer", merged=True)
    told = await shop.world.end(pull, by="maintainer", merged=merged)
    for one, name in ((looker, "one"), (looker, "one"), (shop.looker("a newer one"), "a newer one")):
        await shop.looks(one, name)
        assert await shop.counts() == {f"pulls {counted}": 1}
    await shop.hears(told)
    assert await shop.counts() == {f"pulls {counted}": 1}


async def test_one_that_is_reopened_and_merged_counts_as_merged_alone(shop: Shop) -> None:
    pull = shop.proposed()
    await shop.hears(await shop.world.end(pull, by="maintainer"))
    await shop.hears(await shop.world.end(pull, by="maintainer", merged=True))
    assert await shop.counts() == {"pulls untouched": 1}


@pytest.mark.parametrize(("branch", "by"), [("topic", "patchwright[bot]"), (BRANCH, "maintainer")])
async def test_what_others_propose_is_not_counted(shop: Shop, branch: str, by: str) -> None:
    await shop.hears(await shop.world.end(shop.proposed(branch, by), by="maintainer", merged=True))
    assert await shop.counts() == {}


async def test_a_fork_with_our_branchs_name_is_not_counted(shop: Shop) -> None:
    fork = shop.world.fork(shop.repo, "stranger")
    fork.commit(BRANCH, {"a.py": "x = 2\n"})
    pull = shop.world.pull(shop.repo, BRANCH, by="stranger", fork=fork)
    await shop.hears(await shop.world.end(pull, by="maintainer", merged=True))
    assert await shop.counts() == {}


async def test_a_run_whose_own_pull_request_closes_its_issue_by_a_merge_goes_on_to_its_end(
    shop: Shop,
) -> None:
    handler = Handlers()
    async with working(shop.queue, handler):
        await shop.hears(await shop.world.label(shop.issue, "fix-me", by="maintainer"))
        await handler.running.wait()
        pull = shop.proposed()
        merged = await shop.world.end(pull, by="maintainer", merged=True)
        await shop.hears(merged, await shop.world.end(shop.issue, by="maintainer"))
        (run,) = await shop.queue.everywhere()
        assert run.state == "running"
        handler.go.set()
        ended = await settled(shop.queue, run.job.id)
    assert ended.result == handler.ending
    assert shop.issue.comments == []


@pytest.mark.parametrize(("body", "merged"), [("Closes #10.", True), ("Closes #1.", False)])
async def test_a_run_is_stopped_when_its_issue_is_closed_otherwise(
    shop: Shop, body: str, merged: bool
) -> None:
    handler = Handlers()
    async with working(shop.queue, handler):
        await shop.hears(await shop.world.label(shop.issue, "fix-me", by="maintainer"))
        await handler.running.wait()
        (run,) = await shop.queue.everywhere()
        ended = await shop.world.end(shop.proposed(body=body), by="maintainer", merged=merged)
        await shop.hears(ended, await shop.world.end(shop.issue, by="reporter"))
        assert (await settled(shop.queue, run.job.id)).result == Cancelled(why="closed")
