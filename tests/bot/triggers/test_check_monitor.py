"""Failed checks on Patchwright's pull requests become one job per commit, from deliveries or by polling."""

import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import AppAuth, RequestPolicy
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.repositories import PolledRepository
from patchwright.bot.thread_forge import NullForge
from patchwright.bot.triggers.check_monitor import MAX_CHECK_WAIT, MIN_BACKOFF, CheckMonitor
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.webhooks.delivery import ChecksCompleted, IgnoredEvent, parse_delivery
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.demo.github import Delivery, FakeGitHub, FakePullRequest, Repository
from patchwright.demo.github.check_models import CheckRun
from patchwright.demo.github.state import APP_PERMISSIONS
from patchwright.resolver.checks import Check as Found
from patchwright.resolver.domain import Credentials, JobId, PullRequest, Repo
from tests.bot.inline_queue import InlineQueue
from tests.bot.local_services import local_handler

PERMISSIONS = {**APP_PERMISSIONS, "checks": "write", "actions": "read", "statuses": "read"}
SAMPLE = Repo(owner="acme", name="sample")
CHECK_EVENTS = ("check_run", "check_suite", "workflow_run")


@dataclass
class CountingChecks:
    """Counts the requests for checks."""

    forge: GitHubForge
    request_count: int = 0

    async def find_pull_request(self, repo: Repo, branch: str) -> PullRequest | None:
        return await self.forge.find_pull_request(repo, branch)

    async def list_own_pull_requests(
        self, repo: Repo, prefix: str, credentials: Credentials
    ) -> tuple[PullRequest, ...]:
        return await self.forge.list_own_pull_requests(repo, prefix, credentials)

    async def list_checks(self, repo: Repo, commit: str) -> tuple[Found, ...]:
        self.request_count += 1
        return await self.forge.list_checks(repo, commit)


@dataclass
class MonitorSetup:
    """A repository on a fake GitHub, with a check monitor that gets its deliveries."""

    fake_github: FakeGitHub
    repo: Repository
    checks: CountingChecks
    queue: InlineQueue = field(default_factory=InlineQueue)
    handler: TriggerHandler = field(init=False)
    monitor: CheckMonitor = field(init=False)

    def __post_init__(self) -> None:
        self.monitor = CheckMonitor(self.queue, self.checks, "patchwright/", clock=self.fake_github.now)
        self.handler = local_handler(self.queue, Triggers(), NullForge(), checks=self.monitor)

    async def handle(self, delivery: Delivery) -> JobId | None:
        return await self.handler.handle(parse_delivery(delivery.event, delivery.body))

    async def check_deliveries(self, pull: FakePullRequest, check: CheckRun) -> list[Delivery]:
        return [await self.fake_github.ci.deliver_check(pull, check, event) for event in CHECK_EVENTS]

    async def scan(self) -> bool:
        token = await self.checks.forge.get_credentials(SAMPLE)
        return await self.monitor.scan_repository(PolledRepository(SAMPLE, self.repo.id, 1, token))

    def create_own_pull(self, branch: str = "patchwright/issue-1", by: str = "ours[bot]") -> FakePullRequest:
        self.repo.commit(branch, {"a.txt": f"{branch}\n"})
        return self.fake_github.create_pull(self.repo, branch, by=by)


@pytest.fixture(params=[PERMISSIONS])
async def setup(request: pytest.FixtureRequest) -> AsyncIterator[MonitorSetup]:
    async with FakeGitHub() as fake_github:
        fake_github.add_webhook("http://127.0.0.1:1/webhook", "s3cret")
        repo = fake_github.create_repository("acme/sample", {"a.txt": "a\n"}, private=True)
        app = fake_github.create_app("ours", request.param)
        fake_github.install_app(app, repo)
        access = AppAuth(str(app.id), SecretStr(app.private_key_pem))
        policy = RequestPolicy(write_interval=0, initial_backoff=0.01, timeout=5)
        urls = fake_github.urls
        async with GitHubForge(access, urls, policy=policy) as forge:
            yield MonitorSetup(fake_github, repo, CountingChecks(forge))


async def test_repeated_and_reordered_deliveries_of_a_commit_are_one_job(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    checks = [
        setup.fake_github.ci.add_check(setup.repo, pull.head.sha, name) for name in ("test", "lint", "types")
    ]
    deliveries = [each for check in checks for each in await setup.check_deliveries(pull, check)] * 3
    random.Random(7).shuffle(deliveries)
    queued = [job for each in deliveries if (job := await setup.handle(each))]
    (job,) = queued
    assert setup.queue.known == {job}
    record = await setup.queue.get_record(job)
    assert record is not None and not record.urgent
    assert (record.job.number, record.job.failed_checks_commit, record.job.requester) == (
        pull.number, pull.head.sha, None,
    )  # fmt: skip
    assert setup.checks.request_count == 1


async def test_the_job_is_queued_when_the_last_check_has_completed(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    failed = setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "test")
    slow = setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "slow", None)
    assert [await setup.handle(each) for each in await setup.check_deliveries(pull, failed)] == [
        None,
        None,
        None,
    ]
    setup.fake_github.ci.complete_check(slow, "success")
    assert await setup.handle(await setup.fake_github.ci.deliver_check(pull, slow)) is not None


async def test_a_check_that_never_completes_is_waited_for_up_to_a_limit(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "test")
    setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "hangs", None)
    await setup.scan()
    assert not setup.queue.known
    setup.fake_github.advance_time(seconds=MAX_CHECK_WAIT.total_seconds() + 60)
    await setup.scan()
    assert len(setup.queue.known) == 1


@pytest.mark.slow
@pytest.mark.parametrize("case", ["passes", "topic", "somebody's", "older", "closed"])
async def test_foreign_pull_requests_and_passing_checks_start_no_job(setup: MonitorSetup, case: str) -> None:
    branch = "topic" if case == "topic" else "patchwright/issue-1"
    pull = setup.create_own_pull(branch, by="contributor" if case == "somebody's" else "ours[bot]")
    check = setup.fake_github.ci.add_check(
        setup.repo, pull.head.sha, "test", "success" if case == "passes" else "failure"
    )
    if case == "older":
        setup.repo.commit(branch, {"a.txt": "newer\n"})
    if case == "closed":
        setup.fake_github.close_silently(pull)
    for delivery in await setup.check_deliveries(pull, check):
        assert await setup.handle(delivery) is None
    await setup.scan()
    assert not setup.queue.known


async def test_failed_checks_found_by_polling_are_the_same_job(setup: MonitorSetup) -> None:
    pulls = [setup.create_own_pull(f"patchwright/issue-{number}") for number in (1, 2)]
    check, _ = (setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "test") for pull in pulls)
    await setup.scan()
    assert len(setup.queue.known) == 2
    assert await setup.handle(await setup.fake_github.ci.deliver_check(pulls[0], check)) is None
    await setup.scan()
    assert len(setup.queue.known) == 2


async def test_unreadable_checks_do_not_hide_other_pull_requests(setup: MonitorSetup) -> None:
    pulls = [setup.create_own_pull(f"patchwright/issue-{number}") for number in (1, 2, 3)]
    for pull in pulls:
        setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "test")
    path = f"/commits/{pulls[1].head.sha}/check-runs"
    setup.fake_github.fail_next_request("GET", path, status=502, times=4)
    assert await setup.scan() is True
    assert len(setup.queue.known) == 2
    assert await setup.scan() is False
    assert len(setup.queue.known) == 3


async def test_running_checks_are_queried_with_growing_delays_up_to_five_minutes(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    check = setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "hangs", None)
    counts = []
    for _ in range(16):
        await setup.scan()
        counts.append(setup.checks.request_count)
        setup.fake_github.advance_time(seconds=60)
    assert counts == [1, 2, 2, 3, 3, 3, 3, *[4] * 5, *[5] * 4]
    setup.fake_github.ci.complete_check(check, "failure")
    assert await setup.handle(await setup.fake_github.ci.deliver_check(pull, check)) is not None


@pytest.mark.slow
async def test_a_commit_without_failures_is_queried_with_growing_delays(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "test", "success")
    query_times: list[datetime] = []
    for _ in range(60):
        before = setup.checks.request_count
        await setup.scan()
        query_times += [setup.fake_github.now()] * (setup.checks.request_count - before)
        setup.fake_github.advance_time(seconds=60)
    waits = [round((later - earlier) / MIN_BACKOFF) for earlier, later in itertools.pairwise(query_times)]
    assert (
        len(waits) == 5
        and waits == sorted(waits)
        and query_times[-1] - query_times[-2] > timedelta(minutes=10)
    )
    setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "late")
    setup.fake_github.advance_time(hours=1)
    await setup.scan()
    assert len(setup.queue.known) == 1


@pytest.mark.parametrize("setup", [APP_PERMISSIONS], indirect=True)
async def test_without_the_checks_permission_nothing_is_queued(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    check = setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "test")
    assert await setup.handle(await setup.fake_github.ci.deliver_check(pull, check)) is None
    await setup.scan()
    assert not setup.queue.known


async def test_all_three_check_events_name_branch_and_commit(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    check = setup.fake_github.ci.add_check(setup.repo, pull.head.sha, "test")
    for delivery in await setup.check_deliveries(pull, check):
        parsed = parse_delivery(delivery.event, delivery.body)
        assert isinstance(parsed, ChecksCompleted) and parsed.installation_id is not None
        assert (parsed.repo, parsed.repo_id, parsed.branch, parsed.commit) == (
            *(SAMPLE, setup.repo.id, "patchwright/issue-1"),
            pull.head.sha,
        )
    body = (await setup.fake_github.ci.deliver_check(pull, check, "check_suite")).body
    from_fork = body.replace(b'"head_branch": "patchwright/issue-1"', b'"head_branch": null')
    assert parse_delivery("check_suite", from_fork) == IgnoredEvent(event="check_suite")
    requested = body.replace(b'"action": "completed"', b'"action": "requested"')
    assert parse_delivery("check_suite", requested) == IgnoredEvent(event="check_suite", action="requested")


async def test_a_commit_status_event_counts_like_a_check(setup: MonitorSetup) -> None:
    pull = setup.create_own_pull()
    status = setup.fake_github.ci.add_status(setup.repo, pull.head.sha, "ci/test")
    delivery = await setup.fake_github.ci.deliver_status(pull, status)
    assert await setup.handle(delivery) is not None
    without_branch = delivery.body.replace(b'"branches": [{', b'"branches": [], "x": [{')
    assert parse_delivery("status", without_branch) == IgnoredEvent(event="status")
