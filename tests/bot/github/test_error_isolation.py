"""A repository, installation, thread or webhook that fails does not hide the others."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from patchwright.bot.reconcile.poller import Poller
from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import find_request
from patchwright.demo.github import Issue, Repository
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import RateLimited
from tests.bot.reconcile.deployments import (
    NO_GRACE,
    SAMPLE,
    Deployment,
    open_deployment,
    token_client,
)

pytestmark = pytest.mark.redis


@pytest.fixture
async def deployment(short_tmp: Path) -> AsyncIterator[Deployment]:
    async with open_deployment(short_tmp) as deployment:
        yield deployment


def add_labeled_issue(deployment: Deployment, repo: Repository) -> Issue:
    thread = deployment.fake_github.create_issue(repo, title="T", body="B", by="stranger")
    deployment.fake_github.add_label_silently(thread, "fix-me", by="maintainer")
    return thread


async def repository_names(deployment: Deployment) -> set[str]:
    """Returns the names of the repositories with open jobs."""
    return {job.split("-")[1] for job in await deployment.open()}


def install_another(deployment: Deployment, name: str = "else/where") -> Repository:
    """Creates a repository in another installation."""
    repo = deployment.fake_github.create_repository(name, {"x": "y"}, permissions={"maintainer": "write"})
    deployment.fake_github.install_app(deployment.app, repo)
    return repo


async def test_an_inaccessible_repository_does_not_hide_others(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.aclosing(token_client(deployment.fake_github, "maintainer")) as rest:
        poller = Poller(rest, deployment.identity, [Repo(owner="acme", name="gone"), SAMPLE])
        assert [each.repo for each in await poller.repositories.list_current()] == [SAMPLE]
    assert [getattr(each, "resource", None) for each in caplog.records] == ["acme/gone"]


async def test_an_installation_whose_token_is_rejected_does_not_hide_others(deployment: Deployment) -> None:
    repo = install_another(deployment)
    for each in (deployment.repo, repo):
        add_labeled_issue(deployment, each)
    first, _ = await deployment.rest.get_all(dict[str, object], None, "app", "installations")
    path = f"/app/installations/{first['id']}/access_tokens"
    message = {"message": "The permissions requested are not granted to this installation."}
    deployment.fake_github.fail_next_request("POST", path, status=422, body=message, times=9)
    await deployment.build_reconciler().reconcile()
    assert await repository_names(deployment) == {"where"}


async def test_a_failed_repository_list_is_retried_by_the_next_poll(deployment: Deployment) -> None:
    add_labeled_issue(deployment, deployment.repo)
    deployment.fake_github.fail_next_request("GET", "/installation/repositories", status=502, times=4)
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    assert await repository_names(deployment) == set()
    await reconciler.reconcile()
    assert await repository_names(deployment) == {"sample"}


@pytest.mark.parametrize("status", [404, 502])
async def test_a_failing_repository_does_not_hide_others(deployment: Deployment, status: int) -> None:
    add_labeled_issue(deployment, install_another(deployment))
    deployment.fake_github.fail_next_request("GET", "/acme/sample/issues", status=status, times=99)
    await deployment.build_reconciler().reconcile()
    assert await repository_names(deployment) == {"where"}


async def test_a_repository_that_failed_briefly_is_polled_again_early(deployment: Deployment) -> None:
    add_labeled_issue(deployment, deployment.repo)
    deployment.fake_github.fail_next_request("GET", "/acme/sample/issues", status=502, times=4)
    reconciler = deployment.build_reconciler(replace(NO_GRACE, poll_interval=600))
    await reconciler.reconcile()
    assert await repository_names(deployment) == set()
    await reconciler.reconcile()
    assert await repository_names(deployment) == {"sample"}


@pytest.mark.slow
@pytest.mark.parametrize("path", ["issues/{}/events", "pulls/{}/reviews"])
async def test_a_failing_thread_does_not_hide_others(deployment: Deployment, path: str) -> None:
    threads: list[Issue] = []
    for number in range(3):
        deployment.repo.commit(f"topic-{number}", {"a.txt": f"{number}\n"})
        pull = deployment.fake_github.create_pull(deployment.repo, f"topic-{number}", by="stranger")
        deployment.fake_github.add_label_silently(pull, "fix-me", by="maintainer")
        deployment.fake_github.add_review(pull, body="@agent fix it", by="maintainer")
        threads.append(pull)
    failing = threads[1].number
    deployment.fake_github.fail_next_request("GET", path.format(failing), status=502, times=4)
    reconciler = deployment.build_reconciler(replace(NO_GRACE, poll_interval=600))
    await reconciler.reconcile()
    found = Counter(int(job.split("-")[2]) for job in await deployment.open())
    assert found == {thread.number: 2 - (thread.number == failing) for thread in threads}
    await reconciler.reconcile()
    assert len(await deployment.open()) == 6


async def test_a_failing_thread_with_a_job_does_not_hide_other_closings(deployment: Deployment) -> None:
    threads = [
        deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
        for _ in range(3)
    ]
    for thread in threads:
        sent = await deployment.fake_github.add_label(thread, "fix-me", by="maintainer")
        await deployment.handler.handle(parse_delivery(sent.event, sent.body))
    for thread in threads:
        deployment.fake_github.close_silently(thread)
    deployment.fake_github.fail_next_request("GET", f"/issues/{threads[1].number}", status=502, times=4)
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    assert [int(job.split("-")[2]) for job in await deployment.open()] == [threads[1].number]
    await reconciler.reconcile()
    assert await deployment.open() == set()


async def test_a_rate_limited_installation_does_not_hide_others(deployment: Deployment) -> None:
    add_labeled_issue(deployment, install_another(deployment))
    limited = {"status": 429, "headers": {"retry-after": "3600"}, "times": 9}
    deployment.fake_github.fail_next_request("GET", "/acme/sample/issues", **limited)
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    assert await repository_names(deployment) == {"where"}
    deployment.fake_github.fail_next_request("GET", "/else/where/issues", **limited)
    with pytest.raises(RateLimited):  # no installation is left to poll, so the reconciler waits
        await reconciler.reconcile()


async def test_a_request_in_a_locked_thread_is_completed_and_does_not_block_later_ones(
    deployment: Deployment,
) -> None:
    locked = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    sent = await deployment.fake_github.add_comment(locked, "@agent help", by="maintainer")
    request = find_request(parse_delivery(sent.event, sent.body), deployment.triggers)
    assert request is not None
    deployment.fake_github.lock_thread(locked)
    deployment.fake_github.advance_time(minutes=5)
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    record = await deployment.queue.get_record(request.job.id)
    assert record is not None and record.state == "completed"
    add_labeled_issue(deployment, deployment.repo)
    await reconciler.reconcile()
    assert await repository_names(deployment) == {"sample"}


async def test_a_request_that_fails_briefly_is_handled_later_and_does_not_hide_others(
    deployment: Deployment,
) -> None:
    requesting = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    deployment.fake_github.add_comment_silently(requesting, "@agent help", by="maintainer")
    deployment.fake_github.advance_time(minutes=5)
    add_labeled_issue(deployment, deployment.repo)
    deployment.fake_github.fail_next_request(
        "GET", "/collaborators/maintainer/permission", status=502, times=4
    )
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    assert await repository_names(deployment) == {"sample"}
    assert len(requesting.comments) == 1
    await reconciler.reconcile()
    assert len(requesting.comments) == 2


async def test_a_repository_with_an_unusable_name_is_left_out(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    fake_github = deployment.fake_github
    odd = fake_github.create_repository("acme/sämple", {"a.py": "x = 1\n"})
    fake_github.install_app(deployment.app, deployment.repo, odd)
    thread = add_labeled_issue(deployment, deployment.repo)
    await deployment.build_reconciler().reconcile()
    assert [record.job.number for record in await deployment.queue.all_active_jobs()] == [thread.number]
    (skipped,) = [one for one in caplog.records if one.getMessage() == "unreadable entry skipped"]
    assert vars(skipped)["entry"] == "acme/sämple"


async def test_an_unreadable_comment_does_not_hide_the_others(deployment: Deployment) -> None:
    fake_github, thread = deployment.fake_github, add_labeled_issue(deployment, deployment.repo)
    await deployment.build_reconciler().reconcile()
    odd = fake_github.add_comment_silently(thread, "Hm.", by="stranger")
    odd.created = "yesterday"
    fake_github.add_comment_silently(thread, "@agent and this", by="maintainer")
    await deployment.build_reconciler().reconcile()
    assert len(await deployment.open()) == 2
