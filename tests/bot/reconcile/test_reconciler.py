"""Requests whose deliveries failed, or that a wiped Redis lost, are found on GitHub and run once."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from patchwright.bot.reconcile.reconciler import NO_REPOSITORIES_SECONDS, PollSchedule
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.delivery_inbox import DeliveryInbox, StoredDelivery
from patchwright.bot.triggers.check_monitor import CheckMonitor
from patchwright.bot.triggers.delivery_processor import DeliveryProcessor
from patchwright.bot.webhooks.delivery import LabelAdded, parse_delivery
from patchwright.bot.webhooks.triggers import TIME_FORMAT, possible_job_ids
from patchwright.demo.github import FakePullRequest, Issue
from patchwright.resolver.errors import RateLimited
from patchwright.resolver.publishing import reply_texts
from tests.bot.jobs import RecordingHandler, running_worker, wait_for_state
from tests.bot.local_services import local_handler
from tests.bot.reconcile.deployments import (
    NO_GRACE,
    PERMISSIONS,
    WITH_GRACE,
    Deployment,
    app_auth,
    build_forge,
    open_deployment,
)

pytestmark = pytest.mark.redis


@pytest.fixture
async def deployment(short_tmp: Path) -> AsyncIterator[Deployment]:
    async with open_deployment(short_tmp) as deployment:
        yield deployment


def create_issue(deployment: Deployment) -> Issue:
    return deployment.fake_github.create_issue(
        deployment.repo, title="add() subtracts", body="It does.", by="stranger"
    )


def create_pull(deployment: Deployment) -> FakePullRequest:
    deployment.repo.commit("topic", {"calc.py": "x = 1\ny = 3\n"})
    return deployment.fake_github.create_pull(deployment.repo, "topic", by="stranger")


async def test_a_missed_delivery_becomes_the_same_job(deployment: Deployment) -> None:
    fake_github, thread, pull = deployment.fake_github, create_issue(deployment), create_pull(deployment)
    review = fake_github.add_review(pull, ("calc.py", 2, "@agent why 3?"), by="maintainer", body="Hm.")
    missed = [
        await fake_github.add_label(thread, "fix-me", by="maintainer"),
        await fake_github.add_comment(thread, "@agent fix it", by="maintainer"),
        await fake_github.add_label(pull, "fix-me", by="maintainer"),
        await fake_github.add_comment(pull, "@agent rebase", by="maintainer"),
        (await fake_github.deliver_review(pull, review))[1],
    ]
    alone = fake_github.add_review(pull, by="maintainer", body="@agent mind this")
    missed += await fake_github.deliver_review(pull, alone)
    missed.append(
        await fake_github.open_issue(deployment.repo, title="T", body="@agent make it fast", by="maintainer")
    )
    jobs = [deployment.job_of(delivery) for delivery in missed]
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    assert await deployment.open() == {job.id for job in jobs}
    for job in jobs:
        record = await deployment.queue.get_record(job.id)
        assert record is not None and record.job == job
    await reconciler.reconcile()
    assert len(await deployment.open()) == len(jobs)


ACTS = {
    "a mention in code": "Say `@agent go`.",
    "a mention in a quotation": "> @agent go\n\nNo.",
    "a mention that nobody sees": "<!-- @agent go -->",
    "a word that only looks so": "mail me@agent.com",
    "our own words": "<!-- patchwright:x -->\n@agent go",
}


@pytest.mark.parametrize("text", ACTS.values(), ids=ACTS)
async def test_polled_comments_without_a_mention_start_nothing(deployment: Deployment, text: str) -> None:
    deployment.fake_github.add_comment_silently(create_issue(deployment), text, by="maintainer")
    await deployment.build_reconciler().reconcile()
    assert await deployment.open() == set()


async def test_retracted_requests_and_those_of_bots_are_not_found(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    bot = create_issue(deployment)
    fake_github.user("robot[bot]").kind = "Bot"
    fake_github.add_comment_silently(bot, "@agent go", by="robot[bot]")
    fake_github.add_label_silently(bot, "fix-me", by="robot[bot]")
    edited = create_issue(deployment)
    fake_github.edit_comment(
        edited, fake_github.add_comment_silently(edited, "Hello.", by="maintainer"), "@agent go"
    )
    removed = create_issue(deployment)
    fake_github.add_label_silently(removed, "fix-me", by="maintainer")
    await fake_github.remove_label(removed, "fix-me", by="maintainer")
    closed = create_issue(deployment)
    fake_github.add_label_silently(closed, "fix-me", by="maintainer")
    fake_github.add_comment_silently(closed, "@agent go", by="maintainer")
    fake_github.close_silently(closed)
    other = create_issue(deployment)
    fake_github.add_label_silently(other, "bug", by="maintainer")
    await deployment.build_reconciler().reconcile()
    assert await deployment.open() == set()


async def test_recent_events_are_left_to_their_deliveries_at_first(deployment: Deployment) -> None:
    fake_github, reconciler = deployment.fake_github, deployment.build_reconciler(WITH_GRACE)
    sent = await fake_github.add_label(create_issue(deployment), "fix-me", by="maintainer")
    fake_github.advance_time(seconds=100)
    await reconciler.reconcile()
    assert await deployment.open() == set()
    fake_github.advance_time(seconds=40)
    await reconciler.reconcile()
    assert await deployment.open() == {deployment.job_of(sent).id}


@pytest.mark.slow
async def test_events_whose_deliveries_are_late_are_polled_again(deployment: Deployment) -> None:
    schedule = PollSchedule(redelivery_interval=600, poll_interval=600, delivery_grace=2, settle_seconds=0)
    sent = await deployment.fake_github.add_label(create_issue(deployment), "fix-me", by="maintainer")
    running = asyncio.create_task(deployment.build_reconciler(schedule).run())
    async with asyncio.timeout(60):  # a tenth of the interval between two polls
        while not await deployment.open():
            await asyncio.sleep(0.02)
    assert await deployment.open() == {deployment.job_of(sent).id}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_webhook_and_installations_the_next_poll_is_soon(deployment: Deployment) -> None:
    app = deployment.fake_github.create_app("later", PERMISSIONS)
    forge = build_forge(deployment.fake_github, app_auth(app))
    schedule = PollSchedule(redelivery_interval=600, poll_interval=0, delivery_grace=0, settle_seconds=0)
    reconciler = replace(deployment, forge=forge).build_reconciler(schedule)
    assert await reconciler._run_once() == NO_REPOSITORIES_SECONDS
    deployment.fake_github.install_app(app, deployment.repo)
    assert await reconciler._run_once() == 600
    await forge.aclose()


@pytest.mark.slow
async def test_no_job_runs_twice_whichever_way_it_arrives(deployment: Deployment) -> None:
    fake_github, reconciler, inbox = (
        deployment.fake_github,
        deployment.build_reconciler(),
        DeliveryInbox(deployment.url),
    )
    processor = DeliveryProcessor(inbox, deployment.handler, "one")
    sent = []
    for number in range(6):
        thread = create_issue(deployment)
        sent.append(await fake_github.add_label(thread, "fix-me", by="maintainer"))
        sent.append(await fake_github.add_comment(thread, "@agent fix it", by="maintainer"))
        stored = [
            StoredDelivery(entry_id="1", guid=event.guid, event=event.event, body=event.body)
            for event in sent
        ] * 2
        random.Random(number).shuffle(stored)
        for delivery in stored[: len(stored) // 2]:
            await processor.process(delivery)
        await reconciler.reconcile()
        for delivery in stored:
            await processor.process(delivery)
        assert await deployment.open() == {deployment.job_of(event).id for event in sent}
    await inbox.close()


async def test_a_label_dated_a_second_later_by_its_delivery_is_the_same_job(deployment: Deployment) -> None:
    fake_github, inbox = deployment.fake_github, DeliveryInbox(deployment.url)
    sent = await fake_github.add_label(create_issue(deployment), "fix-me", by="maintainer")
    await deployment.build_reconciler().reconcile()
    at = parse_delivery(sent.event, sent.body)
    assert isinstance(at, LabelAdded)
    later = (datetime.fromisoformat(at.occurred_at) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = sent.body.replace(
        f'"updated_at": "{at.occurred_at}"'.encode(), f'"updated_at": "{later}"'.encode()
    )
    assert body != sent.body
    processor = DeliveryProcessor(inbox, deployment.handler, "one")
    await processor.process(StoredDelivery(entry_id="1", guid="g", event="issues", body=body))
    assert await deployment.open() == {deployment.job_of(sent).id}
    assert deployment.job_of(sent).id in possible_job_ids(
        parse_delivery("issues", body), deployment.job_of(sent)
    )
    await inbox.close()


async def test_a_label_added_again_requests_another_job(deployment: Deployment) -> None:
    fake_github, reconciler, thread = (
        deployment.fake_github,
        deployment.build_reconciler(),
        create_issue(deployment),
    )
    fake_github.add_label_silently(thread, "fix-me", by="maintainer")
    await reconciler.reconcile()
    (first,) = await deployment.open()
    await fake_github.remove_label(thread, "fix-me", by="maintainer")
    fake_github.add_label_silently(thread, "fix-me", by="maintainer")
    await reconciler.reconcile()
    assert len(await deployment.open() - {first}) == 1


async def test_a_label_in_another_case_is_the_same_job_and_can_be_removed(
    deployment: Deployment,
) -> None:
    fake_github, reconciler, thread = (
        deployment.fake_github,
        deployment.build_reconciler(),
        create_issue(deployment),
    )
    sent = await fake_github.add_label(thread, "Fix-Me", by="maintainer")
    await deployment.handler.handle(parse_delivery(sent.event, sent.body))
    (job,) = await deployment.open()
    await reconciler.reconcile()
    assert await deployment.open() == {job}
    away = await fake_github.remove_label(thread, "Fix-Me", by="maintainer")
    await deployment.handler.handle(parse_delivery(away.event, away.body))
    assert await deployment.open() == set()


async def wipe(url: str) -> None:
    redis = redis_client(url)
    await redis.flushall()
    await redis.aclose()


@pytest.mark.slow
async def test_a_wiped_redis_is_rebuilt_and_no_job_runs_twice(deployment: Deployment) -> None:
    fake_github, handler = deployment.fake_github, RecordingHandler()
    queue = ArqQueue(deployment.url, max_concurrent_jobs=1, lease_seconds=3)
    other = ArqQueue(deployment.url, max_concurrent_jobs=4, lease_seconds=3)
    sent = [
        await fake_github.add_label(create_issue(deployment), "fix-me", by="maintainer") for _ in range(3)
    ]
    jobs = {deployment.job_of(event).id for event in sent}
    reconciler = deployment.build_reconciler()
    async with running_worker(queue, handler):
        await reconciler.reconcile()
        await asyncio.wait_for(handler.running.wait(), 10)
        (running,) = handler.started
        await wipe(deployment.url)
        await wait_for_state(queue, running, "running", 60)  # its worker has restored the record
        async with running_worker(other, handler):
            await reconciler.reconcile()
            assert await deployment.open() == jobs
            async with asyncio.timeout(60):
                while set(handler.started) != jobs:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(4)  # longer than a lease: the other worker must not take the running job
            handler.go.set()
            for job in jobs:
                assert (await wait_for_state(queue, job)).state == "completed"
            await reconciler.reconcile()
    assert handler.started == dict.fromkeys(jobs, 1)
    await queue.close()
    await other.close()


@pytest.mark.slow
async def test_after_a_wipe_requests_are_found_without_a_grace_period(deployment: Deployment) -> None:
    sent = await deployment.fake_github.add_label(create_issue(deployment), "fix-me", by="maintainer")
    reconciler = deployment.build_reconciler(WITH_GRACE)
    await reconciler.reconcile()
    assert await deployment.open() == set()  # the delivery may still arrive
    await wipe(deployment.url)
    await asyncio.wait_for(reconciler._wait(600), 60)
    await reconciler.reconcile()
    assert await deployment.open() == {deployment.job_of(sent).id}


async def test_a_request_that_the_bots_comment_shows_as_handled_is_not_repeated(
    deployment: Deployment,
) -> None:
    fake_github, reconciler = deployment.fake_github, deployment.build_reconciler()
    threads = [create_issue(deployment) for _ in range(3)]
    done, in_progress, forged = [
        deployment.job_of(await fake_github.add_label(thread, "fix-me", by="maintainer"))
        for thread in threads
    ]
    template = "<!-- patchwright:{} -->\n{}"
    refusal = reply_texts.render_rejection("You may not.")
    fake_github.add_comment_silently(threads[0], template.format(done.id, refusal), by="patchwright[bot]")
    fake_github.add_comment_silently(
        threads[1],
        template.format(f"{in_progress.id} in-progress", "Whatever an operator's template says."),
        by="patchwright[bot]",
    )
    fake_github.add_comment_silently(threads[2], template.format(forged.id, refusal), by="stranger")
    await reconciler.reconcile()
    assert await deployment.has_records(done, in_progress, forged) == [False, True, True]


async def test_polling_an_unchanged_repository_takes_one_request(deployment: Deployment) -> None:
    fake_github, reconciler, thread = (
        deployment.fake_github,
        deployment.build_reconciler(),
        create_issue(deployment),
    )
    fake_github.add_label_silently(thread, "fix-me", by="maintainer")
    for _ in range(3):
        await reconciler.reconcile()
    # A request for any of these paths would fail the poll.
    for path in ("/issues/comments", "/events", "/pulls/comments", "/installation/repositories"):
        fake_github.fail_next_request("GET", path, status=429, headers={"retry-after": "60"}, times=4)
    for _ in range(3):
        await reconciler.reconcile()
    fake_github.add_comment_silently(thread, "@agent and this", by="maintainer")
    with pytest.raises(RateLimited):
        await reconciler.reconcile()


async def test_polling_without_changes_uses_no_rate_limit_and_finds_later_events(
    deployment: Deployment,
) -> None:
    fake_github, monitor = (
        deployment.fake_github,
        CheckMonitor(deployment.queue, deployment.forge, "patchwright/", clock=deployment.fake_github.now),
    )
    deployment.handler = local_handler(
        deployment.queue, deployment.triggers, deployment.forge, checks=monitor
    )
    deployment.repo.commit("patchwright/issue-1", {"calc.py": "x = 2\n"})
    own_pull = fake_github.create_pull(deployment.repo, "patchwright/issue-1", by="patchwright[bot]")
    reconciler = deployment.build_reconciler(replace(NO_GRACE, repository_list_age=0))
    await reconciler.reconcile()
    # One token reads the installation. Another one reads the checks of our pull request.
    assert sum(one.path.endswith("/access_tokens") for one in fake_github.api_requests) == 2
    for _ in range(2):
        await reconciler.reconcile()
    past = len(fake_github.api_requests)
    await reconciler.reconcile()
    listing = [(one.method, one.path, one.status) for one in fake_github.api_requests[past:]]
    paths = "/app/installations", "/installation/repositories", "/repos/acme/sample/issues"
    assert listing == [("GET", path, 304) for path in paths]
    new = deployment.repo.commit("patchwright/issue-1", {"calc.py": "x = 3\n"})
    own_pull.updated = fake_github.now().strftime(TIME_FORMAT)  # as GitHub does after a push
    fake_github.ci.add_check(deployment.repo, new, "test")
    await reconciler.reconcile()
    (job,) = [record.job for record in await deployment.queue.all_active_jobs()]
    assert (job.number, job.failed_checks_commit) == (own_pull.number, new)
    await deployment.handler.close()


async def test_one_worker_polls_and_another_takes_over(deployment: Deployment) -> None:
    first, second = deployment.build_reconciler(name="first"), deployment.build_reconciler(name="second")
    running = asyncio.create_task(first.run())
    async with asyncio.timeout(60):
        while not await deployment.lease.fetch_cursors():
            await asyncio.sleep(0.02)
    assert not await deployment.lease.try_acquire("second")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    deployment.fake_github.add_label_silently(create_issue(deployment), "fix-me", by="maintainer")
    running = asyncio.create_task(second.run())
    async with asyncio.timeout(60):
        while not await deployment.open():
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_repository_that_cannot_be_polled_does_not_hide_others(deployment: Deployment) -> None:
    fake_github = deployment.fake_github
    other = fake_github.create_repository("acme/another", {"x": "y"}, permissions={"maintainer": "write"})
    fake_github.install_app(deployment.app, other)
    fake_github.fail_next_request("GET", "/acme/sample/issues", status=404)
    thread = fake_github.create_issue(other, title="T", body="B", by="stranger")
    fake_github.add_label_silently(thread, "fix-me", by="maintainer")
    reconciler = deployment.build_reconciler()
    await reconciler.reconcile()
    assert [name.split("-")[1] for name in await deployment.open()] == ["another"]
    fake_github.fail_next_request("GET", "/acme/sample/issues", status=502, times=9)
    running = asyncio.create_task(reconciler.run())
    await asyncio.sleep(0.5)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
