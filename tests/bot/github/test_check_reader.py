"""Checks, statuses and logs are read from GitHub, and the token is sent to GitHub's API only."""

from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic import SecretStr

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.auth import AppAuth, RequestPolicy
from patchwright.bot.github.forge import GitHubForge
from patchwright.demo.github import FakeGitHub, GitHubApp, Repository
from patchwright.demo.github.state import APP_PERMISSIONS
from patchwright.resolver.ci.log_excerpt import MAX_EXCERPT
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import Forbidden, ForgeError

SAMPLE = Repo(owner="acme", name="sample")
PERMISSIONS = {**APP_PERMISSIONS, "checks": "write", "actions": "read", "statuses": "read"}


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    return fake_github.create_repository("acme/sample", {"a.txt": "a\n"}, private=True)


def open_forge(fake_github: FakeGitHub, app: GitHubApp) -> GitHubForge:
    access = AppAuth(str(app.id), SecretStr(app.private_key_pem))
    return GitHubForge(
        access,
        fake_github.urls,
        policy=RequestPolicy(write_interval=0, initial_backoff=0.01, timeout=5),
    )


@pytest.fixture
async def forge(fake_github: FakeGitHub, repo: Repository) -> AsyncIterator[GitHubForge]:
    app = fake_github.create_app("ours", PERMISSIONS)
    fake_github.install_app(app, repo)
    async with open_forge(fake_github, app) as forge:
        yield forge


async def test_all_checks_except_patchwrights_own_are_listed(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    for conclusion in ("success", "skipped", "failure", "cancelled", "timed_out", "action_required"):
        fake_github.ci.add_check(repo, "main", conclusion, conclusion)
    fake_github.ci.add_check(repo, "main", "build", None, by="other-ci")
    fake_github.ci.add_check(repo, "main", "tests", "failure", by="ours")
    fake_github.ci.add_check(repo, "main", "patchwright", "failure")
    checks = await forge.list_checks(SAMPLE, "main")
    assert {check.name: (check.app, check.state, check.conclusion) for check in checks} == {
        "success": ("github-actions", "passed", "success"),
        "skipped": ("github-actions", "passed", "skipped"),
        "failure": ("github-actions", "failed", "failure"),
        "cancelled": ("github-actions", "broken", "cancelled"),
        "timed_out": ("github-actions", "broken", "timed_out"),
        "action_required": ("github-actions", "broken", "action_required"),
        "build": ("other-ci", "running", ""),
    }


async def test_an_unfinished_workflow_is_listed_when_none_of_its_jobs_runs(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    fake_github.ci.add_check(repo, "main", "first", "success")
    fake_github.ci.add_check(repo, "main", "second", None)
    checks = await forge.list_checks(SAMPLE, "main")
    assert sorted((check.name, check.state) for check in checks) == [
        ("a workflow", "running"),
        ("first", "passed"),
        ("second", "running"),
    ]


async def test_the_host_of_a_job_log_never_gets_the_token(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    fake_github.ci.add_check(
        repo, "main", "test", log=b"2 tests failed\n##[error]exit code 1\n", step="Run pytest"
    )
    (check,) = await forge.list_checks(SAMPLE, "main")
    assert await forge.get_check_log(SAMPLE, check) == (
        "[failed step: Run pytest]\n\n[lines 1 to 2 of 2]\n2 tests failed\n##[error]exit code 1"
    )
    ((path, token),) = fake_github.attachment_requests
    assert (path, token) == (f"/storage/logs/{check.id}", None)
    # the control: a client that keeps the header is noticed
    async with httpx.AsyncClient(trust_env=False) as insecure_client:
        elsewhere = fake_github.server_url.replace("127.0.0.1", "localhost") + path
        await insecure_client.get(elsewhere, headers={"Authorization": "Bearer ours"})
    assert fake_github.attachment_requests[-1] == (path, "Bearer ours")


async def test_the_report_and_annotations_of_another_app_replace_its_log(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    fake_github.ci.add_check(
        repo, "main", "lint", by="other-ci", log=b"never read",
        output={"title": "2 faults", "summary": "See below."}, annotations=[("a.py", 3, "unused name")],
    )  # fmt: skip
    (check,) = await forge.list_checks(SAMPLE, "main")
    assert (
        await forge.get_check_log(SAMPLE, check) == "2 faults\n\nSee below.\n\na.py:3: failure: unused name"
    )
    assert fake_github.attachment_requests == []


async def test_a_missing_log_is_noted_after_the_report(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    fake_github.ci.add_check(repo, "main", "test", annotations=[("a.py", 3, "exit code 1")])
    (check,) = await forge.list_checks(SAMPLE, "main")
    assert await forge.get_check_log(SAMPLE, check) == (
        "a.py:3: failure: exit code 1\n\n[log not available: GitHub no longer has the log]"
    )


@pytest.mark.slow
async def test_a_log_of_50_megabytes_is_reduced_to_its_relevant_part(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    noise = b"2026-11-20T09:00:00.1234567Z collecting what is to be collected, line by line\n" * 330_000
    log = noise + b"E   assert 1 == 2\n##[error]exit code 1\n" + noise
    assert len(log) > 50_000_000
    fake_github.ci.add_check(repo, "main", "test", log=log)
    (check,) = await forge.list_checks(SAMPLE, "main")
    text = await forge.get_check_log(SAMPLE, check)
    assert text.endswith("E   assert 1 == 2\n##[error]exit code 1")
    assert len(text) < MAX_EXCERPT


async def test_a_log_with_an_unsafe_redirect_is_not_fetched(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    run = fake_github.ci.add_check(repo, "main", "test", log=b"x")
    (check,) = await forge.list_checks(SAMPLE, "main")
    path = f"{fake_github.server_url}/storage/logs/{run.id}"
    for location, error in (
        ("file:///etc/passwd", ForgeError),
        ("http://[", ForgeUnavailable),
        (path, ForgeError),
    ):
        fake_github.fail_next_request("GET", "/logs", status=302, headers={"location": location})
        fake_github.fail_next_request(
            "GET", f"/logs/{run.id}", status=302, headers={"location": path}, times=4
        )
        with pytest.raises(error):
            await forge.get_check_log(SAMPLE, check)


async def test_without_the_checks_permission_listing_is_forbidden(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    app = fake_github.create_app("weak")
    fake_github.install_app(app, repo)
    fake_github.ci.add_check(repo, "main", "test")
    async with open_forge(fake_github, app) as forge_without_permission:
        with pytest.raises(Forbidden):
            await forge_without_permission.list_checks(SAMPLE, "main")


async def test_the_commits_of_a_pull_request_have_their_authors(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    repo.commit("topic", {"a.txt": "b\n"}, "Change it\n\nPatchwright-Run: x")
    pull = fake_github.create_pull(repo, "topic", by="contributor")
    (commit,) = await forge.list_commits(SAMPLE, pull.number)
    assert (commit.sha, commit.author_id, commit.message) == (
        pull.head.sha,
        None,
        "Change it\n\nPatchwright-Run: x",
    )


async def test_commit_statuses_count_as_checks(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    for state in ("pending", "success", "failure", "error"):
        fake_github.ci.add_status(repo, "main", f"ci/{state}", "success" if state == "failure" else "pending")
        fake_github.ci.add_status(repo, "main", f"ci/{state}", state, "3 tests failed")  # type: ignore[arg-type]
    checks = {check.name: check for check in await forge.list_checks(SAMPLE, "main")}
    assert {name: check.state for name, check in checks.items()} == {
        "ci/pending": "running",
        "ci/success": "passed",
        "ci/failure": "failed",
        "ci/error": "broken",
    }
    assert await forge.get_check_log(SAMPLE, checks["ci/failure"]) == "3 tests failed"
