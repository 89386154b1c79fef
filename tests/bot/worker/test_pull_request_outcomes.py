"""The outcomes of our pull requests are counted once, and a merge that closes its issue cancels no run."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.jobs import Stopped
from patchwright.bot.reconcile.reconciler import Reconciler, ReconcilerConfig
from patchwright.bot.redis.counters import Counters
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.triggers.cancellation import CancellationHandler
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.bot.worker.pull_request_outcomes import OwnPullRequests
from patchwright.demo.github import Delivery, FakeGitHub, FakePullRequest, Issue, Repository
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import RecordingHandler, running_worker, wait_for_state
from tests.bot.local_services import local_handler
from tests.bot.reconcile.deployments import FAST_POLICY, NO_GRACE, app_auth

pytestmark = pytest.mark.redis

BRANCH = "patchwright/issue-1"


@dataclass
class OutcomeScenario:
    """A repository of an App with an issue, a trigger handler for its deliveries, and the counters."""

    fake_github: FakeGitHub
    repo: Repository
    issue: Issue
    queue: InlineQueue
    handler: TriggerHandler
    counters: Counters
    forge: GitHubForge
    lease: LeaderLease

    async def hears(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            await self.handler.handle(parse_delivery(delivery.event, delivery.body))

    def proposed(
        self, branch: str = BRANCH, by: str = "patchwright[bot]", body: str = "Closes #1."
    ) -> FakePullRequest:
        self.pushed(branch, "patchwright[bot]")
        return self.fake_github.create_pull(self.repo, branch, by=by, body=body)

    def pushed(self, branch: str, login: str) -> None:
        """Adds a commit of this user to the branch."""
        person, bare = self.fake_github.user(login), self.repo.bare
        who = f"{login} <{person.id}+{login}@users.noreply.127.0.0.1> {len(bare.branches())} +0000"
        lines = (
            f"commit refs/heads/{branch}",
            *(f"author {who}", f"committer {who}", "data 4", "Fix"),
            f"from {bare.branch_sha(branch) or bare.branch_sha('main')}",
            *(f"M 644 inline {login}.py", "data 6", "x = 2", ""),
        )
        bare.git("fast-import", "--quiet", stdin="\n".join(lines).encode())

    async def looks(self, looker: Reconciler, name: str) -> None:
        await looker.reconcile()
        await self.lease.release(name)

    def looker(self, name: str) -> Reconciler:
        config = ReconcilerConfig(NO_GRACE, has_webhook=False)
        return Reconciler(self.forge, self.lease, self.handler, name, config, self.fake_github.now)

    async def counts(self) -> dict[str, float]:
        counted = (await self.counters.fetch_counts()).get("default", {})
        return {name: number for name, number in counted.items() if number}


@pytest.fixture
async def scenario(short_tmp: Path) -> AsyncIterator[OutcomeScenario]:
    async with FakeGitHub() as fake_github, run_embedded_redis(short_tmp) as url:
        repo = fake_github.create_repository(
            "acme/sample", {"a.py": "x = 1\n"}, permissions={"maintainer": "write"}
        )
        app = fake_github.create_app()
        fake_github.install_app(app, repo)
        issue = fake_github.create_issue(repo, title="a is wrong", body="It is.", by="reporter")
        fake_github.add_webhook("http://127.0.0.1:1/webhook", "s3cret")
        counters, queue = Counters(url), InlineQueue()
        async with GitHubForge(
            app_auth(app),
            fake_github.urls,
            policy=FAST_POLICY,
        ) as forge:
            pulls = OwnPullRequests(forge.rest, forge, counters, "patchwright/")
            handler = local_handler(
                queue,
                Triggers(),
                forge,
                cancellation=CancellationHandler(queue, "fix-me", forge, pulls),
            )
            lease = LeaderLease(url)
            yield OutcomeScenario(fake_github, repo, issue, queue, handler, counters, forge, lease)
            await lease.close()
            await handler.close()
        await counters.close()


@pytest.mark.parametrize(
    ("merged", "others", "counted"),
    [(True, False, "untouched"), (True, True, "merged"), (False, False, "closed")],
)
async def test_a_pull_request_is_counted_once_by_outcome_and_committers(
    scenario: OutcomeScenario, merged: bool, others: bool, counted: str
) -> None:
    pull = scenario.proposed()
    if others:
        scenario.pushed(BRANCH, "maintainer")
    ended = await scenario.fake_github.close_thread(pull, by="maintainer", merged=merged)
    await scenario.hears(ended, ended)
    assert await scenario.counts() == {f"pulls {counted}": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("merged", "others", "counted"),
    [(True, False, "untouched"), (True, True, "merged"), (False, False, "closed")],
)
async def test_a_pull_request_is_counted_once_by_polling_and_deliveries_together(
    scenario: OutcomeScenario, merged: bool, others: bool, counted: str
) -> None:
    pull, theirs = scenario.proposed(), scenario.proposed("topic", "maintainer")
    looker = scenario.looker("one")
    await scenario.looks(looker, "one")
    assert await scenario.counts() == {}
    if others:
        scenario.pushed(BRANCH, "maintainer")
    await scenario.fake_github.close_thread(theirs, by="maintainer", merged=True)
    delivery = await scenario.fake_github.close_thread(pull, by="maintainer", merged=merged)
    for one, name in ((looker, "one"), (looker, "one"), (scenario.looker("a newer one"), "a newer one")):
        await scenario.looks(one, name)
        assert await scenario.counts() == {f"pulls {counted}": 1}
    await scenario.hears(delivery)
    assert await scenario.counts() == {f"pulls {counted}": 1}


async def test_a_reopened_and_merged_pull_request_counts_only_as_merged(scenario: OutcomeScenario) -> None:
    pull = scenario.proposed()
    await scenario.hears(await scenario.fake_github.close_thread(pull, by="maintainer"))
    await scenario.hears(await scenario.fake_github.close_thread(pull, by="maintainer", merged=True))
    assert await scenario.counts() == {"pulls untouched": 1}


@pytest.mark.parametrize(("branch", "by"), [("topic", "patchwright[bot]"), (BRANCH, "maintainer")])
async def test_pull_requests_of_others_are_not_counted(
    scenario: OutcomeScenario, branch: str, by: str
) -> None:
    await scenario.hears(
        await scenario.fake_github.close_thread(scenario.proposed(branch, by), by="maintainer", merged=True)
    )
    assert await scenario.counts() == {}


async def test_a_fork_with_our_branch_name_is_not_counted(scenario: OutcomeScenario) -> None:
    fork = scenario.fake_github.create_fork(scenario.repo, "stranger")
    fork.commit(BRANCH, {"a.py": "x = 2\n"})
    pull = scenario.fake_github.create_pull(scenario.repo, BRANCH, by="stranger", fork=fork)
    await scenario.hears(await scenario.fake_github.close_thread(pull, by="maintainer", merged=True))
    assert await scenario.counts() == {}


async def test_merging_the_runs_own_pull_request_does_not_cancel_the_run(
    scenario: OutcomeScenario,
) -> None:
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        await scenario.hears(await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer"))
        await handler.running.wait()
        pull = scenario.proposed()
        merged = await scenario.fake_github.close_thread(pull, by="maintainer", merged=True)
        await scenario.hears(merged, await scenario.fake_github.close_thread(scenario.issue, by="maintainer"))
        (run,) = await scenario.queue.all_active_jobs()
        assert run.state == "running"
        handler.go.set()
        ended = await wait_for_state(scenario.queue, run.job.id)
    assert ended.result == handler.ending
    assert scenario.issue.comments == []


@pytest.mark.parametrize(("body", "merged"), [("Closes #10.", True), ("Closes #1.", False)])
async def test_closing_the_issue_otherwise_cancels_the_run(
    scenario: OutcomeScenario, body: str, merged: bool
) -> None:
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        await scenario.hears(await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer"))
        await handler.running.wait()
        (run,) = await scenario.queue.all_active_jobs()
        ended = await scenario.fake_github.close_thread(
            scenario.proposed(body=body), by="maintainer", merged=merged
        )
        await scenario.hears(ended, await scenario.fake_github.close_thread(scenario.issue, by="reporter"))
        assert (await wait_for_state(scenario.queue, run.job.id)).result == Stopped(reason="closed")
