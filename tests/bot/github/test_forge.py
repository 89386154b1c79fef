"""What GitHub's refusals, limits and silences mean, and that a token has no more than it needs."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from pydantic import SecretStr

from bot.errors import Rejected, Unanswered
from bot.github.comments import clipped
from bot.github.forge import GitHubForge
from bot.github.rest import AppAccess, Pace, TokenAccess
from demo.world import Repository, World
from resolver.domain import Job, JobId, Proposal, Repo, User
from resolver.errors import Forbidden, ForgeError, NotFound, RateLimited, SettingsError, Unauthorized
from resolver.forge import MAX_BODY

SAMPLE = Repo(owner="acme", name="sample")
QUICK = Pace(between_writes=0, first_pause=0.01, longest_wait=2, timeout=5)


@pytest.fixture
def repo(world: World) -> Repository:
    return world.repository("acme/sample", {"a.txt": "a\n"}, permissions={"patchwright": "write"})


def forge_for(world: World, access: TokenAccess | AppAccess, pace: Pace = QUICK) -> GitHubForge:
    return GitHubForge(
        access, api_url=world.api_url, graphql_url=world.graphql_url, server_url=world.server_url, pace=pace
    )


@pytest.fixture
async def forge(world: World, repo: Repository) -> AsyncIterator[GitHubForge]:
    async with forge_for(world, TokenAccess(SecretStr(world.token("patchwright")))) as forge:
        yield forge


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (410, NotFound),
        (451, Forbidden),
        (422, Rejected),
    ],
)
async def test_a_refusal_says_who_must_act(
    world: World, forge: GitHubForge, status: int, error: type[ForgeError]
) -> None:
    world.refuse_next("GET", "/repos/acme/sample", status=status, times=2)
    with pytest.raises(
        error, match=rf"GET repos/acme/sample: GitHub answered {status}: refused to order"
    ) as caught:
        await forge.facts(SAMPLE)
    assert not caught.value.retryable


async def test_a_server_that_fails_is_asked_again_a_few_times(world: World, forge: GitHubForge) -> None:
    world.refuse_next("GET", "/repos/acme/sample", status=502, times=3)
    assert (await forge.facts(SAMPLE)).default_branch == "main"
    world.refuse_next("GET", "/repos/acme/sample", status=502, times=4)
    with pytest.raises(Unanswered) as caught:
        await forge.facts(SAMPLE)
    assert caught.value.retryable


async def test_a_server_that_is_not_there_is_one_clear_error(world: World) -> None:
    access = TokenAccess(SecretStr("ghp_nothing"))
    async with GitHubForge(access, api_url="http://127.0.0.1:1", pace=QUICK) as forge:
        with pytest.raises(Unanswered, match="no answer from GitHub: GET repos/acme/sample"):
            await forge.facts(SAMPLE)


async def test_what_is_no_answer_of_githubs_is_an_error(world: World, forge: GitHubForge) -> None:
    world.refuse_next("GET", "/repos/acme/sample", status=200)
    with pytest.raises(ForgeError, match="is not answered as GitHub does: id: Field required"):
        await forge.facts(SAMPLE)


async def test_an_unknown_token_is_unauthorized(world: World, repo: Repository) -> None:
    async with forge_for(world, TokenAccess(SecretStr("ghp_unknown"))) as forge:
        with pytest.raises(Unauthorized) as caught:
            await forge.facts(SAMPLE)
    assert "ghp_unknown" not in str(caught.value)


async def test_a_token_that_may_not_ask_raises_rather_than_blames_the_user(
    world: World, repo: Repository
) -> None:
    world.permit(repo, "maintainer", "write")
    async with forge_for(world, TokenAccess(SecretStr(world.token("stranger")))) as forge:
        with pytest.raises(Forbidden):
            await forge.permission(SAMPLE, User(id=world.user("maintainer").id, login="maintainer"))


# --- limits -------------------------------------------------------------------------------------------------


async def test_a_short_limit_is_waited_out(world: World, forge: GitHubForge) -> None:
    world.refuse_next("GET", "/repos/acme/sample", status=429, headers={"retry-after": "1"})
    began = time.monotonic()
    assert (await forge.facts(SAMPLE)).default_branch == "main"
    assert time.monotonic() - began >= 0.9


@pytest.mark.parametrize("status", [403, 429])
async def test_a_long_limit_says_until_when(world: World, forge: GitHubForge, status: int) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(until.timestamp()))}
    world.refuse_next("GET", "/repos/acme/sample", status=status, headers=headers)
    with pytest.raises(RateLimited) as caught:
        await forge.facts(SAMPLE)
    assert abs(caught.value.until - until) < timedelta(seconds=2)


async def test_a_limit_without_a_time_is_a_minute(world: World, forge: GitHubForge) -> None:
    world.refuse_next("GET", "/repos/acme/sample", status=429)
    with pytest.raises(RateLimited) as caught:
        await forge.facts(SAMPLE)
    assert timedelta(seconds=50) < caught.value.until - datetime.now(UTC) <= timedelta(seconds=60)


async def test_a_proxys_own_retry_after_is_no_crash(world: World, forge: GitHubForge) -> None:
    date = {"retry-after": "Fri, 20 Nov 2026 07:00:00 GMT"}
    world.refuse_next("GET", "/repos/acme/sample", status=429, headers=date)
    assert (await forge.facts(SAMPLE)).default_branch == "main"


async def test_writes_keep_their_distance_and_reads_do_not_wait(world: World, repo: Repository) -> None:
    issue = world.issue(repo, title="T", body="B", by="patchwright")
    pace = Pace(between_writes=0.5, first_pause=0.01)
    async with forge_for(world, TokenAccess(SecretStr(world.token("patchwright"))), pace) as forge:
        await forge.say(SAMPLE, issue.number, "one", "1")
        began = time.monotonic()
        await forge.facts(SAMPLE)
        read = time.monotonic() - began
        await asyncio.gather(*(forge.say(SAMPLE, issue.number, tag, tag) for tag in ("two", "three")))
        written = time.monotonic() - began
    assert read < 0.4
    assert written >= 0.9


async def test_two_at_once_with_one_tag_make_one_comment(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    issue = world.issue(repo, title="T", body="B", by="patchwright")
    await asyncio.gather(*(forge.say(SAMPLE, issue.number, "tag", f"{number}") for number in range(5)))
    assert len(repo.comments(issue.number)) == 1


# --- tokens -------------------------------------------------------------------------------------------------


async def test_an_apps_token_is_for_one_repository_and_no_more_than_needed(
    world: World, repo: Repository
) -> None:
    other = world.repository("acme/other", {"a.txt": "a\n"}, private=True)
    app = world.app(
        permissions={"contents": "write", "issues": "write", "pull_requests": "write", "actions": "write"}
    )
    world.install(app, repo, other)
    async with forge_for(world, AppAccess(str(app.id), SecretStr(app.private_key_pem))) as forge:
        given = await forge.credentials(SAMPLE)
    assert given.expires is not None and given.expires > datetime.now(UTC) + timedelta(minutes=50)
    async with httpx.AsyncClient(
        base_url=world.api_url, headers={"Authorization": f"Bearer {given.token}"}
    ) as api:
        assert (await api.get("/repos/acme/sample")).status_code == 200
        assert (await api.get("/repos/acme/other")).status_code == 404
    whole = world.installation_token(world.install(app, repo, other))  # positive control
    async with httpx.AsyncClient(base_url=world.api_url, headers={"Authorization": f"Bearer {whole}"}) as api:
        assert (await api.get("/repos/acme/other")).status_code == 200


async def test_a_token_has_of_the_useful_permissions_those_that_were_granted(
    world: World, repo: Repository
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
        app = world.app(case.replace(" ", "-"), needed | more)
        world.install(app, repo)
        async with forge_for(world, AppAccess(str(app.id), SecretStr(app.private_key_pem))) as forge:
            given = await forge.credentials(SAMPLE)
        assert world.permissions_of(given.token) == {"metadata": "read"} | needed | wanted[case], case


async def test_an_app_that_is_not_installed_is_forbidden_with_the_mend(
    world: World, repo: Repository
) -> None:
    app = world.app()
    async with forge_for(world, AppAccess(str(app.id), SecretStr(app.private_key_pem))) as forge:
        with pytest.raises(Forbidden, match="not installed on acme/sample"):
            await forge.facts(SAMPLE)


async def test_a_token_is_minted_once_for_many_requests(world: World, repo: Repository) -> None:
    app = world.app()
    world.install(app, repo)
    async with forge_for(world, AppAccess(str(app.id), SecretStr(app.private_key_pem))) as forge:
        tokens = await asyncio.gather(*(forge.credentials(SAMPLE) for _ in range(5)))
        await forge.facts(SAMPLE)
        assert len({given.token for given in tokens}) == 1
        assert await forge.credentials(SAMPLE) == tokens[0]


async def test_two_clients_of_one_app_share_no_token(world: World, repo: Repository) -> None:
    """githubkit's own cache would hand the token of one server to another."""
    app = world.app()
    world.install(app, repo)
    access = AppAccess(str(app.id), SecretStr(app.private_key_pem))
    async with forge_for(world, access) as one, forge_for(world, access) as other:
        assert await one.credentials(SAMPLE) != await other.credentials(SAMPLE)


async def test_a_key_that_is_none_is_refused_before_any_work_and_not_shown(world: World) -> None:
    for broken in ("", "hunter2-secret", "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"):
        with pytest.raises(SettingsError, match="PATCHWRIGHT_PRIVATE_KEY") as caught:
            forge_for(world, AppAccess("1", SecretStr(broken)))
        assert "hunter2" not in str(caught.value)


async def test_the_token_of_an_actions_run_knows_its_own_comments(world: World, repo: Repository) -> None:
    token = world.installation_token(world.install(world.app("github-actions"), repo))
    issue = world.issue(repo, title="T", body="B", by="patchwright")
    for text in ("Working.", "Done."):
        async with forge_for(world, TokenAccess(SecretStr(token))) as forge:
            await forge.say(SAMPLE, issue.number, "tag", text)
    [comment] = repo.comments(issue.number)
    assert (comment.author.login, comment.body.splitlines()[-1]) == ("github-actions[bot]", "Done.")


@pytest.mark.parametrize("app", ["github-actions", "patchwright"])
async def test_an_installations_token_is_known_as_its_app_before_it_has_said_anything(
    world: World, repo: Repository, app: str
) -> None:
    apps = {name: world.app(name) for name in ("github-actions", "patchwright")}
    token = world.installation_token(world.install(apps[app], repo))
    async with forge_for(world, TokenAccess(SecretStr(token))) as forge:
        us = await forge.identity(SAMPLE)
    assert us is not None and (us.login, us.id) == (f"{app}[bot]", world.user(f"{app}[bot]").id)


async def test_a_client_serves_tasks_that_were_started_elsewhere(world: World, repo: Repository) -> None:
    """One connection for all of them: githubkit's own would open one for each call."""
    app = asyncio.Queue[GitHubForge]()

    async def handler() -> bool:
        return (await (await app.get()).facts(SAMPLE)).private

    started_before = asyncio.create_task(handler())
    await asyncio.sleep(0)
    async with forge_for(world, TokenAccess(SecretStr(world.token("patchwright")))) as forge:
        await forge.facts(SAMPLE)
        began = world.connections
        app.put_nowait(forge)
        assert await started_before is False
        assert world.connections == began


# --- hostile text -------------------------------------------------------------------------------------------


async def test_our_tag_quoted_in_our_own_comment_is_not_the_tag(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    issue = world.issue(repo, title="T", body="B", by="stranger")
    other_issue = world.issue(repo, title="T", body="B", by="stranger")
    await forge.say(SAMPLE, other_issue.number, "tag", "Working.")
    marker = repo.comments(other_issue.number)[0].body.splitlines()[0]
    await forge.say(SAMPLE, issue.number, "other", f"You wrote:\n{marker}\nIndeed.")
    async with forge_for(world, TokenAccess(SecretStr(world.token("patchwright")))) as other:
        await other.say(SAMPLE, issue.number, "tag", "Done.")
    assert [comment.body.splitlines()[-1] for comment in repo.comments(issue.number)] == ["Indeed.", "Done."]


async def test_a_comment_that_was_deleted_is_said_anew(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    issue = world.issue(repo, title="T", body="B", by="stranger")
    await forge.say(SAMPLE, issue.number, "tag", "Working.")
    issue.comments.clear()
    await forge.say(SAMPLE, issue.number, "tag", "Done.")
    assert [comment.body.splitlines()[-1] for comment in repo.comments(issue.number)] == ["Done."]


async def test_a_permission_taken_away_is_gone(world: World, repo: Repository, forge: GitHubForge) -> None:
    world.permit(repo, "maintainer", "write")
    maintainer = User(id=world.user("maintainer").id, login="maintainer")
    assert await forge.permission(SAMPLE, maintainer) == "write"
    world.permit(repo, "maintainer", "none")
    assert await forge.permission(SAMPLE, maintainer) == "read"


async def test_a_repository_or_branch_name_stays_in_its_place(world: World, forge: GitHubForge) -> None:
    assert await forge.find_pull(SAMPLE, "a&state=all&head=x/../../y#z") is None
    with pytest.raises(NotFound):
        await forge.facts(Repo(owner="acme", name=".."))


async def test_a_deleted_account_is_a_ghost_that_nobody_trusts(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    issue = world.issue(repo, title="T", body="B", by="patchwright")
    world.said(issue, "bye", by="leaver")
    world.leave("leaver")
    seen = await forge.thread(Job(id=JobId("1"), repo=SAMPLE, number=issue.number, requester=None))
    assert [(one.author.login, one.trusted) for one in seen.comments] == [("ghost", False)]
    assert seen.trusted


async def test_a_proposal_that_github_refuses_is_one_error(repo: Repository, forge: GitHubForge) -> None:
    nowhere = Proposal(
        repo=SAMPLE, number=1, base="main", branch="patchwright/issue-1", head_sha="0" * 40,
        title="T", body="B", draft=False,
    )  # fmt: skip
    with pytest.raises(Rejected, match="422: Validation Failed; head is invalid"):
        await forge.propose(nowhere)
    assert repo.pulls == ()


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("", ""),
        ("```python\n", "\n```"),
        ("````\n```\n", "\n````"),
        ("```\n```\n", ""),
        ("~~~\n", "\n~~~"),
        ("<details><summary>S</summary>\n", "\n</details>"),
        ("<details>\n\n```\n", "\n```\n</details>"),
    ],
)
def test_what_was_open_at_the_cut_is_closed(opened: str, closed: str) -> None:
    text = clipped(opened + "word " * 50_000, MAX_BODY)
    assert len(text) <= MAX_BODY
    kept, _, note = text.rpartition("\n\n*")
    assert note.startswith("The rest is cut off")
    assert kept.startswith(opened) and kept.endswith(closed)
    assert set(kept.removeprefix(opened).removesuffix(closed)) == set("word ")
    assert clipped("short", MAX_BODY) == "short"
