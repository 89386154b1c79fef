"""Runs rebuilt from their logs alone."""

from pathlib import Path

from hypothesis import given, settings

from resolver.agent import begin
from resolver.events import Decided, Entry, Event, Prompted, Told, Trajectory
from resolver.llm.model import FromUser, System
from resolver.log import FileLog
from resolver.render import Conversation, messages
from resolver.replay import Fingerprints, fingerprint, messages_at, replay
from runtime.actions import RunShell, ViewFile
from runtime.observations import Picture
from tests.resolver.agents import FINISH, Box, agent, create
from tests.resolver.scripted import Scripted
from tests.resolver.test_condenser import condensed_logs
from tests.resolver.test_render import trajectory as logged


async def ran(path: Path, plan_every: int = 0) -> tuple[Trajectory, Scripted]:
    log = FileLog(path / "events.jsonl")
    steps = [RunShell(command=f"echo {n}") for n in range(4)]
    model = Scripted([*steps, [ViewFile(path="a"), create("b.py")], FINISH])
    worker = agent(model, Box())
    worker.plan_every = plan_every
    await begin(log, "You mend.", "Issue 7", worker.tools)
    await worker.run(log)
    log.close()
    return FileLog(path / "events.jsonl").trajectory, model


async def test_each_prompt_is_rebuilt_byte_for_byte_from_the_log_on_disk(tmp_path: Path) -> None:
    trajectory, model = await ran(tmp_path, plan_every=2)
    steps = list(replay(trajectory))
    assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6]
    assert all(step.sent == step.rebuilt and step.sent for step in steps)
    places = [at for at, event in enumerate(trajectory) if isinstance(event, Decided)]
    for place, asked in zip(places, model.asked, strict=True):
        assert messages_at(trajectory, place) == tuple(asked)


async def test_what_was_sent_before_stays_at_the_beginning_of_every_later_prompt(tmp_path: Path) -> None:
    trajectory, _ = await ran(tmp_path)
    steps = list(replay(trajectory))
    assert [step.kept for step in steps[1:]] == [step.messages for step in steps[:-1]]


async def test_a_log_that_was_changed_is_told_from_what_was_sent(tmp_path: Path) -> None:
    trajectory, _ = await ran(tmp_path)
    entries = list(trajectory.entries)
    at = next(n for n, entry in enumerate(entries) if isinstance(entry.event, Told))
    entries[at] = Entry(seq=at, at=entries[at].at, event=Told(text="Issue 8", source="brief"))
    assert not any(step.same for step in replay(Trajectory(tuple(entries))))


async def test_a_log_of_a_version_that_recorded_nothing_differs_in_nothing(tmp_path: Path) -> None:
    trajectory, _ = await ran(tmp_path)
    entries = [
        entry.model_copy(update={"event": entry.event.model_copy(update={"prompt": ""})})
        if isinstance(entry.event, Decided)
        else entry
        for entry in trajectory.entries
    ]
    assert all(step.same and not step.sent for step in replay(Trajectory(tuple(entries))))


def test_a_fingerprint_tells_borders_order_tools_and_pictures() -> None:
    def user(text: str, data: bytes | None = None) -> FromUser:
        pictures = () if data is None else (Picture(media="image/png", data=data),)
        return FromUser(text=text, pictures=pictures)

    prompts = [
        fingerprint([user("ab"), user("c")], ()),
        fingerprint([user("a"), user("bc")], ()),
        fingerprint([user("c"), user("ab")], ()),
        fingerprint([System(text="ab"), user("c")], ()),
        fingerprint([user("ab"), user("c")], ({"name": "x"},)),
        fingerprint([user("ab", b"1"), user("c")], ()),
        fingerprint([user("ab", b"2"), user("c")], ()),
    ]
    assert len(set(prompts)) == len(prompts)
    assert fingerprint([user("ab"), user("c")], ()) == prompts[0]


def as_sent_then(events: tuple[Event, ...]) -> Trajectory:
    """The log of a run in which the model was asked with what each reply's own past gave."""
    kept: list[Event] = []
    for event in events:
        before = logged(*kept)
        if isinstance(event, Decided):
            tools = next((each.tools for each in before if isinstance(each, Prompted)), ())
            event = event.model_copy(update={"prompt": fingerprint(messages(before), tools)})
        kept.append(event)
    return logged(*kept)


@settings(deadline=None)
@given(condensed_logs())
def test_any_log_that_was_read_back_replays_to_the_same_bytes(events: tuple[Event, ...]) -> None:
    run = as_sent_then(events)
    again = Trajectory(tuple(Entry.model_validate_json(entry.model_dump_json()) for entry in run.entries))
    steps = list(replay(again))
    assert [step.sent for step in steps] == [event.prompt for event in run.decisions()]
    assert all(step.sent == step.rebuilt for step in steps)
    assert [step.rebuilt for step in replay(run)] == [step.rebuilt for step in steps]


@settings(deadline=None)
@given(condensed_logs(), condensed_logs())
def test_a_conversation_that_grew_is_the_one_that_its_log_gives(
    events: tuple[Event, ...], others: tuple[Event, ...]
) -> None:
    """Step by step, and when it is asked for another run in between."""
    conversation, fingerprints, run = Conversation(), Fingerprints(()), Trajectory()
    for entry in logged(*events).entries:
        run = run.followed_by(entry)
        whole = Trajectory(run.entries)
        assert (run.decisions(), run.spent(), run.checkpoint()) == (
            tuple(event for event in whole if isinstance(event, Decided)),
            whole.spent(),
            whole.checkpoint(),
        )
        for asked in (run, logged(*others), run):
            sent = conversation.messages(asked)
            assert sent == messages(asked)
            assert fingerprints.of(sent) == fingerprint(sent, ())
