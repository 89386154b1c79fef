"""What people ask for in comments is done once, by whoever may ask, in whatever order it arrives."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.desk import LATE, is_under_way
from bot.errors import QueueDown
from bot.jobs import Answered, Cancelled, Result, Unread
from bot.mail import Mail
from bot.webhooks.delivery import CommentMade, read
from resolver.domain import Job, JobId, Refused, User
from resolver.errors import ForgeError
from resolver.events import Trajectory
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import Handlers, settled, working
from tests.bot.rooms import HERE, Room
from tests.bot.rooms import room as room  # the fixture


async def test_what_a_writer_asks_for_is_looked_at_before_it_is_begun(room: Room) -> None:
    await room.labelled()
    assert await room.seen(room.issue) == ["eyes"]
    await room.asked("@agent mind the tests")
    assert await room.seen(room.issue.comments[-1]) == ["eyes"]
    assert room.answers == []


async def test_an_inline_comment_is_looked_at_too(room: Room) -> None:
    room.repo.commit("topic", {"a.py": "x = 2\n"})
    pull = room.world.pull(room.repo, "topic", by="maintainer")
    review = room.world.reviewed(pull, ("a.py", 1, "@agent why 2?"), by="maintainer")
    await room.hears((await room.world.tell_review(pull, review))[-1])
    assert await room.seen(pull.review_threads[0].comments[0]) == ["eyes"]


async def test_what_a_stranger_asks_for_is_not_looked_at(room: Room) -> None:
    await room.asked("@agent do it", by="stranger")
    await asyncio.sleep(0.5)
    assert room.issue.comments[-1].reactions == []


async def test_what_a_stranger_asks_for_is_refused_at_once_and_takes_no_place_in_the_queue(
    room: Room,
) -> None:
    asking = await room.says("@agent do it", by="stranger")
    for _ in range(2):
        job = await room.hears(asking)
    (answer,) = room.answers
    assert answer.startswith("I did not start on this: stranger may not write to this repository")
    assert await room.queue.everywhere() == ()
    record = await room.queue.state(job.id)
    assert record is not None and isinstance(record.result, Refused)


async def test_a_right_that_goes_away_ends_nothing_that_waits_when_its_delivery_comes_again(
    room: Room,
) -> None:
    asking = await room.says("@agent do it", by="member")
    room.world.permit(room.repo, "member", "write")
    job = await room.hears(asking)
    room.world.permit(room.repo, "member", "read")
    await room.hears(asking)
    record = await room.queue.state(job.id)
    assert record is not None and record.state == "queued"  # it is asked again when its turn comes


async def test_what_cannot_be_asked_about_its_author_waits_for_its_turn(room: Room) -> None:
    room.world.refuse_next("GET", "/permission", status=400, times=50)
    job = await room.asked("@agent do it")
    record = await room.queue.state(job.id)
    assert record is not None and record.state == "queued"


async def test_help_is_answered_once_and_is_no_job(room: Room) -> None:
    asking = await room.says("@agent help", by="stranger")
    for _ in range(3):
        job = await room.hears(asking)
    (answer,) = room.answers
    assert answer.startswith("Here is what I understand, from people who may write to this repository:")
    assert "| `@agent stop` | stop, and keep what was done so far on a branch |" in answer
    record = await room.queue.state(job.id)
    assert record is not None and record.result == Answered()


async def test_a_stop_cancels_what_runs_and_what_waits_and_is_carried_out_once(room: Room) -> None:
    handler = Handlers()
    async with working(room.queue, handler):
        running = await room.labelled()
        await handler.running.wait()
        waiting = await room.asked("@agent retry")
        stopping = await room.says("@agent stop")
        await room.hears(stopping)
        for job in (running, waiting):
            assert (await settled(room.queue, job.id)).result == Cancelled()
        assert await room.seen(room.issue.comments[1]) == ["eyes"]
        later = await room.asked("@agent retry")
        await room.hears(stopping)
        assert room.answers == ["I did not start on this: I was stopped before I began."]  # what waited
        record = await room.queue.state(later.id)
        assert record is not None and record.state != "ended"


async def test_a_stop_that_overtakes_the_label_keeps_its_job_from_beginning(room: Room) -> None:
    label = await room.world.label(room.issue, "fix-me", by="maintainer")
    await room.asked("@agent stop!")
    job = await room.hears(label)
    assert await room.queue.state(job.id) is None
    assert room.answers == ["There is nothing to stop: I am not at work here."]
    later = await room.asked("@agent retry, please")
    assert await room.queue.state(later.id) is not None


async def test_a_stop_before_the_job_has_begun_says_that_it_is_off_the_list(room: Room) -> None:
    job = await room.labelled()
    await room.asked("@agent stop")
    record = await room.queue.state(job.id)
    assert record is not None and record.result == Cancelled()
    assert room.answers == ["I did not start on this: I was stopped before I began."]
    assert await room.seen(room.issue.comments[0]) == ["eyes"]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside one that is stopped"])
async def test_a_stop_says_that_what_another_version_has_queued_goes_on(room: Room, beside: bool) -> None:
    job = await room.labelled()
    assert job.requester is not None
    unread = Unread(id=JobId("tomorrow"), repo=job.repo, number=job.number, requester=job.requester)
    room.queue.left.append(unread)
    if not beside:
        await room.queue.cancel(job.id)
    stopping = await room.asked("@agent stop")
    assert room.answers[:-1] == (["I did not start on this: I was stopped before I began."] if beside else [])
    assert room.answers[-1] == (
        "I cannot stop all that was asked for here: another version of me has some of it, and this one cannot read "
        "that. Write "
        "`@agent stop` again once all my workers are of one version: whoever runs me has to bring them there."
    )
    known = await room.queue.state(stopping.id)
    assert known is not None and known.result == Answered()


def lose_the_next_edit(room: Room) -> None:
    room.world.refuse_next("PATCH", f"/issues/comments/{room.issue.comments[-1].id}", status=400)


async def test_a_stop_that_is_read_again_because_its_word_was_lost_says_what_it_stopped(room: Room) -> None:
    waiting = await room.labelled()
    await room.answered("This is queued")
    lose_the_next_edit(room)
    stopping = await room.says("@agent stop")
    with pytest.raises(ForgeError):
        await room.hears(stopping)
    await room.hears(stopping)
    record = await room.queue.state(waiting.id)
    assert record is not None and record.result == Cancelled()
    assert room.answers == ["I did not start on this: I was stopped before I began."]


async def test_a_stop_that_is_read_again_after_it_has_stopped_everything_does_not_deny_it(room: Room) -> None:
    class Dying(InlineQueue):
        """Gone in the moment in which a stop has been carried out."""

        alive = True

        async def settle(self, job: Job, result: Result) -> None:
            self.alive = not self.alive
            if not self.alive:
                raise QueueDown("killed")
            await super().settle(job, result)

    room = replace(room, queue=Dying())
    waiting = await room.labelled()
    await room.answered("This is queued")
    stopping = await room.says("@agent stop")
    with pytest.raises(QueueDown):
        await room.hears(stopping)
    assert (await settled(room.queue, waiting.id)).result == Cancelled()
    stop = await room.hears(stopping)
    assert (await settled(room.queue, stop.id)).result == Answered()
    assert room.answers == ["I did not start on this: I was stopped before I began."]
    await room.desk.close()


@pytest.mark.parametrize("by", ["maintainer", "stranger"])
async def test_who_asked_for_what_nobody_here_can_read_hears_once_that_it_waits(room: Room, by: str) -> None:
    asking = await room.says("@agent do it", by="maintainer")
    job = await room.hears(asking)
    await room.answered("This is queued")
    asker = room.world.user(by)
    unread = Unread(id=job.id, repo=job.repo, number=job.number, requester=User(id=asker.id, login=by))
    await room.waiting.tell_left(unread)
    said = room.world.writes
    await room.waiting.tell_left(unread)
    assert room.world.writes == said
    (answer,) = room.answers
    told = (
        "This is queued, by another version of me than the worker that looked at it, which cannot read it. I begin "
        "with it by myself once all my workers are of one version: whoever runs me has to bring them there. If that "
        "version does not come back, ask again: put the label on once more, or write a new comment."
    )
    assert (told in answer) is (by == "maintainer")
    assert is_under_way(answer)  # it is found again if Redis is wiped


async def test_what_runs_is_stopped_at_once_although_what_waits_cannot_be_told(room: Room) -> None:
    handler = Handlers()
    async with working(room.queue, handler):
        running = await room.labelled()
        await handler.running.wait()
        await room.asked("@agent plan the rest")
        await room.answered("This is queued")
        lose_the_next_edit(room)
        with pytest.raises(ForgeError):
            await room.asked("@agent stop")
        assert (await settled(room.queue, running.id)).result == Cancelled()


async def test_a_stop_that_was_asked_for_before_stops_nothing_that_came_after_it(room: Room) -> None:
    stop = await room.says("@agent stop")
    job = await room.labelled()
    await room.hears(stop)
    record = await room.queue.state(job.id)
    assert record is not None and record.state == "queued"


async def test_a_stranger_stops_nothing_and_hears_why_once(room: Room) -> None:
    job = await room.labelled()
    stopping = await room.says("@agent stop", by="stranger")
    for _ in range(2):
        await room.hears(stopping)
    record = await room.queue.state(job.id)
    assert record is not None and record.state == "queued"
    (answer,) = room.answers
    assert answer.startswith("I did not start on this: stranger may not write to this repository")


async def test_who_cannot_see_a_private_repository_is_not_answered_there(room: Room) -> None:
    room.repo.private = True
    job = await room.labelled()
    for words in ("@agent stop", "@agent help", "@agent sotp"):
        await room.asked(words, by="stranger")
    record = await room.queue.state(job.id)
    assert record is not None and record.state == "queued"
    await room.asked("@agent mend it", by="stranger")
    assert await Mail(room.queue, room.forge).news(job, Trajectory()) == ()
    await room.answered("This is queued")  # to the maintainer, who put the label
    assert len(room.answers) == 1
    room.world.permit(room.repo, "member", "read")
    await room.asked("@agent stop", by="member")
    (_, answer) = room.answers
    assert answer.startswith("I did not start on this: member may not write to this repository")


async def test_a_stop_that_is_found_again_is_answered_unless_it_is_old(room: Room) -> None:
    told = read("issue_comment", (await room.says("@agent stop")).body)
    assert isinstance(told, CommentMade)
    old = told.model_copy(update={"comment_id": 1, "at": (datetime.now(UTC) - 2 * LATE).isoformat()})
    await room.desk.take(old, {})
    assert room.answers == []
    await room.desk.take(told, {})
    assert room.answers == ["There is nothing to stop: I am not at work here."]


async def test_what_waits_behind_a_run_says_so_in_the_comment_that_its_own_run_then_has(room: Room) -> None:
    handler = Handlers()
    async with working(room.queue, handler):
        await room.labelled()
        await handler.running.wait()
        waits = await room.asked("@agent plan the rest")
        assert await room.answered("This is queued") == HERE
        assert is_under_way(HERE), "found again where Redis was wiped, it is asked for still"
        await room.forge.say(waits.repo, waits.number, waits.id, "begun")
        assert room.answers == ["begun"]


async def test_what_waits_for_a_worker_says_how_much_is_before_it(room: Room) -> None:
    for title in ("one", "two"):
        other = room.world.issue(room.repo, title=title, body="", by="reporter")
        await room.hears(await room.world.label(other, "fix-me", by="maintainer"))
    await room.labelled()
    said = await room.answered("This is queued")
    assert said.startswith("This is queued, 2 ahead: I am busy with other work.")


async def test_words_to_a_run_are_not_said_to_wait(room: Room) -> None:
    handler = Handlers()
    async with working(room.queue, handler):
        await room.labelled()
        await handler.running.wait()
        await room.asked("@agent mind the tests")
        await room.asked("@agent explain")
        await room.answered("This is queued")
        await asyncio.sleep(0.5)
        assert len(room.answers) == 1


async def test_a_slip_is_asked_back_at_once_although_a_run_goes_on(room: Room) -> None:
    handler = Handlers()
    async with working(room.queue, handler):
        run = await room.labelled()
        await handler.running.wait()
        slip = await room.says("@agent sotp")
        for _ in range(2):
            job = await room.hears(slip)
        await room.asked("@agent retyr", by="stranger")
        assert (await room.queue.state(run.id)).state == "running"  # type: ignore[union-attr]
    first, second = room.answers
    assert first == (
        "I did not start on this: `sotp` is no command of mine. Did you mean `stop`? "
        "If it is something to be done, say it in a few words more."
    )
    assert second.startswith("I did not start on this: stranger may not write to this repository")
    record = await room.queue.state(job.id)
    assert record is not None and isinstance(record.result, Refused)
