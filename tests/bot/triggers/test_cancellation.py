"""Removing the label or closing the thread cancels its jobs, and queued jobs get one notice."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from patchwright.bot.jobs import JobRecord, Stopped
from patchwright.bot.webhooks.delivery import LabelAdded, parse_delivery
from patchwright.demo.github import Delivery
from patchwright.resolver.domain import JobId
from tests.bot.handler_scenario import HandlerScenario
from tests.bot.handler_scenario import scenario as scenario  # the fixture
from tests.bot.jobs import RecordingHandler, running_worker, wait_for_state

AWAY = "@maintainer removed the label before I started. Add it again to start a new run."
UNLABELED = Stopped(reason="unlabeled", by="maintainer")
CLOSED = "This was closed before I started. Reopen it and ask me again."


@pytest.fixture
async def handler(scenario: HandlerScenario) -> AsyncIterator[RecordingHandler]:
    """Runs a worker whose jobs run until the test ends them."""
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        yield handler


async def deliver_all(scenario: HandlerScenario, *deliveries: Delivery) -> None:
    for delivery in deliveries:
        await scenario.handler.handle(parse_delivery(delivery.event, delivery.body))


async def record(scenario: HandlerScenario, job: JobId) -> JobRecord:
    found = await scenario.queue.get_record(job)
    assert found is not None
    return found


async def test_removing_the_label_cancels_its_jobs_but_not_those_of_comments(
    scenario: HandlerScenario,
) -> None:
    labeled = await scenario.label()
    run = await scenario.request("@agent fix it")
    away = await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="maintainer")
    await deliver_all(scenario, away, away)
    assert (await record(scenario, labeled.id)).result == UNLABELED
    assert (await record(scenario, run.id)).state == "queued"
    assert scenario.replies == [AWAY]


async def test_a_run_whose_label_is_removed_is_canceled_and_reports_it(
    scenario: HandlerScenario, handler: RecordingHandler
) -> None:
    labeled = await scenario.label()
    await handler.running.wait()
    await deliver_all(
        scenario, await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="maintainer")
    )
    assert (await wait_for_state(scenario.queue, labeled.id)).result == UNLABELED
    assert scenario.replies == []  # Its status comment says so: tests/end_to_end/test_withdrawn_requests.py.


async def test_a_user_without_write_access_can_only_cancel_their_own_request(
    scenario: HandlerScenario,
) -> None:
    scenario.fake_github.set_role(scenario.repo, "triager", "triage")
    labeled = await scenario.label()
    await deliver_all(
        scenario, await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="triager")
    )
    assert (await record(scenario, labeled.id)).state == "queued"
    scenario.fake_github.set_role(scenario.repo, "triager", "write")
    own = await scenario.deliver(await scenario.fake_github.add_label(scenario.issue, "fix-me", by="triager"))
    scenario.fake_github.set_role(scenario.repo, "triager", "triage")
    await deliver_all(
        scenario, await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="triager")
    )
    assert (await record(scenario, labeled.id)).state == "queued"
    assert (await record(scenario, own.id)).result == Stopped(reason="unlabeled", by="triager")


async def test_other_labels_and_bots_cancel_nothing(scenario: HandlerScenario) -> None:
    labeled = await scenario.label()
    await scenario.fake_github.add_label(scenario.issue, "bug", by="maintainer")
    await deliver_all(
        scenario, await scenario.fake_github.remove_label(scenario.issue, "bug", by="maintainer")
    )
    scenario.fake_github.set_role(scenario.repo, "sweeper[bot]", "write")
    scenario.fake_github.user("sweeper[bot]").kind = "Bot"
    await deliver_all(
        scenario, await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="sweeper[bot]")
    )
    assert (await record(scenario, labeled.id)).state == "queued"


async def test_a_label_delivered_after_its_removal_starts_nothing_and_a_later_one_does(
    scenario: HandlerScenario,
) -> None:
    first = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    away = await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="maintainer")
    second = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    await deliver_all(scenario, away, second, first, away)
    (waiting,) = await scenario.queue.all_active_jobs()
    assert waiting.job.id == (await scenario.deliver(second)).id
    assert scenario.replies == []


@pytest.mark.parametrize("seconds", [(0, 0, 0), (0, 1, 1)], ids=["one second", "across two seconds"])
async def test_a_label_that_is_added_again_within_a_second_requests_another_job(
    scenario: HandlerScenario, seconds: tuple[int, int, int]
) -> None:
    sent = (
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer"),
        await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="maintainer"),
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer"),
    )
    deliveries = [
        parse_delivery(one.event, one.body).model_copy(update={"occurred_at": f"2026-11-20T06:00:0{second}Z"})
        for one, second in zip(sent, seconds, strict=True)
    ]
    for delivery in deliveries:
        await scenario.handler.handle(delivery)
    (waiting,) = await scenario.queue.all_active_jobs()
    for delivery in deliveries:  # Redeliveries change nothing, except that they cancel no later job.
        if isinstance(delivery, LabelAdded):
            await scenario.handler.handle(delivery)
    assert await scenario.queue.all_active_jobs() == (waiting,)


async def test_a_label_of_an_earlier_second_is_not_requested_again(scenario: HandlerScenario) -> None:
    label = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    away = await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="maintainer")
    await deliver_all(scenario, label, away, label)
    assert await scenario.queue.all_active_jobs() == ()


async def test_closing_the_thread_cancels_queued_and_running_jobs(
    scenario: HandlerScenario, handler: RecordingHandler
) -> None:
    running = await scenario.label()
    await handler.running.wait()
    message, again = await scenario.request("@agent mind the tests"), await scenario.label()
    closing = await scenario.fake_github.close_thread(scenario.issue, by="reporter")
    await deliver_all(scenario, closing, closing)
    for one in (running, message, again):
        assert (await wait_for_state(scenario.queue, one.id)).result == Stopped(reason="closed")
    # The notice for the label; the message's run reports its cancellation itself.
    assert scenario.replies == [CLOSED]


async def test_closing_a_pull_request_cancels_its_jobs(scenario: HandlerScenario) -> None:
    scenario.repo.commit("topic", {"a.py": "x = 2\n"})
    pull = scenario.fake_github.create_pull(scenario.repo, "topic", by="maintainer")
    job = await scenario.deliver(
        await scenario.fake_github.add_comment(pull, "@agent fix it", by="maintainer")
    )
    elsewhere = await scenario.label()
    await deliver_all(scenario, await scenario.fake_github.close_thread(pull, by="maintainer", merged=True))
    assert (await record(scenario, job.id)).result == Stopped(reason="closed")
    assert (await record(scenario, elsewhere.id)).state == "queued"
    assert pull.comments[-1].body.strip().endswith(CLOSED)


async def test_requests_after_reopening_a_thread_are_handled(scenario: HandlerScenario) -> None:
    before = await scenario.label()
    closing = await scenario.fake_github.close_thread(scenario.issue, by="reporter")
    scenario.issue.closed = None
    after = await scenario.request("@agent fix it all the same")
    await deliver_all(scenario, closing)
    assert (await record(scenario, before.id)).result == Stopped(reason="closed")
    assert (await record(scenario, after.id)).state == "queued"


async def test_jobs_of_a_locked_thread_are_canceled_too(scenario: HandlerScenario) -> None:
    waiting = await scenario.label()
    scenario.fake_github.fail_next_request("POST", "/comments", status=403, body={"message": "locked"})
    await deliver_all(scenario, await scenario.fake_github.close_thread(scenario.issue, by="reporter"))
    assert (await record(scenario, waiting.id)).result == Stopped(reason="closed")


async def test_without_a_job_nothing_is_posted(scenario: HandlerScenario) -> None:
    handler = RecordingHandler()
    handler.go.set()
    async with running_worker(scenario.queue, handler):
        done = await wait_for_state(scenario.queue, (await scenario.label()).id)
    await deliver_all(
        scenario,
        await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="maintainer"),
        await scenario.fake_github.close_thread(scenario.issue, by="maintainer"),
    )
    assert await record(scenario, done.job.id) == done
    assert scenario.replies == []


async def test_an_edit_changes_nothing(scenario: HandlerScenario) -> None:
    """An edit could add a request to another person's comment, and GitHub notifies nobody of it."""
    delivery = await scenario.comment("just a remark")
    edited = delivery.body.replace(b'"action": "created"', b'"action": "edited"').replace(
        b"just a remark", b"@agent delete it"
    )
    assert b"@agent delete it" in edited and b'"edited"' in edited
    await scenario.handler.handle(parse_delivery("issue_comment", edited))
    assert await scenario.queue.all_active_jobs() == ()
    await scenario.handler.handle(parse_delivery("issue_comment", edited.replace(b'"edited"', b'"created"')))
    assert len(await scenario.queue.all_active_jobs()) == 1


async def test_simultaneous_cancellations_post_one_notice(scenario: HandlerScenario) -> None:
    await scenario.label()
    closing = await scenario.fake_github.close_thread(scenario.issue, by="reporter")
    await asyncio.gather(*(deliver_all(scenario, closing) for _ in range(20)))
    assert scenario.replies == [CLOSED]
