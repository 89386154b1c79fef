"""An App that was not granted what it needs says so once in a repository, with the page where its owner grants it."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.errors import NotGranted
from bot.github.forge import GitHubForge
from bot.github.grants import AppGrants, granted
from bot.jobs import Cancelled
from bot.lifecycle import Lifecycle
from bot.redis.client import redis_client
from bot.redis.lookout import Lookout
from bot.webhooks.delivery import Reach
from bot.words import lacking
from demo.world import App, Installation, Issue, Repository, World
from resolver.domain import Job, Outcome, Refused, Repo
from resolver.errors import Forbidden
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import job
from tests.bot.reconcile.lookouts import QUICK, access, with_token

pytestmark = pytest.mark.redis

SAMPLE = Repo(owner="acme", name="sample")
ENOUGH = {"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}
DONE = Refused(explanation="it was begun")


@dataclass
class Town:
    """An App on one repository with two issues, and somebody who counts what is begun."""

    world: World
    repo: Repository
    app: App
    home: Installation
    issues: tuple[Issue, Issue]
    url: str
    lookout: Lookout
    forge: GitHubForge
    begun: list[Job] = field(default_factory=list)

    async def resolve(self, job: Job) -> Outcome:
        self.begun.append(job)
        return DONE

    async def asked(self, number: int, name: str = "first") -> Outcome:
        grants = AppGrants(self.forge.rest, self.lookout)
        return await granted(self.resolve, grants, self.forge)(
            job(f"acme-sample-{number}-{name}", number=number)
        )

    def answers(self, number: int) -> list[str]:
        return [one.body.partition("\n")[2].strip() for one in self.repo.comments(number)]

    @property
    def page(self) -> str:
        return f"{self.world.server_url}/settings/installations/{self.home.id}"


@pytest.fixture
async def town(short_tmp: Path) -> AsyncIterator[Town]:
    async with World() as world, embedded_redis(short_tmp) as url:
        repo = world.repository("acme/sample", {"a.py": "x = 1\n"}, permissions={"maintainer": "write"})
        app = world.app(permissions={"issues": "write", "pull_requests": "read", "metadata": "read"})
        home = world.install(app, repo)
        one, two = (world.issue(repo, title=title, body="It is.", by="reporter") for title in ("a", "b"))
        lookout = Lookout(url)
        async with GitHubForge(
            access(app),
            api_url=world.api_url,
            graphql_url=world.graphql_url,
            server_url=world.server_url,
            pace=QUICK,
        ) as forge:
            yield Town(world, repo, app, home, (one, two), url, lookout, forge)
        await lookout.close()


async def test_it_says_what_is_lacking_and_where_to_grant_it_once_and_begins_nothing(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for number, name in ((1, "first"), (1, "first"), (2, "second"), (2, "second")):
        assert isinstance(await town.asked(number, name), Refused)
    (in_full,), (briefly,) = town.answers(1), town.answers(2)
    assert in_full == (
        "I did not start on this: my App lacks a permission here: `contents: write` and `pull_requests: write`. "
        f"An owner can grant it at {town.page}; then put the label on again or ask me in a comment."
    )
    assert briefly == (
        "I did not start on this: my App still lacks `contents: write` and `pull_requests: write` here; "
        f"{town.world.server_url}/acme/sample/issues/1#issuecomment-{town.issues[0].comments[0].id} "
        "says how to grant it."
    )
    (logged,) = [line for line in caplog.records if line.message == "permissions are lacking"]
    assert (logged.__dict__["lacks"], logged.__dict__["page"]) == (
        "contents: write, pull_requests: write",
        town.page,
    )
    assert town.begun == []


def test_where_no_page_is_known_it_says_where_to_look_for_it() -> None:
    assert lacking(("contents: write",), "", "") == (
        "my App lacks a permission here: `contents: write`. An owner can grant it on the App's page in the settings of "
        "the account; then put the label on again or ask me in a comment."
    )


async def test_a_wiped_redis_makes_no_second_comment_for_the_same_trigger(town: Town) -> None:
    await town.asked(1)
    redis = redis_client(town.url)
    await redis.flushall()
    await redis.aclose()
    async with GitHubForge(access(town.app), api_url=town.world.api_url, pace=QUICK) as afresh:
        town.forge = afresh
        await town.asked(1)
    assert len(town.answers(1)) == 1


async def test_what_is_granted_counts_for_the_next_trigger_and_another_lack_is_said_anew(town: Town) -> None:
    await town.asked(1)
    assert await town.forge.rest.lacks(SAMPLE, "contents")
    town.app.permissions |= ENOUGH
    assert await town.asked(1, "again") == DONE
    assert not await town.forge.rest.lacks(SAMPLE, "contents")  # in the same minute, and with another token
    town.app.permissions["contents"] = "read"
    assert isinstance(await town.asked(2), Refused)
    (answer,) = town.answers(2)
    assert "my App lacks a permission here: `contents: write`. An owner can" in answer
    assert len(town.begun) == 1


async def test_an_app_that_may_not_even_comment_is_told_to_its_operator(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    town.app.permissions["issues"] = "read"
    for _ in range(2):
        assert isinstance(await town.asked(1), Refused)
    assert town.answers(1) == []
    assert [line.message for line in caplog.records].count("permissions are lacking") == 1


async def test_an_app_with_nothing_that_it_needs_is_refused_a_token_with_the_page(town: Town) -> None:
    town.app.permissions.clear()
    with pytest.raises(NotGranted, match=f"acme/sample: see {town.page}"):
        await town.forge.credentials(SAMPLE)


async def test_what_is_taken_away_while_a_run_works_ends_it_with_the_page(town: Town) -> None:
    town.app.permissions |= ENOUGH

    async def resolve(job: Job) -> Outcome:
        town.app.permissions["contents"] = "read"
        raise Forbidden("POST git/refs: GitHub answered 403: Resource not accessible by integration")

    within = granted(resolve, AppGrants(town.forge.rest, town.lookout), town.forge)
    with pytest.raises(NotGranted, match=f"`contents: write`. An owner can grant it at {town.page};"):
        await within(job())


async def test_another_refusal_is_left_as_it_is(town: Town) -> None:
    town.app.permissions |= ENOUGH

    async def resolve(job: Job) -> Outcome:
        raise Forbidden("the branch is protected")

    with pytest.raises(Forbidden, match="the branch is protected"):
        await granted(resolve, AppGrants(town.forge.rest, town.lookout), town.forge)(job())


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "Resource not accessible by integration"),
        (403, "Resource not accessible by personal access token"),
        (422, "The permissions requested are not granted to this installation."),
    ],
)
async def test_githubs_own_refusals_are_understood(town: Town, status: int, said: str) -> None:
    headers = {"x-accepted-github-permissions": "issues=write; pull_requests=write"} if status == 403 else {}
    town.world.refuse_next("POST", "/comments", status=status, headers=headers, body={"message": said})
    with pytest.raises(NotGranted) as caught:
        await town.forge.say(SAMPLE, 1, "t", "hello")
    assert said in str(caught.value)
    assert ("(it needs issues=write; pull_requests=write)" in str(caught.value)) == (status == 403)


async def test_a_token_of_a_person_is_not_asked_what_it_was_granted(town: Town) -> None:
    rest = with_token(town.world, "maintainer")
    assert await AppGrants(rest, town.lookout).lack(SAMPLE) is None
    assert await AppGrants(rest, town.lookout).reaches(SAMPLE)
    await rest.aclose()


async def test_an_app_that_is_taken_away_stops_what_it_was_doing_there_unless_it_is_back(town: Town) -> None:
    town.app.permissions |= ENOUGH
    queue = InlineQueue()
    here, elsewhere = job(installation=town.home.id), job("other-1-1", installation=77)
    for one in (here, elsewhere):
        await queue.put(one)
    lifecycle = Lifecycle(queue, "fix-me", town.forge, None, AppGrants(town.forge.rest, town.lookout))
    lost = Reach(installation=town.home.id, lost=True, repositories=(), permissions={}, page="")
    await lifecycle.take(lost)
    assert len(await queue.everywhere()) == 2
    town.home.repositories.clear()
    await lifecycle.take(lost.model_copy(update={"repositories": (Repo(owner="acme", name="other"),)}))
    assert len(await queue.everywhere()) == 2
    await lifecycle.take(lost)
    ended = await queue.state(here.id)
    assert ended is not None and ended.result == Cancelled(why="out_of_reach")
    assert [one.job for one in await queue.everywhere()] == [elsewhere]


async def test_an_installation_that_lacks_something_is_told_to_the_operator_at_once(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    grants = AppGrants(town.forge.rest, town.lookout)
    told = Reach(
        installation=7, lost=False, repositories=(), permissions={"issues": "write"}, page="https://x"
    )
    await grants.changed(told)
    await grants.changed(told.model_copy(update={"permissions": ENOUGH}))
    (line,) = caplog.records
    assert line.__dict__["lacks"] == "contents: write, pull_requests: write"
