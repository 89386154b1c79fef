"""Labels, comments and reviews found by polling become the same values as their deliveries."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import TokenAuth
from patchwright.bot.github.graphql import GraphQLClient
from patchwright.bot.github.identity import Identity
from patchwright.bot.github.rest import RestClient
from patchwright.bot.reconcile.poller import Poller
from patchwright.bot.reconcile.redelivery import DeliveryAttempt, Redelivery
from patchwright.bot.webhooks.delivery import (
    CommentCreated,
    Delivery,
    LabelAdded,
    ReviewSubmitted,
    ThreadClosed,
    parse_delivery,
)
from patchwright.demo.github import Delivery as Sent
from patchwright.demo.github import FakeGitHub
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import Forbidden, Unauthorized
from tests.bot.reconcile.deployments import (
    FAST_POLICY,
    PERMISSIONS,
    SAMPLE,
    Deployment,
    app_auth,
    open_deployment,
    token_client,
)

pytestmark = pytest.mark.redis

LABEL = "fix-me"


@pytest.fixture
async def deployment(short_tmp: Path) -> AsyncIterator[Deployment]:
    async with open_deployment(short_tmp) as deployment:
        yield deployment


def parse(sent: Sent) -> Delivery:
    return parse_delivery(sent.event, sent.body)


async def poll_deliveries(
    deployment: Deployment, poller: Poller
) -> list[LabelAdded | CommentCreated | ReviewSubmitted]:
    (repo,) = await poller.repositories.list_current()
    result = await poller.poll(repo, deployment.fake_github.now() - timedelta(days=3), "", LABEL)
    assert result is not None
    found = [event.delivery for event in sorted(result.events, key=lambda event: event.occurred_at)]
    # The texts that open issues are left out, because they contain no mention here.
    return [one for one in found if not (isinstance(one, CommentCreated) and one.comment_id is None)]


async def test_the_polling_token_can_only_read(deployment: Deployment) -> None:
    thread = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    (repo,) = await Poller(deployment.rest, deployment.identity).repositories.list_current()
    path = (*repo.path, "issues", str(thread.number), "comments")
    assert await deployment.rest.get_all(dict[str, object], repo.token, *path) == []
    with pytest.raises(Forbidden):
        await deployment.rest.post(dict[str, object], repo.token, *path, body={"body": "Hello."})


async def test_threads_beyond_the_first_page_are_found(deployment: Deployment) -> None:
    for number in range(103):
        thread = deployment.fake_github.create_issue(
            deployment.repo, title=f"{number}", body="B", by="stranger"
        )
        if number % 20 == 0:
            deployment.fake_github.add_label_silently(thread, LABEL, by="maintainer")
    deliveries = await poll_deliveries(deployment, Poller(deployment.rest, deployment.identity))
    assert [delivery.number for delivery in deliveries] == [1, 21, 41, 61, 81, 101]
    assert all(
        isinstance(delivery, LabelAdded) and delivery.sender.login == "maintainer" for delivery in deliveries
    )


async def test_an_edited_inline_comment_is_ignored(deployment: Deployment) -> None:
    deployment.repo.commit("topic", {"calc.py": "x = 1\ny = 3\n"})
    pull = deployment.fake_github.create_pull(deployment.repo, "topic", by="stranger")
    line = ("calc.py", 2, "Why 3?")
    deployment.fake_github.add_review(pull, line, by="maintainer", body="First.")
    late = deployment.fake_github.add_review(pull, line, by="maintainer", body="Second.")
    (edited,) = [one for thread in pull.review_threads for one in thread.comments if one.review is late]
    deployment.fake_github.advance_time(minutes=5)
    deployment.fake_github.edit_comment(pull, edited, "@agent why 3?")
    reviews = [
        one
        for one in await poll_deliveries(deployment, Poller(deployment.rest, deployment.identity))
        if isinstance(one, ReviewSubmitted)
    ]
    assert [(one.body, one.review_comment_id is None) for one in reviews] == [
        ("First.", True),
        ("Why 3?", False),
        ("Second.", True),
    ]


async def test_a_deleted_account_and_a_removed_label_cause_no_error(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    thread = fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    fake_github.add_label_silently(thread, LABEL, by="somebody")
    fake_github.add_comment_silently(thread, "@agent go", by="somebody")
    fake_github.delete_user("somebody")
    deliveries = await poll_deliveries(deployment, Poller(deployment.rest, deployment.identity))
    assert [delivery.sender.login for delivery in deliveries] == ["ghost", "ghost"]
    await fake_github.remove_label(thread, LABEL, by="maintainer")
    assert [
        type(delivery)
        for delivery in await poll_deliveries(deployment, Poller(deployment.rest, deployment.identity))
    ] == [CommentCreated]


async def test_a_later_installation_is_found(deployment: Deployment) -> None:
    app = deployment.fake_github.create_app("later", PERMISSIONS)
    rest = RestClient(app_auth(app), deployment.fake_github.api_url, None, FAST_POLICY)
    frequent, rare = (Poller(rest, deployment.identity, max_age=timedelta(seconds=s)) for s in (0, 600))
    assert (await frequent.repositories.list_current(), await rare.repositories.list_current()) == (
        (),
        (),
    )
    deployment.fake_github.install_app(app, deployment.repo)  # an empty list is never reused
    assert [
        [repository.repo for repository in await poller.repositories.list_current()]
        for poller in (frequent, rare)
    ] == [[SAMPLE]] * 2
    deployment.fake_github.install_app(
        app, deployment.fake_github.create_repository("acme/other", {"x": "y"})
    )
    assert [len(await poller.repositories.list_current()) for poller in (frequent, rare)] == [2, 1]
    await rest.aclose()


async def test_a_token_polls_the_configured_repositories(deployment: Deployment) -> None:
    rest = token_client(deployment.fake_github, "maintainer")
    other = deployment.fake_github.create_repository("acme/other", {"x": "y"})
    (repository,) = await Poller(rest, deployment.identity, [SAMPLE]).repositories.list_current()
    assert (repository.repo, repository.id, repository.installation_id) == (SAMPLE, deployment.repo.id, None)
    both = await Poller(
        rest, deployment.identity, [SAMPLE, Repo(owner="acme", name="other")]
    ).repositories.list_current()
    assert [repository.id for repository in both] == [deployment.repo.id, other.id]
    assert await Poller(rest, deployment.identity).repositories.list_current() == ()
    await rest.aclose()


async def test_an_installation_token_recognizes_its_own_comments(
    deployment: Deployment,
) -> None:
    given = TokenAuth(SecretStr((await deployment.rest.get_credentials(SAMPLE)).token))
    thread = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    deployment.fake_github.add_comment_silently(
        thread, "<!-- patchwright:ours -->\nDone.", by="patchwright[bot]"
    )
    busy = "<!-- patchwright:busy in-progress -->\nI am working on this."
    deployment.fake_github.add_comment_silently(thread, busy, by="patchwright[bot]")
    deployment.fake_github.add_comment_silently(thread, "<!-- patchwright:forged -->\nDone.", by="stranger")
    async with contextlib.aclosing(
        RestClient(given, deployment.fake_github.api_url, None, FAST_POLICY)
    ) as rest:
        with pytest.raises(Forbidden):  # a user token could do this
            await rest.get(dict[str, object], SAMPLE, "user")
        poller = Poller(
            rest, Identity(rest, GraphQLClient(rest, deployment.fake_github.graphql_url)), [SAMPLE]
        )
        (repository,) = await poller.repositories.list_current()
        result = await poller.poll(repository, deployment.fake_github.now() - timedelta(days=3), "", LABEL)
    assert result is not None and result.own_comments == {"ours": False, "busy": True}


@pytest.mark.slow
async def test_a_rate_limit_is_waited_out(deployment: Deployment) -> None:
    deployment.fake_github.add_label_silently(
        deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger"),
        LABEL,
        by="maintainer",
    )
    deployment.fake_github.fail_next_request(
        "GET", "/app/installations", status=429, headers={"retry-after": "3"}
    )
    running = asyncio.create_task(deployment.build_reconciler().run())
    await asyncio.sleep(1.5)
    assert await deployment.open() == set()
    async with asyncio.timeout(10):
        while not await deployment.open():
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("code", "is_success"), [(200, True), (202, True), (304, True), (0, False), (401, False), (503, False)]
)
async def test_an_attempt_succeeds_with_a_2xx_or_3xx_status(code: int, is_success: bool) -> None:
    async with FakeGitHub() as fake_github:
        at = fake_github.now()
    attempt = DeliveryAttempt(id=1, guid="g", delivered_at=at, status_code=code, event="issues", action=None)
    assert attempt.is_success is is_success


async def test_a_new_worker_continues_from_the_stored_delivery_history(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    thread = fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    lost = await fake_github.add_label(thread, "fix-me", by="maintainer")
    fake_github.advance_time(seconds=30)
    first = Redelivery(deployment.rest, state=deployment.lease, clock=fake_github.now)
    assert await first.redeliver() == 0
    fake_github.advance_time(hours=1)
    later = await fake_github.add_comment(thread, "Hello.", by="stranger")
    assert await first.redeliver() == 1
    second = Redelivery(deployment.rest, state=deployment.lease, clock=fake_github.now)
    stored = (await deployment.lease.load("app/hook/deliveries") or b"").decode()
    assert lost.guid in stored and later.guid in stored and '"redelivery_count":1' in stored
    fake_github.advance_time(minutes=3)
    assert await second.redeliver() == 2


async def test_a_revoked_token_is_minted_again(deployment: Deployment) -> None:
    poller = Poller(deployment.rest, deployment.identity)
    await poll_deliveries(deployment, poller)
    deployment.fake_github.expire_tokens()
    with pytest.raises(Unauthorized):
        await poll_deliveries(deployment, poller)
    assert await poll_deliveries(deployment, poller) == []


@pytest.mark.slow
async def test_closings_and_label_removals_of_queued_jobs_are_found(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    closed, moved, unlabeled, unchanged, mentioned = (
        fake_github.create_issue(deployment.repo, title=name, body="B", by="stranger")
        for name in ("closed", "moved", "unlabeled", "unchanged", "mentioned")
    )
    for thread in (closed, moved, unlabeled, unchanged):
        await deployment.handler.handle(parse(await fake_github.add_label(thread, LABEL, by="maintainer")))
    await deployment.handler.handle(
        parse(await fake_github.add_comment(mentioned, "@agent fix it", by="maintainer"))
    )
    assert len(await deployment.open()) == 5
    fake_github.close_silently(closed)
    ended = await fake_github.remove_label(unlabeled, LABEL, by="maintainer")
    del deployment.repo.threads[moved.number]
    (repo,) = await Poller(deployment.rest, deployment.identity).repositories.list_current()
    deliveries = await Poller(deployment.rest, deployment.identity).find_ended(
        repo, await deployment.handler.active_jobs(SAMPLE)
    )
    by_number = {delivery.number: delivery for delivery in deliveries}
    assert by_number.keys() == {closed.number, moved.number, unlabeled.number}
    first, second = by_number[closed.number], by_number[moved.number]
    assert isinstance(first, ThreadClosed) and isinstance(second, ThreadClosed)
    assert (first.reason, second.reason) == ("closed", "deleted")
    assert by_number[unlabeled.number] == parse(ended)


async def test_an_unreachable_repository_cancels_no_job(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    issue = fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    await deployment.handler.handle(parse(await fake_github.add_label(issue, LABEL, by="maintainer")))
    poller = Poller(deployment.rest, deployment.identity)
    (repo,) = await poller.repositories.list_current()
    for path in (f"/issues/{issue.number}", "/repos/acme/sample"):
        fake_github.fail_next_request("GET", path, status=404)
    jobs = await deployment.handler.active_jobs(SAMPLE)
    assert len(jobs) == 1 and await poller.find_ended(repo, jobs) == []


async def test_a_poll_cancels_jobs_of_closed_threads(deployment: Deployment) -> None:
    thread = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    await deployment.handler.handle(
        parse(await deployment.fake_github.add_label(thread, LABEL, by="maintainer"))
    )
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    assert len(await deployment.open()) == 1
    deployment.fake_github.close_silently(thread)
    await reconciler.reconcile()
    assert await deployment.open() == set()


async def test_only_requests_after_the_closing_of_a_thread_are_found(
    deployment: Deployment,
) -> None:
    fake_github = deployment.fake_github
    thread = fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    fake_github.add_label_silently(thread, LABEL, by="maintainer")
    fake_github.add_comment_silently(thread, "@agent fix it", by="maintainer")
    fake_github.advance_time(seconds=2)
    fake_github.close_silently(thread)
    poller = Poller(deployment.rest, deployment.identity)
    assert await poll_deliveries(deployment, poller) == []
    fake_github.advance_time(seconds=2)
    fake_github.add_comment_silently(thread, "@agent retry", by="maintainer")
    (delivery,) = await poll_deliveries(deployment, poller)
    assert isinstance(delivery, CommentCreated) and delivery.body == "@agent retry"
    await fake_github.remove_label(thread, LABEL, by="maintainer")
    fake_github.add_label_silently(thread, LABEL, by="maintainer")
    assert [type(each) for each in await poll_deliveries(deployment, poller)] == [CommentCreated, LabelAdded]


async def test_a_stop_found_by_polling_is_answered(deployment: Deployment) -> None:
    thread = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    deployment.fake_github.add_comment_silently(thread, "@agent stop", by="maintainer")
    await deployment.build_reconciler().reconcile()
    assert "There is nothing to stop" in thread.comments[-1].body
