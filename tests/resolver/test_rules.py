"""Limits and the plainest signs of a stuck run, over logs."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from resolver.actions import Action, Browse, Reported, Result
from resolver.domain import Asked, Spent
from resolver.events import Call, Decided, Ended, Entry, Event, Observed, Settled, Told, Trajectory, Usage
from resolver.rules import Limits, ending, planning_due, share, steps_left
from runtime.actions import ViewFile
from runtime.observations import Ran, Viewed

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(*events: Event, seconds_apart: float = 1) -> Trajectory:
    return Trajectory(
        tuple(
            Entry(seq=n, at=START + timedelta(seconds=seconds_apart * n), event=event)
            for n, event in enumerate(events)
        )
    )


def step(number: int, action: Action, result: Result, usd: Decimal | None = Decimal("0.1")) -> list[Event]:
    call = Call(id=f"c{number}", action=action)
    usage = Usage(model="m", usd=usd, prompt_tokens=100, cached_tokens=50, completion_tokens=10)
    return [Decided(thought="", calls=(call,), usage=usage), Observed(call=call.id, observation=result)]


def silence() -> Decided:
    return Decided(thought="Let me think.", calls=(), usage=Usage(model="m"))


def ran(output: str, seconds: float = 0.1) -> Ran:
    return Ran(output=output, exit_code=1, cwd="/w", seconds=seconds)


SEEN = Viewed(text="x")


@pytest.mark.parametrize(
    ("limits", "detail"),
    [
        (Limits(steps=3), "The limit of 3 replies of the model is reached."),
        (Limits(usd=Decimal("0.30")), "The budget of $0.30 is spent ($0.3000)."),
        (Limits(tokens=330), "The limit of 330 tokens is reached (330)."),
        (Limits(seconds=5), "The time limit of 5 s is reached."),
    ],
)
def test_a_limit_ends_the_run_when_it_is_reached_and_not_before(limits: Limits, detail: str) -> None:
    events = [event for n in range(3) for event in step(n, ViewFile(path=str(n)), SEEN)]
    assert ending(run(*events), limits) == Ended(reason="limit", detail=detail)
    assert ending(run(*events[:4]), limits) is None


def test_a_price_that_is_unknown_is_not_a_price_of_zero_dollars_reached() -> None:
    events = [event for n in range(9) for event in step(n, ViewFile(path=str(n)), SEEN, usd=None)]
    assert ending(run(*events), Limits(usd=Decimal("0.01"))) is None
    paid = ending(run(*events, *step(9, ViewFile(path="a"), SEEN)), Limits(usd=Decimal("0.01")))
    assert paid and paid.detail == "The budget of $0.01 is spent (at least $0.1000)."


def test_the_time_in_which_a_killed_run_waited_does_not_count() -> None:
    entries = run(*step(0, ViewFile(path="a"), SEEN)).entries
    resumed = Entry(seq=2, at=START + timedelta(days=1), event=Told(text="go on", source="resume"))
    later = Entry(seq=3, at=START + timedelta(days=1, seconds=2), event=silence())
    assert ending(Trajectory((*entries, resumed, later)), Limits(seconds=5)) is None
    assert Trajectory((*entries, resumed, later)).spent().seconds == 3


def test_a_run_has_worked_as_long_when_its_outcome_is_published_as_before() -> None:
    worked = run(*step(0, ViewFile(path="a"), SEEN))
    told = Entry(seq=2, at=START + timedelta(hours=1), event=Settled(outcome=Asked(url="", question="?")))
    assert worked.followed_by(told).spent() == worked.spent()


def test_the_model_is_asked_to_look_back_after_every_tenth_reply_and_then_only() -> None:
    events = [event for n in range(30) for event in step(n, ViewFile(path=str(n)), SEEN)]
    due = [count for count in range(1, 31) if planning_due(run(*events[: 2 * count]), 10)]
    assert due == [10, 20, 30]
    assert not planning_due(run(*events[:20], Told(text="Look back.", source="planning")), 10)
    assert not any(planning_due(run(*events[: 2 * count]), 0) for count in range(1, 31))


def test_three_replies_without_a_call_are_stuck_though_the_program_spoke_between() -> None:
    reminder = Told(text="Call a tool.", source="program")
    events = [silence(), reminder, silence(), reminder, silence()]
    ended = ending(run(*events), Limits())
    assert ended == Ended(reason="stuck", detail="The model gave 3 replies in a row without calling a tool.")
    assert ending(run(*events[:4]), Limits()) is None


def test_the_last_steps_are_announced_at_one_moment_only() -> None:
    events = [event for n in range(20) for event in step(n, ViewFile(path=str(n)), SEEN)]
    said = [steps_left(run(*events[: 2 * n]), Limits(steps=20)) for n in range(20)]
    assert [n for n, left in enumerate(said) if left] == [15] and said[15] == 5
    assert steps_left(run(*events[:2]), Limits(steps=6)) is None


def test_the_last_steps_are_announced_though_a_delegate_took_the_fifth_last_of_them() -> None:
    events = [event for n in range(10) for event in step(n, ViewFile(path=str(n)), SEEN)]
    report = Reported(run="r", status="answered", text="42", spent=Spent(steps=6))
    events += step(10, Browse(task="Look."), report)
    assert steps_left(run(*events[:-1]), Limits(steps=20)) is None
    assert steps_left(run(*events), Limits(steps=20)) == 3
    events += step(11, ViewFile(path="a"), SEEN)
    assert steps_left(run(*events), Limits(steps=20)) is None


def test_half_of_what_is_left_can_be_handed_on() -> None:
    limits = Limits(steps=100, seconds=600, usd=Decimal(2))
    spent = Spent(steps=10, seconds=100, usd=Decimal("0.5"))
    assert share(limits, spent, steps=30) == Limits(steps=30, seconds=250, usd=Decimal("0.75"))
    assert share(limits, spent.model_copy(update={"steps": 80}), steps=30) == Limits(
        steps=10, seconds=250, usd=Decimal("0.75")
    )
    capped = limits.model_copy(update={"tokens": 10_000})
    used = spent.model_copy(update={"prompt_tokens": 1500, "completion_tokens": 500})
    shared = share(capped, used, steps=30, among=4)
    assert shared is not None and shared.tokens == 1000


@pytest.mark.parametrize(
    "spent", [{"steps": 99}, {"seconds": 600.0}, {"usd": Decimal(3)}, {"completion_tokens": 999}]
)
def test_of_nothing_nothing_is_handed_on(spent: dict[str, object]) -> None:
    limits = Limits(steps=100, seconds=600, usd=Decimal(2), tokens=1000)
    assert share(limits, Spent.model_validate(spent), steps=30) is None
