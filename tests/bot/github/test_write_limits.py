"""Writes that GitHub rate limits, rejects or does not confirm: each is executed once, or raises an error."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.bot.errors import UnprocessableRequest
from patchwright.bot.github.auth import AppAuth, RequestPolicy
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_write_limiter import SharedWriteLimiter
from patchwright.bot.write_limiter import WriteLimiter
from patchwright.demo.github import FakeGitHub, Issue, Repository
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import Forbidden, ForgeError, RateLimited, Unauthorized

SAMPLE = Repo(owner="acme", name="sample")
QUICK = RequestPolicy(write_interval=0.01, initial_backoff=0.01, max_rate_limit_wait=5, timeout=10)
SECONDARY = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
}
COMMENTS = "/issues/1/comments"

Open = Callable[..., GitHubForge]


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    return fake_github.create_repository("acme/sample", {"a.txt": "a\n"})


@pytest.fixture
def issue(fake_github: FakeGitHub, repo: Repository) -> Issue:
    return fake_github.create_issue(repo, title="T", body="B", by="reporter")


@pytest.fixture
async def open_forge(fake_github: FakeGitHub, repo: Repository) -> AsyncIterator[Open]:
    """Opens open_forge forge for the App, as in open_forge process."""
    app = fake_github.create_app()
    fake_github.install_app(app, repo)
    access = AppAuth(str(app.id), SecretStr(app.private_key_pem))
    urls = fake_github.urls
    async with AsyncExitStack() as stack:

        def create(limiter: WriteLimiter | None = None, policy: RequestPolicy = QUICK) -> GitHubForge:
            forge = GitHubForge(access, urls, policy=policy, write_limiter=limiter)
            stack.push_async_callback(forge.aclose)
            return forge

        yield create


def comment_texts(repo: Repository) -> list[str]:
    return [comment.body.partition("\n")[2] for comment in repo.comments(1)]


@pytest.mark.slow
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
async def test_a_rate_limited_write_is_executed_once(
    fake_github: FakeGitHub, repo: Repository, issue: Issue, open_forge: Open, method: str, status: int,
    headers: dict[str, str], body: dict[str, object],
) -> None:  # fmt: skip
    forge = open_forge()
    if method == "PATCH":
        await forge.upsert_comment(SAMPLE, 1, "tag", "first")
    path = COMMENTS if method == "POST" else f"/issues/comments/{repo.comments(1)[0].id}"
    soon = str(int((datetime.now(UTC) + timedelta(seconds=2)).timestamp()))
    response_headers = {name: soon if value == "now" else value for name, value in headers.items()}
    started_at = time.monotonic()
    fake_github.fail_next_request(method, path, status=status, headers=response_headers, body=body)
    await forge.upsert_comment(SAMPLE, 1, "tag", "last")
    assert comment_texts(repo) == ["last"]
    assert time.monotonic() - started_at >= 0.9, "the rate limit was ignored"


@pytest.mark.parametrize(
    ("status", "error"), [(401, Unauthorized), (403, Forbidden), (422, UnprocessableRequest)], ids=str
)
async def test_a_rejected_write_is_an_error(
    fake_github: FakeGitHub,
    repo: Repository,
    issue: Issue,
    open_forge: Open,
    status: int,
    error: type[ForgeError],
) -> None:
    fake_github.fail_next_request("POST", COMMENTS, status=status, times=2)
    with pytest.raises(error) as caught:
        await open_forge().upsert_comment(SAMPLE, 1, "tag", "said")
    assert not caught.value.retryable and comment_texts(repo) == []


async def test_a_revoked_token_is_renewed_for_a_write(
    fake_github: FakeGitHub, repo: Repository, issue: Issue, open_forge: Open
) -> None:
    forge = open_forge()
    await forge.get_repo_facts(SAMPLE)
    fake_github.fail_next_request("POST", COMMENTS, status=401)
    await forge.upsert_comment(SAMPLE, 1, "tag", "said")
    assert comment_texts(repo) == ["said"]


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["request", "response"])
@pytest.mark.parametrize("then", [403, 429])
async def test_a_lost_response_and_a_rate_limit_create_one_comment(
    fake_github: FakeGitHub, repo: Repository, issue: Issue, open_forge: Open, lost: str, then: int
) -> None:
    lose = fake_github.lose_next_request if lost == "request" else fake_github.lose_next_response
    lose("POST", COMMENTS)
    fake_github.fail_next_request("GET", COMMENTS, status=then, headers={"retry-after": "1"}, body=SECONDARY)
    await open_forge().upsert_comment(SAMPLE, 1, "tag", "said")
    assert comment_texts(repo) == ["said"]


@pytest.mark.redis
async def test_a_rate_limit_applies_to_all_processes(
    fake_github: FakeGitHub, repo: Repository, issue: Issue, open_forge: Open, short_tmp: Path
) -> None:
    async with run_embedded_redis(short_tmp) as url:
        limiters = [SharedWriteLimiter(url), SharedWriteLimiter(url)]
        one, other = (open_forge(limiter) for limiter in limiters)
        await asyncio.gather(one.get_repo_facts(SAMPLE), other.get_repo_facts(SAMPLE))
        fake_github.fail_next_request(
            "POST", COMMENTS, status=429, headers={"retry-after": "600"}, body=SECONDARY
        )
        with pytest.raises(RateLimited):
            await one.upsert_comment(SAMPLE, 1, "one", "said by one")
        writes_before = len(fake_github.writes)
        for attempt in (
            other.upsert_comment(SAMPLE, 1, "other", "said by the other"),
            other.get_repo_facts(SAMPLE),
        ):
            with pytest.raises(RateLimited) as caught:
                await attempt
            left = caught.value.until - datetime.now(UTC)
            assert timedelta(seconds=500) < left <= timedelta(seconds=600)
        assert len(fake_github.writes) == writes_before and comment_texts(repo) == []
        await open_forge().upsert_comment(SAMPLE, 1, "third", "by another process")  # positive control
        assert comment_texts(repo) == ["by another process"]
        for limiter in limiters:
            await limiter.close()


@pytest.mark.slow
@pytest.mark.redis
async def test_two_processes_share_the_write_interval(
    fake_github: FakeGitHub, repo: Repository, issue: Issue, open_forge: Open, short_tmp: Path
) -> None:
    async with run_embedded_redis(short_tmp) as url:
        limiters = [SharedWriteLimiter(url), SharedWriteLimiter(url)]
        policy = RequestPolicy(write_interval=0.3, initial_backoff=0.01)
        forges = [open_forge(limiter, policy) for limiter in limiters]
        started_at = time.monotonic()
        await asyncio.gather(
            *(
                forge.upsert_comment(SAMPLE, 1, f"{n}-{m}", "x")
                for n, forge in enumerate(forges)
                for m in range(3)
            )
        )
        assert time.monotonic() - started_at >= 5 * 0.3 - 0.05
        assert len(comment_texts(repo)) == 6
        for limiter in limiters:
            await limiter.close()
