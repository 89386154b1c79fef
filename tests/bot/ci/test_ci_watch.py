"""Checks that fail on our pull requests become one job for each commit, however they are heard of."""

import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from pydantic import SecretStr

from bot.ci.watch import FIRST_PAUSE, LONGEST_WAIT, CiWatch
from bot.desk import Desk, Mute
from bot.github.forge import GitHubForge
from bot.github.rest import AppAccess, Pace
from bot.webhooks.delivery import Checked, Ignored, read
from bot.webhooks.triggers import Triggers
from demo.world import Delivery, Pull, Repository, World
from demo.world.checked import Check
from demo.world.state import APP_PERMISSIONS
from resolver.ci.checks import Check as Found
from resolver.domain import JobId, PullRequest, Repo
from tests.bot.inline_queue import InlineQueue

READING = {**APP_PERMISSIONS, "checks": "write", "actions": "read", "statuses": "read"}
SAMPLE = Repo(owner="acme", name="sample")
EVENTS = ("check_run", "check_suite", "workflow_run")


@dataclass
class Counting:
    """Counts how often checks are asked for."""

    forge: GitHubForge
    asked: int = 0

    async def find_pull(self, repo: Repo, branch: str) -> PullRequest | None:
        return await self.forge.find_pull(repo, branch)

    async def our_pulls(self, repo: Repo, prefix: str) -> tuple[PullRequest, ...]:
        return await self.forge.our_pulls(repo, prefix)

    async def checks(self, repo: Repo, commit: str) -> tuple[Found, ...]:
        self.asked += 1
        return await self.forge.checks(repo, commit)


@dataclass
class Post:
    """Where deliveries of one world arrive."""

    world: World
    repo: Repository
    eyes: Counting
    queue: InlineQueue = field(default_factory=InlineQueue)
    desk: Desk = field(init=False)
    watch: CiWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = CiWatch(self.queue, self.eyes, "patchwright/", clock=self.world.now)
        self.desk = Desk(self.queue, Triggers(), Mute(), checks=self.watch)

    async def hear(self, delivery: Delivery) -> JobId | None:
        return await self.desk.take(read(delivery.event, delivery.body))

    async def told(self, pull: Pull, check: Check) -> list[Delivery]:
        return [await self.world.ci.tell(pull, check, event) for event in EVENTS]

    async def look(self) -> bool:
        return await self.watch.look_over(SAMPLE, self.repo.id, 1)

    def ours(self, branch: str = "patchwright/issue-1", by: str = "ours[bot]") -> Pull:
        self.repo.commit(branch, {"a.txt": f"{branch}\n"})
        return self.world.pull(self.repo, branch, by=by)


@pytest.fixture(params=[READING])
async def post(request: pytest.FixtureRequest) -> AsyncIterator[Post]:
    async with World() as world:
        world.hook("http://127.0.0.1:1/webhook", "s3cret")
        repo = world.repository("acme/sample", {"a.txt": "a\n"}, private=True)
        app = world.app("ours", request.param)
        world.install(app, repo)
        access = AppAccess(str(app.id), SecretStr(app.private_key_pem))
        pace = Pace(between_writes=0, first_pause=0.01, timeout=5)
        urls = {name: getattr(world, name) for name in ("api_url", "graphql_url", "server_url")}
        async with GitHubForge(access, **urls, pace=pace) as forge:
            yield Post(world, repo, Counting(forge))


async def test_however_many_deliveries_tell_of_a_head_and_in_whatever_order_it_is_one_job(post: Post) -> None:
    pull = post.ours()
    checks = [post.world.ci.check(post.repo, pull.head.sha, name) for name in ("test", "lint", "types")]
    deliveries = [each for check in checks for each in await post.told(pull, check)] * 3
    random.Random(7).shuffle(deliveries)
    begun = [job for each in deliveries if (job := await post.hear(each))]
    (job,) = begun
    assert post.queue.known == {job}
    record = await post.queue.state(job)
    assert record is not None and not record.urgent
    assert (record.job.number, record.job.checks, record.job.requester) == (
        pull.number, pull.head.sha, None,
    )  # fmt: skip
    assert post.eyes.asked == 1


async def test_it_is_begun_when_the_last_check_has_ended(post: Post) -> None:
    pull = post.ours()
    failed = post.world.ci.check(post.repo, pull.head.sha, "test")
    slow = post.world.ci.check(post.repo, pull.head.sha, "slow", None)
    assert [await post.hear(each) for each in await post.told(pull, failed)] == [None, None, None]
    post.world.ci.end(slow, "success")
    assert await post.hear(await post.world.ci.tell(pull, slow)) is not None


async def test_a_check_that_never_ends_is_waited_for_so_long(post: Post) -> None:
    pull = post.ours()
    post.world.ci.check(post.repo, pull.head.sha, "test")
    post.world.ci.check(post.repo, pull.head.sha, "hangs", None)
    await post.look()
    assert not post.queue.known
    post.world.pass_time(seconds=LONGEST_WAIT.total_seconds() + 60)
    await post.look()
    assert len(post.queue.known) == 1


@pytest.mark.parametrize("case", ["passes", "topic", "somebody's", "older", "closed"])
async def test_what_is_not_ours_or_does_not_fail_is_no_job(post: Post, case: str) -> None:
    branch = "topic" if case == "topic" else "patchwright/issue-1"
    pull = post.ours(branch, by="contributor" if case == "somebody's" else "ours[bot]")
    one = post.world.ci.check(post.repo, pull.head.sha, "test", "success" if case == "passes" else "failure")
    if case == "older":
        post.repo.commit(branch, {"a.txt": "newer\n"})
    if case == "closed":
        post.world.close(pull)
    for each in await post.told(pull, one):
        assert await post.hear(each) is None
    await post.look()
    assert not post.queue.known


async def test_what_no_delivery_told_is_found_by_looking_and_is_the_same_job(post: Post) -> None:
    pulls = [post.ours(f"patchwright/issue-{number}") for number in (1, 2)]
    one, _ = (post.world.ci.check(post.repo, pull.head.sha, "test") for pull in pulls)
    await post.look()
    assert len(post.queue.known) == 2
    assert await post.hear(await post.world.ci.tell(pulls[0], one)) is None
    await post.look()
    assert len(post.queue.known) == 2


async def test_a_pull_request_whose_checks_cannot_be_read_hides_no_other(post: Post) -> None:
    pulls = [post.ours(f"patchwright/issue-{number}") for number in (1, 2, 3)]
    for pull in pulls:
        post.world.ci.check(post.repo, pull.head.sha, "test")
    path = f"/commits/{pulls[1].head.sha}/check-runs"
    post.world.refuse_next("GET", path, status=502, times=4)
    assert await post.look() is True
    assert len(post.queue.known) == 2
    assert await post.look() is False
    assert len(post.queue.known) == 3


async def test_what_passes_is_looked_at_again_after_a_pause_that_grows(post: Post) -> None:
    pull = post.ours()
    post.world.ci.check(post.repo, pull.head.sha, "test", "success")
    asked: list[datetime] = []
    for _ in range(60):
        before = post.eyes.asked
        await post.look()
        asked += [post.world.now()] * (post.eyes.asked - before)
        post.world.pass_time(seconds=60)
    waits = [round((later - earlier) / FIRST_PAUSE) for earlier, later in itertools.pairwise(asked)]
    assert len(waits) == 5 and waits == sorted(waits) and asked[-1] - asked[-2] > timedelta(minutes=10)
    post.world.ci.check(post.repo, pull.head.sha, "late")
    post.world.pass_time(hours=1)
    await post.look()
    assert len(post.queue.known) == 1


@pytest.mark.parametrize("post", [APP_PERMISSIONS], indirect=True)
async def test_where_checks_may_not_be_read_nothing_is_done_and_nothing_breaks(post: Post) -> None:
    pull = post.ours()
    one = post.world.ci.check(post.repo, pull.head.sha, "test")
    assert await post.hear(await post.world.ci.tell(pull, one)) is None
    await post.look()
    assert not post.queue.known


async def test_each_of_the_three_events_says_branch_and_commit(post: Post) -> None:
    pull = post.ours()
    one = post.world.ci.check(post.repo, pull.head.sha, "test")
    for each in await post.told(pull, one):
        said = read(each.event, each.body)
        assert isinstance(said, Checked) and said.installation is not None
        assert (said.repo, said.repo_id, said.branch, said.commit) == (
            *(SAMPLE, post.repo.id, "patchwright/issue-1"),
            pull.head.sha,
        )
    body = (await post.world.ci.tell(pull, one, "check_suite")).body
    of_a_fork = body.replace(b'"head_branch": "patchwright/issue-1"', b'"head_branch": null')
    assert read("check_suite", of_a_fork) == Ignored(event="check_suite")
    requested = body.replace(b'"action": "completed"', b'"action": "requested"')
    assert read("check_suite", requested) == Ignored(event="check_suite", action="requested")


async def test_a_commit_status_is_heard_of_like_a_check(post: Post) -> None:
    pull = post.ours()
    one = post.world.ci.status(post.repo, pull.head.sha, "ci/test")
    delivery = await post.world.ci.tell_status(pull, one)
    assert await post.hear(delivery) is not None
    nowhere = delivery.body.replace(b'"branches": [{', b'"branches": [], "x": [{')
    assert read("status", nowhere) == Ignored(event="status")
