"""How programs found a commit, as we read it from GitHub; and that our token stays with GitHub's API."""

from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic import SecretStr

from bot.errors import Unanswered
from bot.github.forge import GitHubForge
from bot.github.rest import AppAccess, Pace
from demo.world import App, Repository, World
from demo.world.state import APP_PERMISSIONS
from resolver.ci.check_log import MAX_LOG
from resolver.domain import Repo
from resolver.errors import Forbidden, ForgeError

SAMPLE = Repo(owner="acme", name="sample")
READING = {**APP_PERMISSIONS, "checks": "write", "actions": "read", "statuses": "read"}


@pytest.fixture
def repo(world: World) -> Repository:
    return world.repository("acme/sample", {"a.txt": "a\n"}, private=True)


def forge_for(world: World, app: App) -> GitHubForge:
    access = AppAccess(str(app.id), SecretStr(app.private_key_pem))
    return GitHubForge(
        access,
        api_url=world.api_url,
        graphql_url=world.graphql_url,
        server_url=world.server_url,
        pace=Pace(between_writes=0, first_pause=0.01, timeout=5),
    )


@pytest.fixture
async def forge(world: World, repo: Repository) -> AsyncIterator[GitHubForge]:
    app = world.app("ours", READING)
    world.install(app, repo)
    async with forge_for(world, app) as forge:
        yield forge


async def test_a_commit_is_found_as_all_programs_but_ourselves_find_it(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    for conclusion in ("success", "skipped", "failure", "cancelled", "timed_out", "action_required"):
        world.ci.check(repo, "main", conclusion, conclusion)
    world.ci.check(repo, "main", "build", None, by="other-ci")
    world.ci.check(repo, "main", "tests", "failure", by="ours")
    world.ci.check(repo, "main", "patchwright", "failure")
    found = await forge.checks(SAMPLE, "main")
    assert {one.name: (one.by, one.state, one.how) for one in found} == {
        "success": ("github-actions", "passed", "success"),
        "skipped": ("github-actions", "passed", "skipped"),
        "failure": ("github-actions", "failed", "failure"),
        "cancelled": ("github-actions", "broken", "cancelled"),
        "timed_out": ("github-actions", "broken", "timed_out"),
        "action_required": ("github-actions", "broken", "action_required"),
        "build": ("other-ci", "running", ""),
    }


async def test_a_workflow_that_has_not_ended_is_seen_when_none_of_its_jobs_runs(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    world.ci.check(repo, "main", "first", "success")
    world.ci.check(repo, "main", "second", None)
    found = await forge.checks(SAMPLE, "main")
    assert sorted((one.name, one.state) for one in found) == [
        ("a workflow", "running"),
        ("first", "passed"),
        ("second", "running"),
    ]


async def test_a_jobs_log_comes_from_another_host_which_never_sees_our_token(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    world.ci.check(repo, "main", "test", log=b"2 tests failed\n##[error]exit code 1\n", step="Run pytest")
    (one,) = await forge.checks(SAMPLE, "main")
    assert await forge.check_log(SAMPLE, one) == (
        "[failed in the step: Run pytest]\n\n[lines 1 to 2 of 2]\n2 tests failed\n##[error]exit code 1"
    )
    ((path, token),) = world.asked_for
    assert (path, token) == (f"/storage/logs/{one.id}", None)
    async with httpx.AsyncClient(trust_env=False) as careless:  # a client that takes it along is seen to
        elsewhere = world.server_url.replace("127.0.0.1", "localhost") + path
        await careless.get(elsewhere, headers={"Authorization": "Bearer ours"})
    assert world.asked_for[-1] == (path, "Bearer ours")


async def test_another_programs_report_and_annotations_stand_for_its_log(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    world.ci.check(
        repo, "main", "lint", by="other-ci", log=b"never read",
        output={"title": "2 faults", "summary": "See below."}, annotations=[("a.py", 3, "unused name")],
    )  # fmt: skip
    (one,) = await forge.checks(SAMPLE, "main")
    assert await forge.check_log(SAMPLE, one) == "2 faults\n\nSee below.\n\na.py:3: failure: unused name"
    assert world.asked_for == []


async def test_a_log_that_is_gone_leaves_the_report_and_says_so(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    world.ci.check(repo, "main", "test", annotations=[("a.py", 3, "exit code 1")])
    (one,) = await forge.checks(SAMPLE, "main")
    assert await forge.check_log(SAMPLE, one) == (
        "a.py:3: failure: exit code 1\n\n[its log could not be read: its log is not kept any more]"
    )


async def test_a_log_of_50_megabytes_is_read_and_its_relevant_part_kept(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    noise = b"2026-11-20T09:00:00.1234567Z collecting what is to be collected, line by line\n" * 330_000
    log = noise + b"E   assert 1 == 2\n##[error]exit code 1\n" + noise
    assert len(log) > 50_000_000
    world.ci.check(repo, "main", "test", log=log)
    (one,) = await forge.checks(SAMPLE, "main")
    text = await forge.check_log(SAMPLE, one)
    assert text.endswith("E   assert 1 == 2\n##[error]exit code 1")
    assert len(text) < MAX_LOG


async def test_where_a_log_leads_anywhere_but_to_the_web_nothing_is_fetched(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    one = world.ci.check(repo, "main", "test", log=b"x")
    (seen,) = await forge.checks(SAMPLE, "main")
    path = f"{world.server_url}/storage/logs/{one.id}"
    for location, error in (("file:///etc/passwd", ForgeError), ("http://[", Unanswered), (path, ForgeError)):
        world.refuse_next("GET", "/logs", status=302, headers={"location": location})
        world.refuse_next("GET", f"/logs/{one.id}", status=302, headers={"location": path}, times=4)
        with pytest.raises(error):
            await forge.check_log(SAMPLE, seen)


async def test_without_the_permission_for_checks_we_are_told_so(world: World, repo: Repository) -> None:
    app = world.app("weak")
    world.install(app, repo)
    world.ci.check(repo, "main", "test")
    async with forge_for(world, app) as weak:
        with pytest.raises(Forbidden):
            await weak.checks(SAMPLE, "main")


async def test_the_commits_of_a_pull_request_come_with_their_authors(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    repo.commit("topic", {"a.txt": "b\n"}, "Change it\n\nPatchwright-Run: x")
    pull = world.pull(repo, "topic", by="contributor")
    (one,) = await forge.commits(SAMPLE, pull.number)
    assert (one.sha, one.author, one.message) == (pull.head.sha, None, "Change it\n\nPatchwright-Run: x")


async def test_what_older_services_set_counts_like_a_check(
    world: World, repo: Repository, forge: GitHubForge
) -> None:
    for state in ("pending", "success", "failure", "error"):
        world.ci.status(repo, "main", f"ci/{state}", "success" if state == "failure" else "pending")
        world.ci.status(repo, "main", f"ci/{state}", state, "3 tests failed")  # type: ignore[arg-type]
    found = {one.name: one for one in await forge.checks(SAMPLE, "main")}
    assert {name: one.state for name, one in found.items()} == {
        "ci/pending": "running",
        "ci/success": "passed",
        "ci/failure": "failed",
        "ci/error": "broken",
    }
    assert await forge.check_log(SAMPLE, found["ci/failure"]) == "3 tests failed"
