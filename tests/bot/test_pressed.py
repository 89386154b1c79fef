"""A button of the page at the desk: what a comment with the same word would do, with the same checks."""

from datetime import timedelta
from typing import Literal

import pytest

from bot.jobs import Answered, Cancelled
from bot.pressed import EVENT, Pressed
from bot.redis.inbox import Letter
from bot.webhooks.delivery import EVENTS
from bot.webhooks.intake import Intake
from resolver.domain import JobId, Refused, Repo, RunId, User
from tests.bot.jobs import DONE, Handlers, settled, working
from tests.bot.rooms import Room
from tests.bot.rooms import room as room  # the fixture


def button(
    room: Room, verb: Literal["stop", "retry"], by: str | None, *, run: str = "a-run", name: str = "press-1"
) -> Pressed:
    person = room.world.user(by) if by else None
    return Pressed(
        id=JobId(name),
        run=RunId(run),
        verb=verb,
        repo=Repo(owner=room.repo.owner.login, name=room.repo.name),
        number=room.issue.number,
        by=User(id=person.id, login=person.login) if person else None,
        at=room.world.now() + timedelta(minutes=1),  # its stamps run ahead
    )


@pytest.mark.parametrize("by", ["maintainer", None])
async def test_a_button_stops_what_runs(room: Room, by: str | None) -> None:
    job, handler = await room.labelled(), Handlers()
    async with working(room.queue, handler):
        await handler.running.wait()
        await room.desk.press(button(room, "stop", by, run=job.id))
        record = await settled(room.queue, job.id)
    assert record.result == Cancelled()
    pressed = await room.queue.state(JobId("press-1"))
    assert pressed is not None
    assert pressed.result == Answered()


async def test_it_stops_the_run_whose_page_it_is_on_and_no_other_of_its_thread(room: Room) -> None:
    running, handler = await room.labelled(), Handlers()
    async with working(room.queue, handler):
        await handler.running.wait()
        waiting = await room.asked("@agent retry")
        await room.desk.press(button(room, "stop", "maintainer", run=waiting.id))
        assert (await settled(room.queue, waiting.id)).result == Cancelled()
        goes_on = await room.queue.state(running.id)
        assert goes_on is not None and goes_on.state == "running"
        assert await room.queue.is_wanted(running.id)
    assert room.answers == ["I did not start on this: I was stopped before I began."]


async def test_of_a_run_that_has_ended_nothing_is_stopped(room: Room) -> None:
    ended = await room.labelled()
    await room.queue.settle(ended, DONE)
    later = await room.asked("@agent retry")
    await room.desk.press(button(room, "stop", "maintainer", run=ended.id))
    record = await room.queue.state(later.id)
    assert record is not None and record.state == "queued"


@pytest.mark.parametrize("by", ["stranger", "triager"])
async def test_who_may_not_write_stops_nothing_whatever_the_page_said(room: Room, by: str) -> None:
    job = await room.labelled()
    await room.desk.press(button(room, "stop", by, run=job.id))
    pressed, kept = await room.queue.state(JobId("press-1")), await room.queue.state(job.id)
    assert pressed is not None
    assert kept is not None
    assert isinstance(pressed.result, Refused)
    assert kept.state == "queued"


async def test_a_button_asks_for_another_run_once_however_often_it_is_read(room: Room) -> None:
    press = button(room, "retry", "maintainer")
    assert await room.desk.press(press) == "press-1"
    assert await room.desk.press(press) is None
    record = await room.queue.state(JobId("press-1"))
    assert record is not None
    assert (record.job.command, record.job.requester, record.job.again) == ("retry", press.by, press.run)


async def test_the_intake_hands_it_over_and_passes_over_what_is_none(room: Room) -> None:
    intake = Intake(None, room.desk, "one")  # type: ignore[arg-type]
    good = button(room, "retry", None).model_dump_json().encode()
    for body in (good, b"{}", b"\xff", good.replace(b"retry", b"delete")):
        await intake.deal_with(Letter(id="1", guid="g", event=EVENT, body=body))
    assert room.queue.known == {"press-1"}


def test_no_delivery_can_be_one() -> None:
    assert EVENT not in EVENTS
