"""Check runs: one per job and commit, updated with the job's report, and none without permission."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import AppAuth, RequestPolicy, TokenAuth
from patchwright.bot.github.check_runs import MAX_SUMMARY
from patchwright.bot.github.forge import GitHubForge
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.demo.github.state import APP_PERMISSIONS
from patchwright.resolver.domain import JobId, Repo
from patchwright.resolver.forge import DryRunForge, MaskingForge
from patchwright.resolver.forge_writes import CheckRunReport

SAMPLE = Repo(owner="acme", name="sample")
QUICK = RequestPolicy(write_interval=0, initial_backoff=0.01, timeout=10)


@pytest.fixture
async def fake_github() -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub() as fake_github:
        yield fake_github
        assert fake_github.violations == ()


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    return fake_github.create_repository(
        "acme/sample", {"a.txt": "a\n"}, permissions={"patchwright": "write"}
    )


def create_forge(fake_github: FakeGitHub, access: TokenAuth | AppAuth) -> GitHubForge:
    urls = fake_github.urls
    return GitHubForge(access, urls, policy=QUICK)


@pytest.fixture
async def forge(fake_github: FakeGitHub, repo: Repository) -> AsyncIterator[GitHubForge]:
    app = fake_github.create_app(permissions={**APP_PERMISSIONS, "checks": "write"})
    fake_github.install_app(app, repo)
    async with create_forge(fake_github, AppAuth(str(app.id), SecretStr(app.private_key_pem))) as forge:
        yield forge


def report(repo: Repository, job: str = "one", **but: object) -> CheckRunReport:
    return CheckRunReport(
        job=JobId(job), commit=repo.bare.branch_sha("main") or "", conclusion="success", title="Fixed: 1 test",
        summary="| before | after |", details_url="https://bot.test/runs/one",
    ).model_copy(update=but)  # fmt: skip


async def test_a_job_says_one_thing_of_a_commit_however_often_it_says_it(
    repo: Repository, forge: GitHubForge
) -> None:
    first = await forge.create_check_run(SAMPLE, report(repo))
    assert first.endswith(f"/acme/sample/runs/{repo.checks[0].id}")
    assert await forge.create_check_run(SAMPLE, report(repo)) == first
    (check_run,) = repo.checks
    assert (check_run.name, check_run.status, check_run.conclusion, check_run.external_id, check_run.details_url) == (
        "patchwright", "completed", "success", "one", "https://bot.test/runs/one",
    )  # fmt: skip
    assert check_run.output == {"title": "Fixed: 1 test", "summary": "| before | after |"}
    changed = report(repo, conclusion="neutral", title="Unproven: no test shows it")
    assert await forge.create_check_run(SAMPLE, changed) == first
    assert (check_run.conclusion, check_run.output["title"]) == ("neutral", "Unproven: no test shows it")
    await forge.create_check_run(SAMPLE, report(repo, "two"))
    repo.commit("main", {"a.txt": "b\n"})
    await forge.create_check_run(SAMPLE, report(repo))
    assert [(one.external_id, one.sha == repo.bare.branch_sha("main")) for one in repo.checks] == [
        ("one", False), ("two", False), ("one", True),
    ]  # fmt: skip


async def test_a_lost_answer_makes_no_second_one(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    fake_github.lose_next_response("POST", "/check-runs")
    await forge.create_check_run(SAMPLE, report(repo))
    assert len(repo.checks) == 1
    fake_github.lose_next_request("POST", "/check-runs")
    await forge.create_check_run(SAMPLE, report(repo, "two"))
    assert len(repo.checks) == 2


async def test_a_long_finding_is_clipped_and_says_so(repo: Repository, forge: GitHubForge) -> None:
    await forge.create_check_run(SAMPLE, report(repo, title="t" * 300, summary="x" * (MAX_SUMMARY + 1)))
    (check_run,) = repo.checks
    assert len(str(check_run.output["summary"])) <= MAX_SUMMARY and len(str(check_run.output["title"])) == 255
    assert "GitHub allows 65,535" in str(check_run.output["summary"])


@pytest.mark.parametrize("private", [False, True])
async def test_where_we_may_not_there_is_none_and_no_failure(fake_github: FakeGitHub, private: bool) -> None:
    repo = fake_github.create_repository(
        "acme/other", {"a.txt": "a\n"}, private=private, permissions={"patchwright": "write"}
    )
    app, where = fake_github.create_app(), Repo(owner="acme", name="other")
    fake_github.install_app(app, repo)
    for access in (
        AppAuth(str(app.id), SecretStr(app.private_key_pem)),
        TokenAuth(SecretStr(fake_github.create_token("patchwright"))),
    ):
        async with create_forge(fake_github, access) as forge:
            assert await forge.create_check_run(where, report(repo)) == ""
        if isinstance(access, AppAuth):
            assert fake_github.writes == (), "an App knows its permissions"
    assert repo.checks == []


async def test_a_workflows_own_token_makes_one_where_the_workflow_says_so(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    actions = fake_github.create_app("github-actions", {**APP_PERMISSIONS, "checks": "write"})
    token = fake_github.create_installation_token(fake_github.install_app(actions, repo))
    async with create_forge(fake_github, TokenAuth(SecretStr(token))) as forge:
        assert await forge.create_check_run(SAMPLE, report(repo))
    assert [one.author.login for one in repo.checks] == ["github-actions[bot]"]


async def test_it_holds_no_secret_and_a_dry_run_makes_none(repo: Repository, forge: GitHubForge) -> None:
    secret_report = report(repo, title="Fixed by hunter22", summary="with hunter22")
    await MaskingForge(forge, lambda text: text.replace("hunter22", "***")).create_check_run(
        SAMPLE, secret_report
    )
    assert repo.checks[0].output == {"title": "Fixed by ***", "summary": "with ***"}
    shown: list[tuple[str, str]] = []
    await DryRunForge(forge, lambda what, text: shown.append((what, text))).create_check_run(
        SAMPLE, report(repo, "two")
    )
    assert shown == [(f"check run on {secret_report.commit[:12]}: Fixed: 1 test", "| before | after |")]
    assert len(repo.checks) == 1
