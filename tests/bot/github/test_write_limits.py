"""What becomes of a write that GitHub limits, refuses or does not answer: it is there once, or its error says why."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.embedded import embedded_redis
from bot.errors import Rejected
from bot.github.forge import GitHubForge
from bot.github.rest import AppAccess, Pace
from bot.pacing import Line
from bot.redis.pacing import SharedLine
from demo.world import Issue, Repository, World
from resolver.domain import Repo
from resolver.errors import Forbidden, ForgeError, RateLimited, Unauthorized

SAMPLE = Repo(owner="acme", name="sample")
QUICK = Pace(between_writes=0.01, first_pause=0.01, longest_wait=5, timeout=10)
SECONDARY = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
}
COMMENTS = "/issues/1/comments"

Open = Callable[..., GitHubForge]


@pytest.fixture
def repo(world: World) -> Repository:
    return world.repository("acme/sample", {"a.txt": "a\n"})


@pytest.fixture
def issue(world: World, repo: Repository) -> Issue:
    return world.issue(repo, title="T", body="B", by="reporter")


@pytest.fixture
async def another(world: World, repo: Repository) -> AsyncIterator[Open]:
    """One more process that acts as the App."""
    app = world.app()
    world.install(app, repo)
    access = AppAccess(str(app.id), SecretStr(app.private_key_pem))
    urls = {"api_url": world.api_url, "graphql_url": world.graphql_url, "server_url": world.server_url}
    async with AsyncExitStack() as stack:

        def open_one(line: Line | None = None, pace: Pace = QUICK) -> GitHubForge:
            made = GitHubForge(access, **urls, pace=pace, line=line)
            stack.push_async_callback(made.aclose)
            return made

        yield open_one


def said(repo: Repository) -> list[str]:
    return [comment.body.partition("\n")[2] for comment in repo.comments(1)]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (403, {"retry-after": "1"}, SECONDARY),
        (429, {"retry-after": "1"}, SECONDARY),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "now"}, {"message": "API rate limit exceeded"}),
    ],
    ids=["secondary, 403", "secondary, 429", "primary"],
)  # fmt: skip
async def test_a_limited_write_is_waited_for_and_made_once(
    world: World, repo: Repository, issue: Issue, another: Open, method: str, status: int, headers: dict[str, str],
    body: dict[str, object],
) -> None:  # fmt: skip
    forge = another()
    if method == "PATCH":
        await forge.say(SAMPLE, 1, "tag", "first")
    path = COMMENTS if method == "POST" else f"/issues/comments/{repo.comments(1)[0].id}"
    soon = str(int((datetime.now(UTC) + timedelta(seconds=2)).timestamp()))
    told = {name: soon if value == "now" else value for name, value in headers.items()}
    began = time.monotonic()
    world.refuse_next(method, path, status=status, headers=told, body=body)
    await forge.say(SAMPLE, 1, "tag", "last")
    assert said(repo) == ["last"]
    assert time.monotonic() - began >= 0.9, "the limit was not kept to"


@pytest.mark.parametrize(
    ("status", "error"), [(401, Unauthorized), (403, Forbidden), (422, Rejected)], ids=str
)
async def test_a_refused_write_is_an_error_and_leaves_nothing(
    world: World, repo: Repository, issue: Issue, another: Open, status: int, error: type[ForgeError]
) -> None:
    world.refuse_next("POST", COMMENTS, status=status, times=2)
    with pytest.raises(error) as caught:
        await another().say(SAMPLE, 1, "tag", "said")
    assert not caught.value.retryable and said(repo) == []


async def test_a_token_that_was_revoked_under_way_costs_no_write_and_doubles_none(
    world: World, repo: Repository, issue: Issue, another: Open
) -> None:
    forge = another()
    await forge.facts(SAMPLE)
    world.refuse_next("POST", COMMENTS, status=401)
    await forge.say(SAMPLE, 1, "tag", "said")
    assert said(repo) == ["said"]


@pytest.mark.parametrize("lost", ["request", "response"])
@pytest.mark.parametrize("then", [403, 429])
async def test_a_lost_answer_and_then_a_limit_is_still_one_comment(
    world: World, repo: Repository, issue: Issue, another: Open, lost: str, then: int
) -> None:
    lose = world.lose_next_request if lost == "request" else world.lose_next_response
    lose("POST", COMMENTS)
    world.refuse_next("GET", COMMENTS, status=then, headers={"retry-after": "1"}, body=SECONDARY)
    await another().say(SAMPLE, 1, "tag", "said")
    assert said(repo) == ["said"]


@pytest.mark.redis
async def test_what_one_process_is_told_to_wait_for_all_wait_for(
    world: World, repo: Repository, issue: Issue, another: Open, short_tmp: Path
) -> None:
    async with embedded_redis(short_tmp) as url:
        lines = [SharedLine(url), SharedLine(url)]
        one, other = (another(line) for line in lines)
        await asyncio.gather(one.facts(SAMPLE), other.facts(SAMPLE))
        world.refuse_next("POST", COMMENTS, status=429, headers={"retry-after": "600"}, body=SECONDARY)
        with pytest.raises(RateLimited):
            await one.say(SAMPLE, 1, "one", "said by one")
        asked = len(world.writes)
        for attempt in (other.say(SAMPLE, 1, "other", "said by the other"), other.facts(SAMPLE)):
            with pytest.raises(RateLimited) as caught:
                await attempt
            left = caught.value.until - datetime.now(UTC)
            assert timedelta(seconds=500) < left <= timedelta(seconds=600)
        assert len(world.writes) == asked and said(repo) == []
        await another().say(SAMPLE, 1, "third", "by whom nothing was told")  # positive control
        assert said(repo) == ["by whom nothing was told"]
        for line in lines:
            await line.close()


@pytest.mark.redis
async def test_two_processes_write_no_faster_than_one(
    world: World, repo: Repository, issue: Issue, another: Open, short_tmp: Path
) -> None:
    async with embedded_redis(short_tmp) as url:
        lines = [SharedLine(url), SharedLine(url)]
        pace = Pace(between_writes=0.3, first_pause=0.01)
        forges = [another(line, pace) for line in lines]
        began = time.monotonic()
        await asyncio.gather(
            *(forge.say(SAMPLE, 1, f"{n}-{m}", "x") for n, forge in enumerate(forges) for m in range(3))
        )
        assert time.monotonic() - began >= 5 * 0.3 - 0.05
        assert len(said(repo)) == 6
        for line in lines:
            await line.close()
