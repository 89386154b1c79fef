"""What people ask for in comments is done once, by whoever may ask, in whatever order it arrives."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from bot.desk import Desk, is_under_way
from bot.github.forge import GitHubForge
from bot.github.rest import Pace, TokenAccess
from bot.jobs import Again, Answered, Cancelled, Result
from bot.mail import Mail
from bot.queued import HoldsHere, Waiting
from bot.webhooks.delivery import read
from bot.webhooks.triggers import Triggers, wish_for
from demo.world import Comment, Delivery, Issue, Repository, World
from resolver.domain import Job, Refused
from resolver.events import Entry, Told, Trajectory
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, Handlers, settled, working
from tests.resolver.seen_runs import started

QUICK = Pace(between_writes=0, first_pause=0.01, longest_wait=2, timeout=5)


@dataclass
class Room:
    """One issue, and a desk that hears of it."""

    world: World
    repo: Repository
    issue: Issue
    forge: GitHubForge
    queue: InlineQueue = field(default_factory=InlineQueue)

    def __post_init__(self) -> None:
        waiting = Waiting(self.queue, HoldsHere(), self.forge, "@agent", grace=0.2)
        self.desk = Desk(self.queue, Triggers(), self.forge, waiting=waiting)

    async def answered(self, begins: str) -> str:
        """The first answer that begins so, once there is one."""
        async with asyncio.timeout(20):
            while True:
                if found := [answer for answer in self.answers if answer.startswith(begins)]:
                    return found[0]
                await asyncio.sleep(0.02)

    async def says(self, body: str, by: str = "maintainer") -> Delivery:
        return await self.world.comment(self.issue, body, by=by)

    async def hears(self, delivery: Delivery) -> Job:
        """The desk is told; the job, or what has a job's name, that it asks for."""
        told = read(delivery.event, delivery.body)
        await self.desk.take(told)
        wish = wish_for(told, self.desk.rules)
        assert wish is not None
        return wish.job

    async def asked(self, body: str, by: str = "maintainer") -> Job:
        return await self.hears(await self.says(body, by))

    async def labelled(self) -> Job:
        return await self.hears(await self.world.label(self.issue, "fix-me", by="maintainer"))

    @property
    def answers(self) -> list[str]:
        said = self.repo.comments(self.issue.number)
        return [
            one.body.partition("\n")[2].strip() for one in said if one.body.startswith("<!-- patchwright:")
        ]

    async def seen(self, thing: Issue | Comment) -> list[str]:
        """The reactions to it, once there is one."""
        async with asyncio.timeout(10):
            while not thing.reactions:
                await asyncio.sleep(0.02)
        return [one.content for one in thing.reactions]


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with World() as world:
        repo = world.repository("acme/sample", {"a.py": "x = 1\n"}, permissions={"maintainer": "write"})
        issue = world.issue(repo, title="a is wrong", body="It is.", by="reporter")
        world.hook("http://127.0.0.1:1/webhook", "s3cret")
        access = TokenAccess(SecretStr(world.token("maintainer")))
        async with GitHubForge(
            access,
            api_url=world.api_url,
            graphql_url=world.graphql_url,
            server_url=world.server_url,
            pace=QUICK,
        ) as forge:
            room = Room(world, repo, issue, forge)
            yield room
            await room.desk.close()


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
    assert room.answers == []
    room.world.permit(room.repo, "member", "read")
    await room.asked("@agent stop", by="member")
    (answer,) = room.answers
    assert answer.startswith("I did not start on this: member may not write to this repository")


async def test_an_old_stop_that_is_found_again_says_nothing(room: Room) -> None:
    told = read("issue_comment", (await room.says("@agent stop")).body)
    await room.desk.take(told, {})
    assert room.answers == []


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


async def test_what_is_no_writers_comment_is_not_told_to_a_run(room: Room) -> None:
    handler, mail = Handlers(), Mail(room.queue, room.forge)
    async with working(room.queue, handler):
        run = await room.labelled()
        await handler.running.wait()
        again = await room.asked("@agent retry")
        stranger = await room.asked("@agent rm -rf /", by="stranger")
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


HERE = (
    "This is queued, 1 ahead: I am at work on something else here. I begin with it by myself, "
    "and this comment will say how it goes. To take it off my list, comment `@agent stop`."
)


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


async def test_words_to_a_run_and_a_strangers_are_not_said_to_wait(room: Room) -> None:
    handler = Handlers()
    async with working(room.queue, handler):
        await room.labelled()
        await handler.running.wait()
        await room.asked("@agent mind the tests")
        await room.asked("@agent plan", by="stranger")
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
