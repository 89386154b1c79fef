"""A run ends when its label or its thread goes away, and nothing else does; whoever waits is told why, once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bot.jobs import Cancelled, Record
from bot.webhooks.delivery import read
from demo.world import Delivery
from resolver.domain import JobId
from tests.bot.jobs import Handlers, settled, working
from tests.bot.rooms import Room
from tests.bot.rooms import room as room  # the fixture

AWAY = "I did not start on this: the label was taken away before I began. Put it on again if I should."
CLOSED = "I did not start on this: this was closed before I began. Reopen it and ask me again if I should."


@pytest.fixture
async def handler(room: Room) -> AsyncIterator[Handlers]:
    """A worker, of which every job runs until it is told to end."""
    handler = Handlers()
    async with working(room.queue, handler):
        yield handler


async def told(room: Room, *deliveries: Delivery) -> None:
    for delivery in deliveries:
        await room.desk.take(read(delivery.event, delivery.body))


async def record(room: Room, job: JobId) -> Record:
    found = await room.queue.state(job)
    assert found is not None
    return found


async def test_a_label_taken_away_ends_what_it_asked_for_and_leaves_what_words_asked_for(room: Room) -> None:
    labelled = await room.labelled()
    said = await room.asked("@agent mend it")
    away = await room.world.unlabel(room.issue, "fix-me", by="maintainer")
    await told(room, away, away)
    assert (await record(room, labelled.id)).result == Cancelled(why="unlabelled")
    assert (await record(room, said.id)).state == "queued"
    assert room.answers == [AWAY]


async def test_a_run_whose_label_is_taken_away_is_stopped_and_tells_it_itself(
    room: Room, handler: Handlers
) -> None:
    labelled = await room.labelled()
    await handler.running.wait()
    await told(room, await room.world.unlabel(room.issue, "fix-me", by="maintainer"))
    assert (await settled(room.queue, labelled.id)).result == Cancelled(why="unlabelled")
    assert room.answers == []  # its own comment says so: tests/stories/test_gone.py


async def test_who_may_not_write_takes_back_what_they_asked_for_and_nothing_else(room: Room) -> None:
    room.world.permit(room.repo, "triager", "triage")
    labelled = await room.labelled()
    await told(room, await room.world.unlabel(room.issue, "fix-me", by="triager"))
    assert (await record(room, labelled.id)).state == "queued"
    room.world.permit(room.repo, "triager", "write")
    own = await room.hears(await room.world.label(room.issue, "fix-me", by="triager"))
    room.world.permit(room.repo, "triager", "triage")
    await told(room, await room.world.unlabel(room.issue, "fix-me", by="triager"))
    assert (await record(room, labelled.id)).state == "queued"
    assert (await record(room, own.id)).result == Cancelled(why="unlabelled")


async def test_another_label_and_a_bot_take_nothing_away(room: Room) -> None:
    labelled = await room.labelled()
    await room.world.label(room.issue, "bug", by="maintainer")
    await told(room, await room.world.unlabel(room.issue, "bug", by="maintainer"))
    room.world.permit(room.repo, "sweeper[bot]", "write")
    room.world.user("sweeper[bot]").kind = "Bot"
    await told(room, await room.world.unlabel(room.issue, "fix-me", by="sweeper[bot]"))
    assert (await record(room, labelled.id)).state == "queued"


async def test_a_label_that_comes_after_its_end_begins_nothing_and_a_later_one_does(room: Room) -> None:
    first = await room.world.label(room.issue, "fix-me", by="maintainer")
    away = await room.world.unlabel(room.issue, "fix-me", by="maintainer")
    second = await room.world.label(room.issue, "fix-me", by="maintainer")
    await told(room, away, second, first, away)
    (waiting,) = await room.queue.everywhere()
    assert waiting.job.id == (await room.hears(second)).id
    assert room.answers == []


async def test_what_waits_and_what_runs_ends_with_its_thread(room: Room, handler: Handlers) -> None:
    running = await room.labelled()
    await handler.running.wait()
    message, again = await room.asked("@agent mind the tests"), await room.labelled()
    closing = await room.world.end(room.issue, by="reporter")
    await told(room, closing, closing)
    for one in (running, message, again):
        assert (await settled(room.queue, one.id)).result == Cancelled(why="closed")
    assert room.answers == [CLOSED]  # to the label; the message was one to the run, whose comment says so


async def test_a_closed_pull_request_ends_what_was_asked_for_there(room: Room) -> None:
    room.repo.commit("topic", {"a.py": "x = 2\n"})
    pull = room.world.pull(room.repo, "topic", by="maintainer")
    job = await room.hears(await room.world.comment(pull, "@agent mend it", by="maintainer"))
    elsewhere = await room.labelled()
    await told(room, await room.world.end(pull, by="maintainer", merged=True))
    assert (await record(room, job.id)).result == Cancelled(why="closed")
    assert (await record(room, elsewhere.id)).state == "queued"
    assert pull.comments[-1].body.strip().endswith(CLOSED)


async def test_what_is_asked_for_after_a_thread_was_reopened_is_done(room: Room) -> None:
    before = await room.labelled()
    closing = await room.world.end(room.issue, by="reporter")
    room.issue.closed = None
    after = await room.asked("@agent mend it all the same")
    await told(room, closing)
    assert (await record(room, before.id)).result == Cancelled(why="closed")
    assert (await record(room, after.id)).state == "queued"


async def test_a_thread_in_which_nobody_may_speak_ends_all_the_same(room: Room) -> None:
    waiting = await room.labelled()
    room.world.refuse_next("POST", "/comments", status=403, body={"message": "locked"})
    await told(room, await room.world.end(room.issue, by="reporter"))
    assert (await record(room, waiting.id)).result == Cancelled(why="closed")


async def test_where_nothing_was_asked_for_nothing_is_said(room: Room) -> None:
    handler = Handlers()
    handler.go.set()
    async with working(room.queue, handler):
        done = await settled(room.queue, (await room.labelled()).id)
    await told(
        room,
        await room.world.unlabel(room.issue, "fix-me", by="maintainer"),
        await room.world.end(room.issue, by="maintainer"),
    )
    assert await record(room, done.job.id) == done
    assert room.answers == []


async def test_an_edit_changes_nothing(room: Room) -> None:
    """Somebody who may write it could put words into another person's mouth, and nobody is told of an old comment."""
    delivery = await room.says("just a remark")
    edited = delivery.body.replace(b'"action": "created"', b'"action": "edited"').replace(
        b"just a remark", b"@agent delete it"
    )
    assert b"@agent delete it" in edited and b'"edited"' in edited
    await room.desk.take(read("issue_comment", edited))
    assert await room.queue.everywhere() == ()
    await room.desk.take(read("issue_comment", edited.replace(b'"edited"', b'"created"')))
    assert len(await room.queue.everywhere()) == 1


async def test_many_ends_at_once_make_one_answer(room: Room) -> None:
    await room.labelled()
    closing = await room.world.end(room.issue, by="reporter")
    await asyncio.gather(*(told(room, closing) for _ in range(20)))
    assert room.answers == [CLOSED]
