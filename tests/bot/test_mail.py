"""What is said to a run while it goes on is told to it once, or leads to a run of its own."""

import asyncio

import pytest
from pydantic import SecretStr

from bot.github.forge import GitHubForge
from bot.github.rest import TokenAccess
from bot.jobs import Again, Answered, Cancelled, Result
from bot.mail import Mail
from resolver.domain import Job, Refused
from resolver.events import Entry, Told, Trajectory
from tests.bot.jobs import DONE, Handlers, settled, working
from tests.bot.reconcile.lookouts import access
from tests.bot.rooms import HERE, QUICK, Room
from tests.bot.rooms import room as room  # the fixture
from tests.resolver.seen_runs import started


async def test_a_comment_is_told_to_the_run_that_goes_on_once_and_is_no_job_then(room: Room) -> None:
    handler, mail = Handlers(), Mail(room.queue, room.forge)
    async with working(room.queue, handler):
        run = await room.labelled()
        await handler.running.wait()
        said = [await room.asked(f"@agent {text}") for text in ("first <!-- hidden -->", "second")]
        first, second = await mail.news(run, Trajectory())
        assert (first.by, second.by) == (said[0].id, said[1].id)
        assert first.source == "comment"
        assert "maintainer, who may write to the repository, says in the thread" in first.text
        assert "> first" in first.text and "hidden" not in first.text
        log = Trajectory((Entry(seq=0, at=room.world.now(), event=first),))
        assert await mail.news(run, log) == (second,)
        record = await room.queue.state(said[0].id)
        assert record is not None and record.result == Answered(run=run.id)
        handler.go.set()
        await settled(room.queue, said[1].id)
    assert handler.begun == {run.id: 1, said[1].id: 1}


async def test_work_that_is_asked_for_during_an_explanation_is_done_after_it(room: Room) -> None:
    handler, mail = Handlers(), Mail(room.queue, room.forge)
    async with working(room.queue, handler):
        run = await room.asked("@agent explain how a is read")
        await handler.running.wait()
        work = await room.asked("@agent then mend it")
        assert await room.answered("This is queued") == HERE
        assert await mail.news(run, Trajectory()) == ()
        handler.go.set()
        await settled(room.queue, work.id)
    assert handler.begun == {run.id: 1, work.id: 1}


def at_work(room: Room, run: Job) -> Trajectory:
    """The log of a run that works on the room's issue."""
    return Trajectory((Entry(seq=0, at=room.world.now(), event=started().model_copy(update={"job": run})),))


async def test_a_label_behind_a_mention_is_answered_by_its_run_and_nothing_more_is_said(room: Room) -> None:
    handler, mail = Handlers(), Mail(room.queue, room.forge)
    async with working(room.queue, handler):
        run = await room.asked("@agent please mend this, the sign is wrong")
        await handler.running.wait()
        label = await room.labelled()
        assert await room.seen(room.issue) == ["eyes"]
        room.waiting.listened_to.set()
        await asyncio.sleep(0.5)  # the grace is over: it does not say that it waits
        assert await mail.news(run, at_work(room, run)) == ()
        record = await room.queue.state(label.id)
        assert record is not None and record.result == Answered(run=run.id)
        handler.go.set()
        await settled(room.queue, run.id)
    assert handler.begun == {run.id: 1}
    assert room.answers == []


@pytest.mark.parametrize("label", [True, False], ids=["label", "mention"])
async def test_what_is_asked_for_behind_a_stop_is_not_read_by_the_run_that_is_ending(
    room: Room, *, label: bool
) -> None:
    mail, begun, ended = Mail(room.queue, room.forge), asyncio.Queue[Job](), asyncio.Event()

    async def handler(job: Job, tries: int) -> Result | Again:
        await begun.put(job)
        try:
            await asyncio.Event().wait()
        finally:
            await ended.wait()  # it puts its work away
        return DONE

    async with working(room.queue, handler):
        run = await room.asked("@agent mend it")
        assert await begun.get() == run
        await room.asked("@agent stop")
        again = await (room.labelled() if label else room.asked("@agent mend it otherwise"))
        assert await mail.news(run, at_work(room, run)) == ()
        ended.set()
        async with asyncio.timeout(20):
            assert (await begun.get()).id == again.id


@pytest.mark.parametrize("said", ["@agent plan this", "@agent explain this"])
async def test_a_label_behind_what_changes_nothing_is_begun_when_its_turn_comes(
    room: Room, said: str
) -> None:
    handler, mail = Handlers(), Mail(room.queue, room.forge)
    async with working(room.queue, handler):
        run = await room.asked(said)
        await handler.running.wait()
        label = await room.labelled()
        assert await room.answered("This is queued") == HERE
        assert await mail.news(run, at_work(room, run)) == ()
        handler.go.set()
        await settled(room.queue, label.id)
    assert handler.begun == {run.id: 1, label.id: 1}


async def test_a_strangers_label_behind_a_mention_is_refused_and_a_stop_ends_a_writers_in_silence(
    room: Room,
) -> None:
    room.world.permit(room.repo, "triager", "triage")
    handler, mail = Handlers(), Mail(room.queue, room.forge)
    async with working(room.queue, handler):
        run = await room.asked("@agent mend it")
        await handler.running.wait()
        await room.hears(await room.world.label(room.issue, "fix-me", by="triager"))
        await mail.news(run, at_work(room, run))
        (refusal,) = room.answers
        assert refusal.startswith("I did not start on this: triager may not write to this repository")
        label = await room.labelled()
        await room.asked("@agent stop")
        assert (await settled(room.queue, label.id)).result == Cancelled()
    assert room.answers == [refusal]


async def said_by_a_writer_of_before(room: Room, words: str, *, by: str) -> Job:
    """What waits in the queue, although its author may not write any more."""
    room.world.permit(room.repo, by, "write")
    job = await room.asked(words, by=by)
    room.world.permit(room.repo, by, "read")
    return job


async def test_a_refusal_that_cannot_be_said_keeps_nobody_elses_words_from_the_run(room: Room) -> None:
    run = await room.labelled()
    stranger = await said_by_a_writer_of_before(room, "@agent spam", by="stranger")
    await room.asked("@agent mind the tests")
    room.world.lock(room.issue)
    app = room.world.app()  # which a lock keeps out
    room.world.install(app, room.repo)
    world = room.world
    async with GitHubForge(
        access(app), api_url=world.api_url, graphql_url=world.graphql_url, pace=QUICK
    ) as forge:
        (told,) = await Mail(room.queue, forge).news(run, Trajectory())
    assert "> mind the tests" in told.text
    record = await room.queue.state(stranger.id)
    assert record is not None and isinstance(record.result, Refused)
    assert room.answers == []


async def test_what_the_operators_program_asks_for_is_told_to_the_run_that_goes_on(room: Room) -> None:
    run = await room.labelled()
    asked = run.model_copy(
        update={"id": "nightly-7", "requester": None, "command": "mind zero", "label": None, "pinned": None}
    )
    assert await room.queue.put(asked)
    (told,) = await Mail(room.queue, room.forge).news(run, Trajectory())
    assert told.by == "nightly-7" and "> mind zero" in told.text


async def test_what_is_no_writers_comment_is_not_told_to_a_run(room: Room) -> None:
    handler, mail = Handlers(), Mail(room.queue, room.forge)
    async with working(room.queue, handler):
        run = await room.labelled()
        await handler.running.wait()
        again = await room.asked("@agent retry")
        stranger = await said_by_a_writer_of_before(room, "@agent rm -rf /", by="stranger")
        assert await mail.news(run, Trajectory()) == ()
        record = await room.queue.state(stranger.id)
        assert record is not None and isinstance(record.result, Refused)
        assert [answer.split()[6] for answer in room.answers] == ["stranger"]
        record = await room.queue.state(again.id)
        assert record is not None and record.state == "queued"


async def test_a_forge_that_is_away_keeps_no_agent_waiting(room: Room) -> None:
    told = await room.labelled()
    await room.asked("@agent mind this")
    async with GitHubForge(TokenAccess(SecretStr("x")), api_url="http://127.0.0.1:1", pace=QUICK) as away:
        assert await Mail(room.queue, away).news(told, Trajectory()) == ()
    (message,) = await Mail(room.queue, room.forge).news(told, Trajectory())
    assert isinstance(message, Told)
