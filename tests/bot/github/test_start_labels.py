"""The App creates the label that starts a run in each repository, once."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.bot.github.start_labels import MAX_LABELS_AT_ONCE, StartLabels
from patchwright.bot.webhooks.delivery import InstallationChanged
from patchwright.bot.webhooks.triggers import LABEL_COLOR, LABEL_DESCRIPTION
from patchwright.resolver.domain import Repo
from patchwright.resolver.settings.settings import Settings
from tests.bot.reconcile.deployments import SAMPLE, Deployment, open_deployment

pytestmark = pytest.mark.redis


@pytest.fixture
async def deployment(short_tmp: Path) -> AsyncIterator[Deployment]:
    async with open_deployment(short_tmp) as deployment:
        yield deployment


def start_labels(deployment: Deployment, *allowed: str) -> StartLabels:
    settings = Settings(data=Path("/nonexistent"), allowed_repositories=allowed)
    return StartLabels(deployment.rest, settings, deployment.lease)


def label_writes(deployment: Deployment) -> list[str]:
    return [write.path for write in deployment.fake_github.writes if write.path.endswith("/labels")]


async def test_the_label_is_created_once_and_stays_deleted(deployment: Deployment) -> None:
    labels = deployment.repo.labels
    for _ in range(2):  # the second time, the process was restarted
        deployment.handler.labels = start_labels(deployment)
        await deployment.build_reconciler().reconcile()
        if made := labels.pop("fix-me", None):
            assert (made.name, made.color, made.description) == ("fix-me", LABEL_COLOR, LABEL_DESCRIPTION)
    assert (label_writes(deployment), labels) == (["/repos/acme/sample/labels"], {})


async def test_new_repositories_of_an_installation_get_the_label_at_once(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    repositories = [
        fake_github.create_repository(f"acme/r{number}", {"a": "b"})
        for number in range(MAX_LABELS_AT_ONCE + 1)
    ]
    installation = fake_github.install_app(deployment.app, *repositories)
    fake_github.add_label_silently(
        fake_github.create_issue(repositories[0], title="T", body="B", by="maintainer"),
        "Fix-me",
        by="maintainer",
    )
    deployment.handler.labels = start_labels(deployment, "acme/r*")
    names = tuple(Repo(owner="acme", name=repo.name) for repo in repositories)
    added = InstallationChanged(
        installation_id=installation.id,
        is_access_removed=False,
        repositories=(SAMPLE, *names),
        permissions={},
        settings_url="",
    )
    for _ in range(2):  # GitHub asks for pauses between writes
        await deployment.handler.handle(added)
        assert [len(repo.labels) for repo in repositories[:-1]] == [1] * MAX_LABELS_AT_ONCE
    assert len(repositories[-1].labels) == 1
    assert repositories[0].labels["fix-me"].name == "Fix-me"  # an existing label stays as it is
    assert deployment.repo.labels == {}  # the operator does not allow runs there


async def test_a_refused_label_is_reported_with_the_command_that_creates_it(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    deployment.app.permissions.pop("issues")
    labels = start_labels(deployment)
    for _ in range(2):
        await labels.create((SAMPLE,))
    (line,) = [record for record in caplog.records if record.message == "label not created"]
    expected = f"gh label create fix-me --repo acme/sample --color {LABEL_COLOR} --description 'Start a "
    assert line.__dict__["command"].startswith(expected)
    deployment.app.permissions["issues"] = "write"
    await labels.create((SAMPLE,), is_new_grant=True)
    assert "fix-me" in deployment.repo.labels
