"""Errors, rate limits and tokens of GitHubForge."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from pydantic import SecretStr

from patchwright.bot.errors import ForgeUnavailable, UnprocessableRequest
from patchwright.bot.github.auth import AppAuth, GitHubServer, RequestPolicy, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.resolver.domain import Job, JobId, Repo, User
from patchwright.resolver.errors import (
    Forbidden,
    ForgeError,
    NotFound,
    RateLimited,
    SettingsError,
    Unauthorized,
)
from patchwright.resolver.forge_writes import PullRequestSpec

SAMPLE = Repo(owner="acme", name="sample")
QUICK = RequestPolicy(write_interval=0, initial_backoff=0.01, max_rate_limit_wait=2, timeout=5)


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    return fake_github.create_repository(
        "acme/sample", {"a.txt": "a\n"}, permissions={"patchwright": "write"}
    )


def create_forge(
    fake_github: FakeGitHub, access: TokenAuth | AppAuth, policy: RequestPolicy = QUICK
) -> GitHubForge:
    return GitHubForge(
        access,
        fake_github.urls,
        policy=policy,
    )


@pytest.fixture
async def forge(fake_github: FakeGitHub, repo: Repository) -> AsyncIterator[GitHubForge]:
    async with create_forge(
        fake_github, TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    ) as forge:
        yield forge


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (410, NotFound),
        (451, Forbidden),
        (422, UnprocessableRequest),
    ],
)
async def test_error_responses_are_mapped(
    fake_github: FakeGitHub, forge: GitHubForge, status: int, error: type[ForgeError]
) -> None:
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=status, times=2)
    with pytest.raises(
        error, match=rf"GET repos/acme/sample: GitHub returned {status}: refused to order"
    ) as caught:
        await forge.get_repo_facts(SAMPLE)
    assert not caught.value.retryable


async def test_server_errors_are_retried(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=502, times=3)
    assert (await forge.get_repo_facts(SAMPLE)).default_branch == "main"
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=502, times=4)
    with pytest.raises(ForgeUnavailable) as caught:
        await forge.get_repo_facts(SAMPLE)
    assert caught.value.retryable


async def test_an_unreachable_server_is_one_clear_error(fake_github: FakeGitHub) -> None:
    access = TokenAuth(SecretStr("ghp_nothing"))
    async with GitHubForge(
        access, GitHubServer(github_server_url="http://127.0.0.1:1"), policy=QUICK
    ) as forge:
        with pytest.raises(ForgeUnavailable, match=r"GET repos/acme/sample: connection refused$"):
            await forge.get_repo_facts(SAMPLE)


async def test_an_unexpected_response_is_an_error(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=200)
    with pytest.raises(ForgeError, match=r"unexpected response from GitHub: .*: id: Field required"):
        await forge.get_repo_facts(SAMPLE)


async def test_an_unknown_token_is_unauthorized(fake_github: FakeGitHub, repo: Repository) -> None:
    async with create_forge(fake_github, TokenAuth(SecretStr("ghp_unknown"))) as forge:
        with pytest.raises(Unauthorized) as caught:
            await forge.get_repo_facts(SAMPLE)
    assert "ghp_unknown" not in str(caught.value)


async def test_a_forbidden_permission_query_raises(fake_github: FakeGitHub, repo: Repository) -> None:
    fake_github.set_role(repo, "maintainer", "write")
    async with create_forge(fake_github, TokenAuth(SecretStr(fake_github.create_token("stranger")))) as forge:
        with pytest.raises(Forbidden):
            await forge.get_permission(SAMPLE, User(id=fake_github.user("maintainer").id, login="maintainer"))


# --- rate limits -------------------------------------------------------------------------------------------------


async def test_a_short_rate_limit_is_waited_out(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=429, headers={"retry-after": "1"})
    started_at = time.monotonic()
    assert (await forge.get_repo_facts(SAMPLE)).default_branch == "main"
    assert time.monotonic() - started_at >= 1.0


@pytest.mark.parametrize("status", [403, 429])
async def test_a_long_rate_limit_raises_with_its_end(
    fake_github: FakeGitHub, forge: GitHubForge, status: int
) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(until.timestamp()))}
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=status, headers=headers)
    with pytest.raises(RateLimited) as caught:
        await forge.get_repo_facts(SAMPLE)
    assert abs(caught.value.until - until) < timedelta(seconds=2)


async def test_a_rate_limit_without_a_time_lasts_a_minute(
    fake_github: FakeGitHub, forge: GitHubForge
) -> None:
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=429)
    with pytest.raises(RateLimited) as caught:
        await forge.get_repo_facts(SAMPLE)
    assert timedelta(seconds=50) < caught.value.until - datetime.now(UTC) <= timedelta(seconds=60)


async def test_an_invalid_retry_after_header_is_tolerated(
    fake_github: FakeGitHub, forge: GitHubForge
) -> None:
    date = {"retry-after": "Fri, 20 Nov 2026 07:00:00 GMT"}
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=429, headers=date)
    assert (await forge.get_repo_facts(SAMPLE)).default_branch == "main"


async def test_writes_are_spaced_and_reads_are_not(fake_github: FakeGitHub, repo: Repository) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="patchwright")
    policy = RequestPolicy(write_interval=0.5, initial_backoff=0.01)
    async with create_forge(
        fake_github, TokenAuth(SecretStr(fake_github.create_token("patchwright"))), policy
    ) as forge:
        started_at = time.monotonic()
        await forge.upsert_comment(SAMPLE, issue.number, "one", "1")
        await asyncio.gather(
            *(forge.upsert_comment(SAMPLE, issue.number, tag, tag) for tag in ("two", "three"))
        )
        assert time.monotonic() - started_at >= 1.0
    hourly = RequestPolicy(write_interval=3600, initial_backoff=0.01)
    async with create_forge(
        fake_github, TokenAuth(SecretStr(fake_github.create_token("patchwright"))), hourly
    ) as forge:
        await forge.upsert_comment(SAMPLE, issue.number, "four", "4")
        async with asyncio.timeout(60):
            await forge.get_repo_facts(SAMPLE)


async def test_concurrent_calls_with_one_tag_create_one_comment(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="patchwright")
    await asyncio.gather(
        *(forge.upsert_comment(SAMPLE, issue.number, "tag", f"{number}") for number in range(5))
    )
    assert len(repo.comments(issue.number)) == 1


# --- tokens -------------------------------------------------------------------------------------------------


async def test_an_app_token_is_limited_to_one_repository(fake_github: FakeGitHub, repo: Repository) -> None:
    other = fake_github.create_repository("acme/other", {"a.txt": "a\n"}, private=True)
    app = fake_github.create_app(
        permissions={"contents": "write", "issues": "write", "pull_requests": "write", "actions": "write"}
    )
    fake_github.install_app(app, repo, other)
    async with create_forge(fake_github, AppAuth(str(app.id), SecretStr(app.private_key_pem))) as forge:
        credentials = await forge.get_credentials(SAMPLE)
    assert credentials.expires is not None and credentials.expires > datetime.now(UTC) + timedelta(minutes=50)
    async with httpx.AsyncClient(
        base_url=fake_github.api_url, headers={"Authorization": f"Bearer {credentials.token}"}
    ) as api:
        assert (await api.get("/repos/acme/sample")).status_code == 200
        assert (await api.get("/repos/acme/other")).status_code == 404
    full_token = fake_github.create_installation_token(
        fake_github.install_app(app, repo, other)
    )  # positive control
    async with httpx.AsyncClient(
        base_url=fake_github.api_url, headers={"Authorization": f"Bearer {full_token}"}
    ) as api:
        assert (await api.get("/repos/acme/other")).status_code == 200


async def test_a_token_has_the_granted_optional_permissions(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    needed = {"contents": "write", "issues": "write", "pull_requests": "write"}
    granted = {
        "none": {},
        "some": {"checks": "write", "actions": "write", "administration": "write"},
        "less": {"checks": "read", "statuses": "read"},
    }
    wanted = {
        "none": {},
        "some": {"checks": "write", "actions": "read"},
        "less": {"checks": "read", "statuses": "read"},
    }
    for case, more in granted.items():
        app = fake_github.create_app(case.replace(" ", "-"), needed | more)
        fake_github.install_app(app, repo)
        async with create_forge(fake_github, AppAuth(str(app.id), SecretStr(app.private_key_pem))) as forge:
            credentials = await forge.get_credentials(SAMPLE)
        assert (
            fake_github.token_permissions(credentials.token) == {"metadata": "read"} | needed | wanted[case]
        ), case


async def test_an_app_that_is_not_installed_is_forbidden(fake_github: FakeGitHub, repo: Repository) -> None:
    app = fake_github.create_app()
    async with create_forge(fake_github, AppAuth(str(app.id), SecretStr(app.private_key_pem))) as forge:
        with pytest.raises(Forbidden, match="not installed on acme/sample"):
            await forge.get_repo_facts(SAMPLE)


async def test_a_token_is_created_once_for_many_requests(fake_github: FakeGitHub, repo: Repository) -> None:
    app = fake_github.create_app()
    fake_github.install_app(app, repo)
    async with create_forge(fake_github, AppAuth(str(app.id), SecretStr(app.private_key_pem))) as forge:
        tokens = await asyncio.gather(*(forge.get_credentials(SAMPLE) for _ in range(5)))
        await forge.get_repo_facts(SAMPLE)
        assert len({credentials.token for credentials in tokens}) == 1
        assert await forge.get_credentials(SAMPLE) == tokens[0]


async def test_two_clients_of_one_app_share_no_token(fake_github: FakeGitHub, repo: Repository) -> None:
    """githubkit's default cache would give the token of one server to another."""
    app = fake_github.create_app()
    fake_github.install_app(app, repo)
    access = AppAuth(str(app.id), SecretStr(app.private_key_pem))
    async with create_forge(fake_github, access) as one, create_forge(fake_github, access) as other:
        assert await one.get_credentials(SAMPLE) != await other.get_credentials(SAMPLE)


async def test_an_invalid_key_is_rejected_without_quoting_it(fake_github: FakeGitHub) -> None:
    for broken in ("", "hunter2-secret", "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"):
        with pytest.raises(SettingsError, match="PATCHWRIGHT_PRIVATE_KEY") as caught:
            create_forge(fake_github, AppAuth("1", SecretStr(broken)))
        assert "hunter2" not in str(caught.value)


async def test_a_workflow_token_recognizes_its_own_comments(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    token = fake_github.create_installation_token(
        fake_github.install_app(fake_github.create_app("github-actions"), repo)
    )
    issue = fake_github.create_issue(repo, title="T", body="B", by="patchwright")
    for text in ("Working.", "Done."):
        async with create_forge(fake_github, TokenAuth(SecretStr(token))) as forge:
            await forge.upsert_comment(SAMPLE, issue.number, "tag", text)
    [comment] = repo.comments(issue.number)
    assert (comment.author.login, comment.body.splitlines()[-1]) == ("github-actions[bot]", "Done.")


@pytest.mark.parametrize("app", ["github-actions", "patchwright"])
async def test_an_installation_token_identifies_as_its_app(
    fake_github: FakeGitHub, repo: Repository, app: str
) -> None:
    apps = {name: fake_github.create_app(name) for name in ("github-actions", "patchwright")}
    token = fake_github.create_installation_token(fake_github.install_app(apps[app], repo))
    async with create_forge(fake_github, TokenAuth(SecretStr(token))) as forge:
        bot = await forge.get_bot_user(SAMPLE)
    assert bot is not None and (bot.login, bot.id) == (f"{app}[bot]", fake_github.user(f"{app}[bot]").id)


async def test_a_client_shares_its_connection_with_other_tasks(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    """There is one connection for all tasks; githubkit itself would open one for each call."""
    app = asyncio.Queue[GitHubForge]()

    async def handler() -> bool:
        return (await (await app.get()).get_repo_facts(SAMPLE)).private

    started_before = asyncio.create_task(handler())
    await asyncio.sleep(0)
    async with create_forge(
        fake_github, TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    ) as forge:
        await forge.get_repo_facts(SAMPLE)
        started_at = fake_github.connection_count
        app.put_nowait(forge)
        assert await started_before is False
        assert fake_github.connection_count == started_at


# --- hostile text -------------------------------------------------------------------------------------------


async def test_a_quoted_tag_is_not_a_tag(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    other_issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    await forge.upsert_comment(SAMPLE, other_issue.number, "tag", "Working.")
    marker = repo.comments(other_issue.number)[0].body.splitlines()[0]
    await forge.upsert_comment(SAMPLE, issue.number, "other", f"You wrote:\n{marker}\nIndeed.")
    async with create_forge(
        fake_github, TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    ) as other:
        await other.upsert_comment(SAMPLE, issue.number, "tag", "Done.")
    assert [comment.body.splitlines()[-1] for comment in repo.comments(issue.number)] == ["Indeed.", "Done."]


async def test_a_deleted_comment_is_created_again(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    await forge.upsert_comment(SAMPLE, issue.number, "tag", "Working.")
    issue.comments.clear()
    await forge.upsert_comment(SAMPLE, issue.number, "tag", "Done.")
    assert [comment.body.splitlines()[-1] for comment in repo.comments(issue.number)] == ["Done."]


async def test_a_revoked_permission_takes_effect(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    fake_github.set_role(repo, "maintainer", "write")
    maintainer = User(id=fake_github.user("maintainer").id, login="maintainer")
    assert await forge.get_permission(SAMPLE, maintainer) == "write"
    fake_github.set_role(repo, "maintainer", "none")
    assert await forge.get_permission(SAMPLE, maintainer) == "read"


async def test_names_cannot_change_the_request_path(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    assert await forge.find_pull_request(SAMPLE, "a&state=all&head=x/../../y#z") is None
    with pytest.raises(NotFound):
        await forge.get_repo_facts(Repo(owner="acme", name=".."))


async def test_a_deleted_account_is_not_trusted(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="patchwright")
    fake_github.add_comment_silently(issue, "bye", by="leaver")
    fake_github.delete_user("leaver")
    thread = await forge.get_thread(Job(id=JobId("1"), repo=SAMPLE, number=issue.number, requester=None))
    assert [(one.author.login, one.trusted) for one in thread.comments] == [("ghost", False)]
    assert thread.trusted


async def test_a_rejected_pull_request_is_one_error(repo: Repository, forge: GitHubForge) -> None:
    invalid = PullRequestSpec(
        repo=SAMPLE, number=1, base_branch="main", branch="patchwright/issue-1", head_sha="0" * 40,
        title="T", body="B", draft=False,
    )  # fmt: skip
    with pytest.raises(UnprocessableRequest, match="422: Validation Failed; head is invalid"):
        await forge.open_pull_request(invalid)
    assert repo.pulls == ()


async def test_a_base_branch_that_moves_meanwhile_is_tried_once_more(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    head = repo.commit("patchwright/issue-1", {"a.txt": "b\n"})
    spec = PullRequestSpec(
        repo=SAMPLE, number=1, base_branch="main", branch="patchwright/issue-1", head_sha=head,
        title="T", body="B", draft=False,
    )  # fmt: skip
    moved = {"message": "Base branch was modified. Review and try again."}
    fake_github.fail_next_request("POST", "/pulls", status=422, body=moved)
    assert (await forge.open_pull_request(spec)).head_sha == head
    repo.commit("patchwright/issue-2", {"a.txt": "c\n"})
    fake_github.fail_next_request("POST", "/pulls", status=422, body=moved, times=2)
    with pytest.raises(UnprocessableRequest, match="Base branch was modified"):
        await forge.open_pull_request(spec.model_copy(update={"branch": "patchwright/issue-2"}))
