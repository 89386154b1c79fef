"""A dashboard button acts like a comment with the same command, with the same permission checks."""

from datetime import timedelta
from typing import Literal

import pytest

from patchwright.bot.jobs import Answered, Stopped
from patchwright.bot.redis.delivery_inbox import StoredDelivery
from patchwright.bot.triggers.delivery_processor import DeliveryProcessor
from patchwright.bot.webhooks.delivery import HANDLED_EVENTS
from patchwright.bot.webhooks.triggers import DASHBOARD_EVENT, TriggerRequest
from patchwright.resolver.domain import Job, JobId, Rejected, Repo, RunId, User
from tests.bot.handler_scenario import HandlerScenario
from tests.bot.handler_scenario import scenario as scenario  # the fixture
from tests.bot.jobs import DONE, RecordingHandler, running_worker, wait_for_state


def button(
    scenario: HandlerScenario,
    verb: Literal["stop", "retry"],
    by: str | None,
    *,
    run: str = "a-run",
    name: str = "press-1",
) -> TriggerRequest:
    person = scenario.fake_github.user(by) if by else None
    job = Job(
        id=JobId(name),
        repo=Repo(owner=scenario.repo.owner.login, name=scenario.repo.name),
        number=scenario.issue.number,
        requester=User(id=person.id, login=person.login) if person else None,
        command=verb,
        retry_of=RunId(run) if verb == "retry" else None,
    )
    return TriggerRequest(
        job=job,
        source="dashboard",
        run=RunId(run),
        requested_at=scenario.fake_github.now() + timedelta(minutes=1),  # The fake server's clock runs ahead.
    )


@pytest.mark.parametrize("by", ["maintainer", None])
async def test_the_stop_button_cancels_a_running_job(scenario: HandlerScenario, by: str | None) -> None:
    job, handler = await scenario.label(), RecordingHandler()
    async with running_worker(scenario.queue, handler):
        await handler.running.wait()
        await scenario.handler.execute(button(scenario, "stop", by, run=job.id))
        record = await wait_for_state(scenario.queue, job.id)
    assert record.result == Stopped(by=by or "")
    pressed = await scenario.queue.get_record(JobId("press-1"))
    assert pressed is not None
    assert pressed.result == Answered()


async def test_the_stop_button_cancels_only_the_run_of_its_page(scenario: HandlerScenario) -> None:
    running, handler = await scenario.label(), RecordingHandler()
    async with running_worker(scenario.queue, handler):
        await handler.running.wait()
        waiting = await scenario.request("@agent retry")
        await scenario.handler.execute(button(scenario, "stop", "maintainer", run=waiting.id))
        assert (await wait_for_state(scenario.queue, waiting.id)).result == Stopped(by="maintainer")
        goes_on = await scenario.queue.get_record(running.id)
        assert goes_on is not None and goes_on.state == "running"
        assert await scenario.queue.should_continue(running.id)
    assert scenario.replies == ["@maintainer stopped this run before it started."]


async def test_the_stop_button_of_a_completed_run_cancels_nothing(scenario: HandlerScenario) -> None:
    ended = await scenario.label()
    await scenario.queue.complete(ended, DONE)
    later = await scenario.request("@agent retry")
    await scenario.handler.execute(button(scenario, "stop", "maintainer", run=ended.id))
    record = await scenario.queue.get_record(later.id)
    assert record is not None and record.state == "queued"


@pytest.mark.parametrize("by", ["stranger", "triager"])
async def test_the_stop_button_needs_write_access(scenario: HandlerScenario, by: str) -> None:
    job = await scenario.label()
    await scenario.handler.execute(button(scenario, "stop", by, run=job.id))
    pressed, kept = await scenario.queue.get_record(JobId("press-1")), await scenario.queue.get_record(job.id)
    assert pressed is not None
    assert kept is not None
    assert isinstance(pressed.result, Rejected)
    assert kept.state == "queued"


async def test_the_retry_button_starts_one_run_even_if_read_twice(scenario: HandlerScenario) -> None:
    press = button(scenario, "retry", "maintainer")
    assert await scenario.handler.execute(press) == "press-1"
    assert await scenario.handler.execute(press) is None
    record = await scenario.queue.get_record(JobId("press-1"))
    assert record is not None
    assert (record.job.command, record.job.requester, record.job.retry_of) == (
        "retry",
        press.job.requester,
        press.run,
    )


async def test_the_delivery_processor_passes_on_valid_dashboard_commands_only(
    scenario: HandlerScenario,
) -> None:
    intake = DeliveryProcessor(None, scenario.handler, "one")  # type: ignore[arg-type]
    good = button(scenario, "retry", None).model_dump_json().encode()
    for body in (good, b"{}", b"\xff", good.replace(b"retry", b"delete")):
        await intake.process(StoredDelivery(entry_id="1", guid="g", event=DASHBOARD_EVENT, body=body))
    assert scenario.queue.known == {"press-1"}


def test_a_webhook_delivery_cannot_be_a_dashboard_command() -> None:
    assert DASHBOARD_EVENT not in HANDLED_EVENTS
