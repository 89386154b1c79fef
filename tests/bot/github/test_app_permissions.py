"""Missing permissions of an App are reported once per repository, with the page on which to grant them."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from patchwright.bot.errors import ForgeUnavailable, PermissionNotGranted
from patchwright.bot.github.app_permissions import AppPermissions, require_permissions
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.jobs import Stopped
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.triggers.cancellation import CancellationHandler
from patchwright.bot.webhooks.delivery import InstallationChanged
from patchwright.demo.github import FakeGitHub, GitHubApp, Installation, Issue, Repository
from patchwright.resolver.domain import Job, Outcome, Rejected, Repo
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound
from patchwright.resolver.rendering.template_renderer import render_reply
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import job
from tests.bot.reconcile.deployments import FAST_POLICY, app_auth, token_client

pytestmark = pytest.mark.redis

SAMPLE = Repo(owner="acme", name="sample")
ENOUGH = {"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}
DONE = Rejected(explanation="it was started")


@dataclass
class InstalledApp:
    """An App installed on one repository with two issues, and a resolver that counts its jobs."""

    fake_github: FakeGitHub
    repo: Repository
    app: GitHubApp
    installation: Installation
    issues: tuple[Issue, Issue]
    url: str
    leader_lease: LeaderLease
    forge: GitHubForge
    started: list[Job] = field(default_factory=list)

    async def resolve(self, job: Job) -> Outcome:
        self.started.append(job)
        return DONE

    async def request(self, number: int, name: str = "first") -> Outcome:
        grants = AppPermissions(self.forge.rest, self.leader_lease)
        return await require_permissions(self.resolve, grants, self.forge)(
            job(f"acme-sample-{number}-{name}", number=number)
        )

    def comments(self, number: int) -> list[str]:
        return [one.body.partition("\n")[2].strip() for one in self.repo.comments(number)]

    @property
    def settings_url(self) -> str:
        return f"{self.fake_github.server_url}/settings/installations/{self.installation.id}"


@pytest.fixture
async def installed(short_tmp: Path) -> AsyncIterator[InstalledApp]:
    async with FakeGitHub() as fake_github, run_embedded_redis(short_tmp) as url:
        repo = fake_github.create_repository(
            "acme/sample", {"a.py": "x = 1\n"}, permissions={"maintainer": "write"}
        )
        app = fake_github.create_app(
            permissions={"issues": "write", "pull_requests": "read", "metadata": "read"}
        )
        installation = fake_github.install_app(app, repo)
        one, two = (
            fake_github.create_issue(repo, title=title, body="It is.", by="reporter") for title in ("a", "b")
        )
        leader_lease = LeaderLease(url)
        async with GitHubForge(
            app_auth(app),
            fake_github.urls,
            policy=FAST_POLICY,
        ) as forge:
            yield InstalledApp(fake_github, repo, app, installation, (one, two), url, leader_lease, forge)
        await leader_lease.close()


async def test_missing_permissions_are_reported_once_in_full(
    installed: InstalledApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for number, name in ((1, "first"), (1, "first"), (2, "second"), (2, "second")):
        assert isinstance(await installed.request(number, name), Rejected)
    (full,), (short,) = installed.comments(1), installed.comments(2)
    assert full == (
        "The GitHub App needs more permissions here: `contents: write` and "
        f"`pull_requests: write`. Ask an owner to grant them at {installed.settings_url}. Then add the label again or "
        "ask me in a comment."
    )
    assert short == (
        "The GitHub App still needs `contents: write` and `pull_requests: write` "
        "here. See "
        f"{installed.fake_github.server_url}/acme/sample/issues/1#issuecomment-{installed.issues[0].comments[0].id} "
        "for instructions."
    )
    (logged,) = [line for line in caplog.records if line.message == "permissions missing"]
    assert (logged.__dict__["missing"], logged.__dict__["settings_url"]) == (
        "contents: write, pull_requests: write",
        installed.settings_url,
    )
    assert installed.started == []


def test_the_text_without_a_settings_url_says_where_to_find_it() -> None:
    assert render_reply(
        "missing_permissions.md.j2", permissions=("contents: write",), settings_url="", notice_url=""
    ).strip() == (
        "The GitHub App needs more permissions here: `contents: write`. Ask an owner to grant them on "
        "the App's page in the account settings. Then add the label again or ask me in a comment."
    )


async def test_a_wiped_redis_causes_no_second_comment(installed: InstalledApp) -> None:
    await installed.request(1)
    redis = redis_client(installed.url)
    await redis.flushall()
    await redis.aclose()
    async with GitHubForge(
        app_auth(installed.app), installed.fake_github.urls, policy=FAST_POLICY
    ) as new_forge:
        installed.forge = new_forge
        await installed.request(1)
    assert len(installed.comments(1)) == 1


async def test_granted_permissions_take_effect_and_new_gaps_are_reported(installed: InstalledApp) -> None:
    await installed.request(1)
    assert await installed.forge.rest.is_write_denied(SAMPLE, "contents")
    installed.app.permissions |= ENOUGH
    assert await installed.request(1, "again") == DONE
    assert not await installed.forge.rest.is_write_denied(SAMPLE, "contents")  # at once, with a new token
    installed.app.permissions["contents"] = "read"
    assert isinstance(await installed.request(2), Rejected)
    (answer,) = installed.comments(2)
    assert "The GitHub App needs more permissions here: `contents: write`. Ask an owner" in answer
    assert len(installed.started) == 1


async def test_an_app_that_cannot_comment_is_logged(
    installed: InstalledApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    installed.app.permissions["issues"] = "read"
    for _ in range(2):
        assert isinstance(await installed.request(1), Rejected)
    assert installed.comments(1) == []
    assert [line.message for line in caplog.records].count("permissions missing") == 1


async def test_an_app_without_required_permissions_gets_no_token(installed: InstalledApp) -> None:
    installed.app.permissions.clear()
    with pytest.raises(PermissionNotGranted, match=f"acme/sample: see {installed.settings_url}"):
        await installed.forge.get_credentials(SAMPLE)


async def test_a_permission_revoked_during_a_run_ends_it(installed: InstalledApp) -> None:
    installed.app.permissions |= ENOUGH

    async def resolve(job: Job) -> Outcome:
        installed.app.permissions["contents"] = "read"
        raise Forbidden("POST git/refs: GitHub returned 403: Resource not accessible by integration")

    resolve_if_permitted = require_permissions(
        resolve, AppPermissions(installed.forge.rest, installed.leader_lease), installed.forge
    )
    with pytest.raises(
        PermissionNotGranted,
        match=f"`contents: write`. Ask an owner to grant them at {installed.settings_url}",
    ):
        await resolve_if_permitted(job())


@pytest.mark.parametrize("error", [NotFound("GET issues/1: 404"), Forbidden("the app is not installed")])
async def test_a_job_is_retried_while_github_does_not_show_the_repository(
    installed: InstalledApp, error: ForgeError
) -> None:
    installed.app.permissions |= ENOUGH

    async def resolve(job: Job) -> Outcome:
        raise error

    wrapped = require_permissions(
        resolve, AppPermissions(installed.forge.rest, installed.leader_lease), installed.forge
    )
    installed.fake_github.fail_next_request("GET", "/repos/acme/sample", status=404)
    with pytest.raises(ForgeUnavailable, match="GitHub does not show acme/sample at the moment"):
        await wrapped(job())
    with pytest.raises(type(error), match=str(error)):
        await wrapped(job())


async def test_other_errors_are_unchanged(installed: InstalledApp) -> None:
    installed.app.permissions |= ENOUGH

    async def resolve(job: Job) -> Outcome:
        raise Forbidden("the branch is protected")

    with pytest.raises(Forbidden, match="the branch is protected"):
        await require_permissions(
            resolve, AppPermissions(installed.forge.rest, installed.leader_lease), installed.forge
        )(job())


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "Resource not accessible by integration"),
        (403, "Resource not accessible by personal access token"),
        (422, "The permissions requested are not granted to this installation."),
    ],
)
async def test_permission_errors_of_github_are_recognized(
    installed: InstalledApp, status: int, message: str
) -> None:
    headers = {"x-accepted-github-permissions": "issues=write; pull_requests=write"} if status == 403 else {}
    installed.fake_github.fail_next_request(
        "POST", "/comments", status=status, headers=headers, body={"message": message}
    )
    with pytest.raises(PermissionNotGranted) as caught:
        await installed.forge.upsert_comment(SAMPLE, 1, "t", "hello")
    assert message in str(caught.value)
    assert ("(required permission: issues=write; pull_requests=write)" in str(caught.value)) == (
        status == 403
    )


async def test_permissions_of_personal_tokens_are_not_checked(installed: InstalledApp) -> None:
    rest = token_client(installed.fake_github, "maintainer")
    assert await AppPermissions(rest, installed.leader_lease).find_missing(SAMPLE) is None
    assert await AppPermissions(rest, installed.leader_lease).has_access(SAMPLE)
    await rest.aclose()


async def test_only_the_installation_that_github_names_is_ours(installed: InstalledApp) -> None:
    installed.app.permissions |= ENOUGH
    permissions = AppPermissions(installed.forge.rest, installed.leader_lease)
    own = await installed.forge.rest.get_installation_id(SAMPLE)
    assert own is not None
    assert await permissions.is_own_installation(SAMPLE, own)
    assert not await permissions.is_own_installation(SAMPLE, own + 1)
    token = token_client(installed.fake_github, "maintainer")
    assert await AppPermissions(token, installed.leader_lease).is_own_installation(SAMPLE, own + 1)
    await token.aclose()


async def test_an_uninstalled_app_cancels_its_jobs_there(installed: InstalledApp) -> None:
    installed.app.permissions |= ENOUGH
    queue = InlineQueue()
    own_job, other_job = job(installation_id=installed.installation.id), job("other-1-1", installation_id=77)
    for one in (own_job, other_job):
        await queue.put(one)
    handler = CancellationHandler(
        queue, "fix-me", installed.forge, None, AppPermissions(installed.forge.rest, installed.leader_lease)
    )
    access_removed = InstallationChanged(
        installation_id=installed.installation.id,
        is_access_removed=True,
        repositories=(),
        permissions={},
        settings_url="",
    )
    await handler.handle(access_removed)
    assert len(await queue.all_active_jobs()) == 2
    installed.installation.repositories.clear()
    await handler.handle(
        access_removed.model_copy(update={"repositories": (Repo(owner="acme", name="other"),)})
    )
    assert len(await queue.all_active_jobs()) == 2
    await handler.handle(access_removed)
    ended = await queue.get_record(own_job.id)
    assert ended is not None and ended.result == Stopped(reason="access_lost")
    assert [one.job for one in await queue.all_active_jobs()] == [other_job]


async def test_missing_permissions_of_an_installation_are_logged(
    installed: InstalledApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    grants = AppPermissions(installed.forge.rest, installed.leader_lease)
    change = InstallationChanged(
        installation_id=7,
        is_access_removed=False,
        repositories=(),
        permissions={"issues": "write"},
        settings_url="https://x",
    )
    await grants.log_missing_permissions(change)
    await grants.log_missing_permissions(change.model_copy(update={"permissions": ENOUGH}))
    (line,) = caplog.records
    assert line.__dict__["missing"] == "contents: write, pull_requests: write"
