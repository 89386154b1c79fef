"""Any log, condensed in any way, renders to messages that a model accepts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchwright.resolver.agent.condenser import Condenser, extend_trajectory
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.events import Entry, Event, ModelReply, Trajectory
from patchwright.resolver.llm.model import AssistantMessage
from patchwright.resolver.run_events import Condensation
from tests.resolver.agent.test_condenser import CONDENSERS, START, done
from tests.resolver.agent.test_messages import assert_paired, logs, trajectory

pytestmark = pytest.mark.slow


def arbitrary() -> st.SearchStrategy[Condensation]:
    """Any condensation, including those that no condenser writes."""
    ids = st.lists(st.sampled_from(["c0", "c1", "c2", "c5", "orphan"]), max_size=3).map(tuple)
    return st.builds(
        Condensation,
        masked_calls=ids,
        forgotten_replies=st.integers(0, 6),
        summary=st.sampled_from(["", "s"]),
    )


@st.composite
def condensed_logs(draw: st.DrawFn) -> tuple[Event, ...]:
    events = list(draw(logs()))
    for condensed in draw(st.lists(arbitrary(), max_size=3)):
        events.insert(draw(st.integers(0, len(events))), condensed)
    return tuple(events)


@settings(deadline=None)
@given(condensed_logs())
def test_any_condensed_log_renders_to_paired_messages(events: tuple[Event, ...]) -> None:
    assert_paired(build_messages(trajectory(*events)))


@settings(deadline=None)
@given(condensed_logs())
def test_a_reply_that_is_kept_keeps_its_signed_reasoning(events: tuple[Event, ...]) -> None:
    run = trajectory(*events)
    thoughts = {reply.calls[0].id: reply.reasoning for reply in run.replies() if reply.calls}
    for message in build_messages(run):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            assert message.reasoning == thoughts[message.tool_calls[0].id]


@settings(deadline=None)
@given(condensed_logs(), logs())
def test_between_two_condensations_messages_are_only_added(
    events: tuple[Event, ...], more: tuple[Event, ...]
) -> None:
    before = build_messages(trajectory(*events))
    assert build_messages(trajectory(*events, *more))[: len(before)] == before


@settings(deadline=None)
@given(logs(), CONDENSERS, logs(), CONDENSERS)
def test_every_condensation_keeps_calls_paired_and_the_initial_prompt(
    events: tuple[Event, ...], first: Condenser, more: tuple[Event, ...], second: Condenser
) -> None:
    start = trajectory(*START, *events)
    once = extend_trajectory(start, done(first, start))
    grown = extend_trajectory(once, more)
    twice = extend_trajectory(grown, done(second, grown))
    for run in (once, grown, twice):
        assert_paired(build_messages(run))
        assert build_messages(run)[:2] == build_messages(trajectory(*START))
        assert len([e for e in run if isinstance(e, ModelReply)]) >= len(start.replies())


@settings(deadline=None)
@given(condensed_logs())
def test_a_condensed_log_read_from_disk_renders_to_the_same_messages(events: tuple[Event, ...]) -> None:
    run = trajectory(*events)
    again = Trajectory(tuple(Entry.model_validate_json(entry.model_dump_json()) for entry in run.entries))
    assert build_messages(again) == build_messages(run)
