"""Our check run on a commit: one for each job, changed when the job's finding does, none where we may not."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from bot.github.checks import MAX_SUMMARY
from bot.github.forge import GitHubForge
from bot.github.rest import AppAccess, Pace, TokenAccess
from demo.world import Repository, World
from demo.world.state import APP_PERMISSIONS
from resolver.delivery.finding import Finding
from resolver.domain import JobId, Repo
from resolver.forge import DryRun, Masked

SAMPLE = Repo(owner="acme", name="sample")
QUICK = Pace(between_writes=0, first_pause=0.01, timeout=10)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world
        assert world.violations == ()


@pytest.fixture
def repo(world: World) -> Repository:
    return world.repository("acme/sample", {"a.txt": "a\n"}, permissions={"patchwright": "write"})


def forge_of(world: World, access: TokenAccess | AppAccess) -> GitHubForge:
    urls = {"api_url": world.api_url, "graphql_url": world.graphql_url, "server_url": world.server_url}
    return GitHubForge(access, **urls, pace=QUICK)


@pytest.fixture
async def forge(world: World, repo: Repository) -> AsyncIterator[GitHubForge]:
    app = world.app(permissions={**APP_PERMISSIONS, "checks": "write"})
    world.install(app, repo)
    async with forge_of(world, AppAccess(str(app.id), SecretStr(app.private_key_pem))) as forge:
        yield forge


def finding(repo: Repository, job: str = "one", **but: object) -> Finding:
    return Finding(
        job=JobId(job), commit=repo.bare.sha("main") or "", conclusion="success", title="Fixed: 1 test",
        summary="| before | after |", page="https://bot.test/runs/one",
    ).model_copy(update=but)  # fmt: skip


async def test_a_job_says_one_thing_of_a_commit_however_often_it_says_it(
    repo: Repository, forge: GitHubForge
) -> None:
    first = await forge.show(SAMPLE, finding(repo))
    assert first.endswith(f"/acme/sample/runs/{repo.checks[0].id}")
    assert await forge.show(SAMPLE, finding(repo)) == first
    (made,) = repo.checks
    assert (made.name, made.status, made.conclusion, made.external_id, made.details_url) == (
        "patchwright", "completed", "success", "one", "https://bot.test/runs/one",
    )  # fmt: skip
    assert made.output == {"title": "Fixed: 1 test", "summary": "| before | after |"}
    changed = finding(repo, conclusion="neutral", title="Unproven: no test shows it")
    assert await forge.show(SAMPLE, changed) == first
    assert (made.conclusion, made.output["title"]) == ("neutral", "Unproven: no test shows it")
    await forge.show(SAMPLE, finding(repo, "two"))
    repo.commit("main", {"a.txt": "b\n"})
    await forge.show(SAMPLE, finding(repo))
    assert [(one.external_id, one.sha == repo.bare.sha("main")) for one in repo.checks] == [
        ("one", False), ("two", False), ("one", True),
    ]  # fmt: skip


async def test_a_lost_answer_makes_no_second_one(world: World, repo: Repository, forge: GitHubForge) -> None:
    world.lose_next_response("POST", "/check-runs")
    await forge.show(SAMPLE, finding(repo))
    assert len(repo.checks) == 1
    world.lose_next_request("POST", "/check-runs")
    await forge.show(SAMPLE, finding(repo, "two"))
    assert len(repo.checks) == 2


async def test_a_long_finding_is_clipped_and_says_so(repo: Repository, forge: GitHubForge) -> None:
    await forge.show(SAMPLE, finding(repo, title="t" * 300, summary="x" * (MAX_SUMMARY + 1)))
    (made,) = repo.checks
    assert len(str(made.output["summary"])) <= MAX_SUMMARY and len(str(made.output["title"])) == 255
    assert "GitHub takes 65,535" in str(made.output["summary"])


@pytest.mark.parametrize("private", [False, True])
async def test_where_we_may_not_there_is_none_and_no_failure(world: World, private: bool) -> None:
    repo = world.repository(
        "acme/other", {"a.txt": "a\n"}, private=private, permissions={"patchwright": "write"}
    )
    app, where = world.app(), Repo(owner="acme", name="other")
    world.install(app, repo)
    for access in (
        AppAccess(str(app.id), SecretStr(app.private_key_pem)),
        TokenAccess(SecretStr(world.token("patchwright"))),
    ):
        async with forge_of(world, access) as forge:
            assert await forge.show(where, finding(repo)) == ""
        if isinstance(access, AppAccess):
            assert world.writes == (), "an App knows what it may"
    assert repo.checks == []


async def test_a_workflows_own_token_makes_one_where_the_workflow_says_so(
    world: World, repo: Repository
) -> None:
    actions = world.app("github-actions", {**APP_PERMISSIONS, "checks": "write"})
    token = world.installation_token(world.install(actions, repo))
    async with forge_of(world, TokenAccess(SecretStr(token))) as forge:
        assert await forge.show(SAMPLE, finding(repo))
    assert [one.author.login for one in repo.checks] == ["github-actions[bot]"]


async def test_it_holds_no_secret_and_a_dry_run_makes_none(repo: Repository, forge: GitHubForge) -> None:
    told = finding(repo, title="Fixed by hunter22", summary="with hunter22")
    await Masked(forge, lambda text: text.replace("hunter22", "***")).show(SAMPLE, told)
    assert repo.checks[0].output == {"title": "Fixed by ***", "summary": "with ***"}
    shown: list[tuple[str, str]] = []
    await DryRun(forge, lambda what, text: shown.append((what, text))).show(SAMPLE, finding(repo, "two"))
    assert shown == [(f"check run on {told.commit[:12]}: Fixed: 1 test", "| before | after |")]
    assert len(repo.checks) == 1
