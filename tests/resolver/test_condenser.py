"""A conversation that grows too long is sent shorter: decided from the log, kept in it, and never torn."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolver.actions import Plan, PlanItem, Think
from resolver.condenser import (
    PAUSE,
    Condenser,
    InTurn,
    Listing,
    Masking,
    Room,
    Shorter,
    Summarizing,
    extended,
    room_in,
    size,
)
from resolver.errors import ContextOverflow, ModelError
from resolver.events import (
    Condensed,
    Consulted,
    Decided,
    Entry,
    Event,
    Observed,
    Prompted,
    Told,
    Trajectory,
    Usage,
)
from resolver.llm import tokens
from resolver.llm.model import FromModel, FromTool, FromUser, Message, Reply
from resolver.render import messages
from runtime.actions import RunPython, RunShell, ViewFile
from runtime.observations import Edited, Failed, Picture, Ran, RanPython
from tests.resolver.scripted import Scripted
from tests.resolver.test_render import assert_paired, decided, logs, seen, trajectory

NOTES = Reply(
    text="The cause is in calc.py, line 2.", calls=(), usage=Usage(model="cheap", usd=Decimal("0.01"))
)
START: tuple[Event, ...] = (Prompted(system="You mend.", tools=()), Told(text="Issue 7", source="brief"))


def exchange(number: int, characters: int = 4_000, usage: int = 0) -> tuple[Event, ...]:
    """A reply with one call, and its result of so many characters."""
    id = f"c{number}"
    reply = decided((id, RunShell(command=f"cat {number}.txt")), thought=f"Step {number}.")
    counted = reply.model_copy(update={"usage": Usage(model="scripted", prompt_tokens=usage)})
    ran = Ran(output=str(number % 10) * characters, exit_code=0, cwd="/w", seconds=0.1)
    return counted, Observed(call=id, observation=ran)


def run(steps: int, characters: int = 4_000) -> Trajectory:
    return trajectory(*START, *(event for n in range(steps) for event in exchange(n, characters)))


def done(condenser: Condenser, run: Trajectory, goal: int = 1) -> Shorter:
    return asyncio.run(condenser.condense(run, goal))


def relieved(room: Room, run: Trajectory) -> Trajectory:
    return extended(run, asyncio.run(room.relief(run)))


def texts(run: Trajectory) -> list[str]:
    return [message.text for message in messages(run)]


def condensations(run: Trajectory) -> list[Condensed]:
    return [event for event in run if isinstance(event, Condensed)]


# --- what each of them does ---------------------------------------------------------------------------------


def test_masking_leaves_one_line_and_the_facts_of_each_old_large_result() -> None:
    before = run(4)
    after = messages(extended(before, done(Masking(keep=2), before)))
    assert after[3] == FromTool(
        call="c0",
        text="[left out to save room: 4,000 characters; run it again only if you need them]\n"
        "[exit code 0, 0.1 s, in /w]",
    )
    assert after[6:] == messages(before)[6:]
    assert [m for m in after if isinstance(m, FromModel)] == [
        m for m in messages(before) if isinstance(m, FromModel)
    ]


def test_what_is_short_or_cannot_be_had_again_is_not_masked() -> None:
    before = trajectory(
        decided(("a", ViewFile(path="a")), ("b", ViewFile(path="b"))),
        seen("a", "short"),
        Observed(call="b", observation=Failed(reason="io", message="x" * 5_000)),
    )
    assert done(Masking(keep=0), before) == ()


def test_an_old_picture_goes_with_its_result() -> None:
    picture = Picture(media="image/png", data=b"\x89PNG")
    cell = RanPython(output="", ok=True, seconds=0.1, pictures=(picture,))
    before = trajectory(decided(("a", RunPython(code="plot()"))), Observed(call="a", observation=cell))
    assert any(isinstance(message, FromUser) and message.pictures for message in messages(before))
    after = messages(extended(before, done(Masking(keep=0), before)))
    assert not any(isinstance(message, FromUser) for message in after)


def test_an_edit_that_is_masked_still_stands() -> None:
    before = trajectory(
        decided(("a", Think(thought="x"))),
        Observed(call="a", observation=Edited(path="a.py", diff="+" * 2_000)),
    )
    (_, result) = texts(extended(before, done(Masking(keep=0), before)))
    assert (
        result == "[left out to save room: the diff; the edit stands, and `git diff` shows it]\n[edited a.py]"
    )


def test_of_large_results_only_the_k_latest_stay() -> None:
    before = run(5)
    for keep in (0, 1, 2, 5):
        after = extended(before, done(Masking(keep=keep), before))
        assert sum("left out to save room" in text for text in texts(after)) == 5 - keep
        assert len(tuple(after.decisions())) == 5


def test_a_summary_stands_in_place_of_the_middle() -> None:
    before = run(10)
    model = Scripted([NOTES])
    paid, condensed = done(Summarizing(model, keep=3), before, goal=100_000)
    after = extended(before, (paid, condensed))
    assert paid == Consulted(purpose="condense", usage=NOTES.usage)
    head, brief, summary, *tail = messages(after)
    assert (head, brief) == messages(before)[:2]
    assert isinstance(summary, FromUser)
    assert "your first 7 replies" in summary.text
    assert NOTES.text in summary.text
    assert tuple(tail) == messages(before)[-6:]
    assert after.spent().usd == Decimal("0.01")


def test_the_model_that_sums_up_reads_the_issue_and_what_goes_and_nothing_that_stays() -> None:
    before = run(5, characters=100)
    model = Scripted([NOTES])
    done(Summarizing(model, keep=2), before, goal=100_000)
    (_, record) = model.asked[0]
    assert all(part in record.text for part in ("Issue 7", "cat 0.txt", "cat 2.txt", "0000000000"))
    assert "cat 3.txt" not in record.text


def test_a_second_summary_takes_in_the_first() -> None:
    first = extended(run(8), done(Summarizing(Scripted([NOTES]), keep=2), run(8), goal=100_000))
    more = Trajectory((*first.entries, *run(12).entries[len(run(8)) :]))
    model = Scripted([Reply(text="All of it.", calls=(), usage=NOTES.usage)])
    second = extended(more, done(Summarizing(model, keep=2), more, goal=100_000))
    assert NOTES.text in model.asked[0][1].text
    assert [text for text in texts(second) if "The work so far" in text] == [texts(second)[2]]
    assert NOTES.text not in "".join(texts(second))
    assert "your first 10 replies" in texts(second)[2]


@pytest.mark.parametrize(
    "reply",
    [ModelError("down"), ContextOverflow("too long"), Reply(text=" \n", calls=(), usage=NOTES.usage)],
)
def test_without_a_summary_a_line_for_each_call_stands_there(reply: Reply | ModelError) -> None:
    before = run(10)
    after = extended(before, done(Summarizing(Scripted([reply]), keep=3), before, goal=100_000))
    note = texts(after)[2]
    assert "No summary could be made" in note
    assert "7. $ cat 6.txt -> exit code 0" in note
    assert "cat 7.txt" not in note
    assert after.spent().prompt_tokens == 0
    assert isinstance(after.entries[-1].event, Condensed)


def test_what_people_said_stays_and_reminders_go() -> None:
    events = [
        *START,
        *exchange(0),
        Told(text="Mind Python 3.9.", source="comment"),
        Told(text="5 steps left.", source="program"),
        *exchange(1),
        *exchange(2),
    ]
    before = trajectory(*events)
    after = texts(extended(before, done(Listing(keep=1), before, goal=100_000)))
    assert after[:3] == ["You mend.", "Issue 7", "Mind Python 3.9."]
    assert "5 steps left." not in after


def test_the_latest_plan_outlives_the_reply_that_it_was_written_in() -> None:
    plan = Plan(
        items=(PlanItem(text="Reproduce.", state="done"), PlanItem(text="Mend the sign.", state="doing"))
    )
    work = (*exchange(0), *exchange(1))
    before = trajectory(*START, decided(("p", plan)), seen("p"), *work)
    summary = texts(extended(before, done(Listing(keep=1), before, goal=100_000)))[2]
    assert "- done: Reproduce.\n- doing: Mend the sign.\n" in summary
    later = trajectory(*before, decided(("q", plan)), seen("q"))
    assert "Mend the sign" not in texts(extended(later, done(Listing(keep=1), later, goal=100_000)))[2]


def test_the_last_reply_stays_with_its_reasoning_however_large() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    last = decided(("z", ViewFile(path="z"))).model_copy(update={"reasoning": (thinking,)})
    before = trajectory(*run(3), last, seen("z", "z" * 50_000))
    after = messages(extended(before, done(Listing(), before, goal=1)))
    assert after[-2:] == messages(before)[-2:]
    assert isinstance(after[-2], FromModel)
    assert after[-2].reasoning == (thinking,)
    assert len(after) == 5


def test_the_next_is_asked_only_while_it_is_too_long() -> None:
    before = run(10)
    enough = tokens.of_messages(messages(extended(before, done(Masking(), before))))
    assert done(InTurn((Masking(), Listing())), before, goal=enough) == done(Masking(), before)
    assert [
        e.forgotten > 0
        for e in done(InTurn((Masking(), Listing())), before, goal=enough - 1)
        if isinstance(e, Condensed)
    ] == [False, True]


# --- when ---------------------------------------------------------------------------------------------------


def test_a_short_conversation_is_left_alone() -> None:
    assert relieved(Room(most=20_000), run(10)).entries == run(10).entries


def test_a_long_one_comes_down_to_the_goal() -> None:
    after = relieved(Room(most=8_000), run(10))
    (condensed,) = condensations(after)
    assert condensed.before > 8_000
    assert condensed.after <= 0.6 * 8_000
    assert abs(size(after) - condensed.after) < 200


def test_the_providers_own_count_goes_before_our_estimate() -> None:
    events = (*START, *exchange(0, 40, usage=90_000))
    assert size(trajectory(*events)) in range(90_000, 90_100)
    assert size(trajectory(*events, Condensed())) < 1_000


def test_a_count_of_several_tries_does_not_make_the_conversation_longer() -> None:
    retried = trajectory(*START, *(event for n in range(9) for event in exchange(n, usage=1_000 * (n + 1))))
    retried = extended(retried, exchange(9, usage=60_000))
    assert relieved(Room(most=20_000), retried).entries == retried.entries
    assert condensations(relieved(Room(most=8_000), retried)) != []


def test_what_a_failed_summary_cost_is_counted() -> None:
    failed = ModelError("cut off", usage=Usage(model="cheap", prompt_tokens=7, usd=Decimal("0.02")))
    after = extended(run(10), done(Summarizing(Scripted([failed]), keep=3), run(10), goal=100_000))
    assert after.spent().usd == Decimal("0.02")


def test_there_is_a_pause_between_two_condensations() -> None:
    room = Room(most=1_500)
    trajectory_ = run(0)
    counts = []
    for n in range(30):
        trajectory_ = relieved(room, extended(trajectory_, exchange(n)))
        counts.append(len(condensations(trajectory_)))
    assert 3 <= counts[-1] <= 2 * (30 // PAUSE + 1)


def test_a_summary_that_is_longer_than_what_it_sums_up_is_paid_for_and_not_used() -> None:
    before = run(PAUSE + 1, characters=10)
    wordy = Reply(text="word " * 5_000, calls=(), usage=NOTES.usage)
    after = relieved(Room(Summarizing(Scripted([wordy]), keep=1), most=10), before)
    assert messages(after) == messages(before)
    assert after.spent().usd == Decimal("0.01")
    assert relieved(Room(Summarizing(Scripted([]), keep=1), most=10), after).entries == after.entries


def test_what_a_provider_refused_is_not_reached_again() -> None:
    room = Room(most=100_000)
    overflowed = extended(run(10), asyncio.run(room.relief_from_overflow(run(10))))
    (condensed,) = condensations(overflowed)
    assert condensed.cause == "overflow"
    assert condensed.after <= condensed.before // 2
    assert asyncio.run(room.relief_from_overflow(overflowed)) == ()
    grown = overflowed
    for n in range(10, 30):
        grown = relieved(room, extended(grown, exchange(n)))
        assert size(grown) < condensed.before
    assert len(condensations(grown)) > 1


def test_a_single_result_that_is_larger_than_the_model_takes_is_masked_at_last() -> None:
    before = trajectory(*START, *exchange(0, 50_000))
    relief = asyncio.run(Room().relief_from_overflow(before))
    assert "left out to save room" in texts(extended(before, relief))[-1]


# --- for any log --------------------------------------------------------------------------------------------

CONDENSERS = st.sampled_from(
    [Masking(keep=0, least=0), Masking(keep=2, least=0), Listing(keep=1), Listing(keep=3)]
)


def arbitrary() -> st.SearchStrategy[Condensed]:
    """Also those that no condenser of ours would write."""
    ids = st.lists(st.sampled_from(["c0", "c1", "c2", "c5", "orphan"]), max_size=3).map(tuple)
    return st.builds(Condensed, masked=ids, forgotten=st.integers(0, 6), summary=st.sampled_from(["", "s"]))


@st.composite
def condensed_logs(draw: st.DrawFn) -> tuple[Event, ...]:
    events = list(draw(logs()))
    for condensed in draw(st.lists(arbitrary(), max_size=3)):
        events.insert(draw(st.integers(0, len(events))), condensed)
    return tuple(events)


@settings(deadline=None)
@given(condensed_logs())
def test_any_condensed_log_renders_to_paired_messages(events: tuple[Event, ...]) -> None:
    assert_paired(messages(trajectory(*events)))


@settings(deadline=None)
@given(condensed_logs(), logs())
def test_between_two_condensations_messages_are_only_added(
    events: tuple[Event, ...], more: tuple[Event, ...]
) -> None:
    before = messages(trajectory(*events))
    assert messages(trajectory(*events, *more))[: len(before)] == before


@settings(deadline=None)
@given(logs(), CONDENSERS, logs(), CONDENSERS)
def test_whatever_is_condensed_pairs_and_keeps_the_brief(
    events: tuple[Event, ...], first: Condenser, more: tuple[Event, ...], second: Condenser
) -> None:
    start = trajectory(*START, *events)
    once = extended(start, done(first, start))
    grown = extended(once, more)
    twice = extended(grown, done(second, grown))
    for run in (once, grown, twice):
        assert_paired(messages(run))
        assert messages(run)[:2] == messages(trajectory(*START))
        assert len([e for e in run if isinstance(e, Decided)]) >= len(start.decisions())


@settings(deadline=None)
@given(condensed_logs())
def test_a_condensed_log_that_was_read_back_renders_to_the_same_messages(events: tuple[Event, ...]) -> None:
    run = trajectory(*events)
    again = Trajectory(tuple(Entry.model_validate_json(entry.model_dump_json()) for entry in run.entries))
    assert messages(again) == messages(run)


def test_a_step_without_condensation_changes_no_byte_that_was_sent() -> None:
    sent: tuple[Message, ...] = ()
    grown = run(0)
    for n in range(50):
        grown = extended(grown, exchange(n))
        now = messages(grown)
        assert now[: len(sent)] == sent
        added = now[len(sent) :]
        assert [message.role for message in added][-2:] == ["assistant", "tool"]
        assert len(added) == (4 if n == 0 else 2)
        sent = now


@pytest.mark.parametrize(("window", "most"), [(None, 100_000), (1_000_000, 100_000), (32_000, 22_400)])
def test_a_model_that_takes_less_is_sent_less(window: int | None, most: int) -> None:
    assert room_in(Scripted([], window=window)) == most
