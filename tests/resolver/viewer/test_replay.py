"""Prompts of a run are rebuilt from its log alone."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.agent.messages import Conversation, build_messages
from patchwright.resolver.events import Entry, Event, Message, ModelReply, SystemPrompt, Trajectory
from patchwright.resolver.llm.model import SystemMessage, UserMessage
from patchwright.resolver.llm.prompt_fingerprint import PromptFingerprinter, fingerprint
from patchwright.resolver.run_log import FileRunLog
from patchwright.resolver.viewer.replay import messages_at, replay_run
from patchwright.runtime.actions import RunShell, ViewFile
from patchwright.runtime.observations import ImageData
from tests.resolver.agent.test_condensed_logs import condensed_logs
from tests.resolver.agent.test_messages import trajectory as logged
from tests.resolver.agent_runs import FINISH, FakeSandbox, create_file, make_agent
from tests.resolver.scripted_model import ScriptedModel


async def ran(path: Path, planning_interval: int = 0) -> tuple[Trajectory, ScriptedModel]:
    log = FileRunLog(path / "events.jsonl")
    steps = [RunShell(command=f"echo {n}") for n in range(4)]
    model = ScriptedModel([*steps, [ViewFile(path="a"), create_file("b.py")], FINISH])
    worker = make_agent(model, FakeSandbox())
    worker.planning_interval = planning_interval
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    await worker.run(log)
    log.close()
    return FileRunLog(path / "events.jsonl").trajectory, model


async def test_each_prompt_is_rebuilt_byte_for_byte_from_the_log_on_disk(tmp_path: Path) -> None:
    trajectory, model = await ran(tmp_path, planning_interval=2)
    steps = list(replay_run(trajectory))
    assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6]
    assert all(step.sent_fingerprint == step.rebuilt_fingerprint and step.sent_fingerprint for step in steps)
    places = [at for at, event in enumerate(trajectory) if isinstance(event, ModelReply)]
    for place, request in zip(places, model.requests, strict=True):
        assert messages_at(trajectory, place) == tuple(request)


async def test_every_prompt_starts_with_the_previous_one(tmp_path: Path) -> None:
    trajectory, _ = await ran(tmp_path)
    steps = list(replay_run(trajectory))
    assert [step.cached_messages for step in steps[1:]] == [step.messages for step in steps[:-1]]


async def test_a_changed_log_has_different_fingerprints(tmp_path: Path) -> None:
    trajectory, _ = await ran(tmp_path)
    entries = list(trajectory.entries)
    at = next(n for n, entry in enumerate(entries) if isinstance(entry.event, Message))
    entries[at] = Entry(
        seq=at, timestamp=entries[at].timestamp, event=Message(text="Issue 8", source="initial_prompt")
    )
    assert not any(step.is_identical for step in replay_run(Trajectory(tuple(entries))))


async def test_a_log_without_fingerprints_counts_as_identical(tmp_path: Path) -> None:
    trajectory, _ = await ran(tmp_path)
    entries = [
        entry.model_copy(update={"event": entry.event.model_copy(update={"prompt_fingerprint": ""})})
        if isinstance(entry.event, ModelReply)
        else entry
        for entry in trajectory.entries
    ]
    assert all(
        step.is_identical and not step.sent_fingerprint for step in replay_run(Trajectory(tuple(entries)))
    )


def test_a_fingerprint_depends_on_boundaries_order_tools_and_images() -> None:
    def user(text: str, data: bytes | None = None) -> UserMessage:
        pictures = () if data is None else (ImageData(media_type="image/png", data=data),)
        return UserMessage(text=text, images=pictures)

    prompts = [
        fingerprint([user("ab"), user("c")], ()),
        fingerprint([user("a"), user("bc")], ()),
        fingerprint([user("c"), user("ab")], ()),
        fingerprint([SystemMessage(text="ab"), user("c")], ()),
        fingerprint([user("ab"), user("c")], ({"name": "x"},)),
        fingerprint([user("ab", b"1"), user("c")], ()),
        fingerprint([user("ab", b"2"), user("c")], ()),
    ]
    assert len(set(prompts)) == len(prompts)
    assert fingerprint([user("ab"), user("c")], ()) == prompts[0]


def as_sent_then(events: tuple[Event, ...]) -> Trajectory:
    """Returns the log of a run in which each prompt was built from the events before it."""
    kept: list[Event] = []
    for event in events:
        before = logged(*kept)
        if isinstance(event, ModelReply):
            tools = next((each.tools for each in before if isinstance(each, SystemPrompt)), ())
            event = event.model_copy(
                update={"prompt_fingerprint": fingerprint(build_messages(before), tools)}
            )
        kept.append(event)
    return logged(*kept)


@pytest.mark.slow
@settings(deadline=None)
@given(condensed_logs())
def test_any_log_read_from_disk_replays_to_the_same_bytes(events: tuple[Event, ...]) -> None:
    run = as_sent_then(events)
    again = Trajectory(tuple(Entry.model_validate_json(entry.model_dump_json()) for entry in run.entries))
    steps = list(replay_run(again))
    assert [step.sent_fingerprint for step in steps] == [event.prompt_fingerprint for event in run.replies()]
    assert all(step.sent_fingerprint == step.rebuilt_fingerprint for step in steps)
    assert [step.rebuilt_fingerprint for step in replay_run(run)] == [
        step.rebuilt_fingerprint for step in steps
    ]


@pytest.mark.slow
@settings(deadline=None)
@given(condensed_logs(), condensed_logs())
def test_a_conversation_that_grew_is_the_one_that_its_log_gives(
    events: tuple[Event, ...], others: tuple[Event, ...]
) -> None:
    """Step by step, with other runs in between."""
    conversation, fingerprints, run = Conversation(), PromptFingerprinter(()), Trajectory()
    for entry in logged(*events).entries:
        run = run.with_entry(entry)
        whole = Trajectory(run.entries)
        assert (run.replies(), run.usage(), run.last_checkpoint()) == (
            tuple(event for event in whole if isinstance(event, ModelReply)),
            whole.usage(),
            whole.last_checkpoint(),
        )
        for request in (run, logged(*others), run):
            sent = conversation.build_messages(request)
            assert sent == build_messages(request)
            assert fingerprints.fingerprint(sent) == fingerprint(sent, ())
