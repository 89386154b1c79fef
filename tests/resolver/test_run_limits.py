"""The limits of a run, and replies without calls."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from patchwright.resolver.actions import Action, AnyObservation, SubagentResult
from patchwright.resolver.domain import InputRequired, JobId, Usage
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Event,
    JobCompleted,
    Message,
    ModelReply,
    ReplyUsage,
    ToolCall,
    ToolResult,
    Trajectory,
)
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.run_limits import (
    Limits,
    check_limits,
    is_planning_due,
    steps_left_notice,
    subagent_limits,
)
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.actions import ViewFile
from patchwright.runtime.observations import ShellResult, TextResult
from tests.resolver.sample_runs import full_run, started

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(*events: Event, seconds_apart: float = 1) -> Trajectory:
    return Trajectory(
        tuple(
            Entry(seq=n, timestamp=START + timedelta(seconds=seconds_apart * n), event=event)
            for n, event in enumerate(events)
        )
    )


def step(
    number: int, action: Action, result: AnyObservation, usd: Decimal | None = Decimal("0.1")
) -> list[Event]:
    call = ToolCall(id=f"c{number}", action=action)
    usage = ReplyUsage(model="m", usd=usd, prompt_tokens=100, cached_tokens=50, completion_tokens=10)
    return [
        ModelReply(thought="", calls=(call,), usage=usage),
        ToolResult(call_id=call.id, observation=result),
    ]


def silence() -> ModelReply:
    return ModelReply(thought="Let me think.", calls=(), usage=ReplyUsage(model="m"))


def ran(output: str, seconds: float = 0.1) -> ShellResult:
    return ShellResult(output=output, exit_code=1, cwd="/w", seconds=seconds)


SEEN = TextResult(text="x")


@pytest.mark.parametrize(
    ("limits", "detail"),
    [
        (Limits(steps=3), "The step limit of 3 is reached."),
        (Limits(usd=Decimal("0.30")), "The budget of $0.30 is spent ($0.3000)."),
        (Limits(tokens=330), "The limit of 330 tokens is reached (330)."),
        (Limits(seconds=5), "The time limit of 5 s is reached."),
    ],
)
def test_a_limit_ends_the_run_when_it_is_reached_and_not_before(limits: Limits, detail: str) -> None:
    events = [event for n in range(3) for event in step(n, ViewFile(path=str(n)), SEEN)]
    assert check_limits(run(*events), limits) == AgentStopped(reason="limit", detail=detail)
    assert check_limits(run(*events[:4]), limits) is None


def test_an_unknown_price_does_not_reach_the_dollar_limit() -> None:
    events = [event for n in range(9) for event in step(n, ViewFile(path=str(n)), SEEN, usd=None)]
    assert check_limits(run(*events), Limits(usd=Decimal("0.01"))) is None
    paid = check_limits(run(*events, *step(9, ViewFile(path="a"), SEEN)), Limits(usd=Decimal("0.01")))
    assert paid and paid.detail == "The budget of $0.01 is spent (at least $0.1000)."


def test_the_time_before_a_killed_run_resumes_does_not_count() -> None:
    entries = run(*step(0, ViewFile(path="a"), SEEN)).entries
    resumed = Entry(seq=2, timestamp=START + timedelta(days=1), event=Message(text="go on", source="resume"))
    later = Entry(seq=3, timestamp=START + timedelta(days=1, seconds=2), event=silence())
    assert check_limits(Trajectory((*entries, resumed, later)), Limits(seconds=5)) is None
    assert Trajectory((*entries, resumed, later)).usage().seconds == 3


def test_the_time_while_a_run_is_stopped_or_waits_for_an_answer_does_not_count() -> None:
    """Each process that works on a run begins with its settings; an answer has a trigger."""
    settings = next(event for event in full_run() if isinstance(event, RunConfigured))
    longer = settings.model_copy(update={"seconds": 60})
    answer = Message(text="Integers.", source="comment", trigger_id=JobId("run"))
    resume = Message(text="Go on.", source="resume", trigger_id=JobId("run"))
    parts = [
        *([started()], [settings, silence()], [longer, silence()], [longer], [answer, silence()]),
        *([resume], [longer, silence()]),
    ]
    entries = [
        Entry(seq=0, timestamp=START + timedelta(days=day, seconds=second), event=event)
        for day, part in enumerate(parts)
        for second, event in enumerate(part)
    ]
    trajectory = Trajectory(tuple(entries))
    assert trajectory.usage().seconds == 0 + 1 + 1 + 0 + 1 + 0 + 1
    assert trajectory.usage_since_resume().seconds == 1


def test_publishing_does_not_count_as_working_time() -> None:
    worked = run(*step(0, ViewFile(path="a"), SEEN))
    entry = Entry(
        seq=2,
        timestamp=START + timedelta(hours=1),
        event=JobCompleted(outcome=InputRequired(url="", question="?")),
    )
    assert worked.with_entry(entry).usage() == worked.usage()


def test_planning_is_due_after_every_tenth_reply_only() -> None:
    events = [event for n in range(30) for event in step(n, ViewFile(path=str(n)), SEEN)]
    due = [count for count in range(1, 31) if is_planning_due(run(*events[: 2 * count]), 10)]
    assert due == [10, 20, 30]
    assert not is_planning_due(run(*events[:20], Message(text="Look back.", source="planning")), 10)
    assert not any(is_planning_due(run(*events[: 2 * count]), 0) for count in range(1, 31))


def test_three_replies_without_a_call_are_stuck_despite_reminders() -> None:
    reminder = Message(text="Call a tool.", source="program")
    events = [silence(), reminder, silence(), reminder, silence()]
    ended = check_limits(run(*events), Limits())
    assert ended == AgentStopped(
        reason="stuck",
        detail="The model gave 3 replies in a row without calling a tool. "
        "`patchwright probe` tests whether a model can call tools.",
    )
    assert check_limits(run(*events[:4]), Limits()) is None


def test_the_steps_left_notice_is_due_once() -> None:
    events = [event for n in range(20) for event in step(n, ViewFile(path=str(n)), SEEN)]
    notices = [steps_left_notice(run(*events[: 2 * n]), Limits(steps=20)) for n in range(20)]
    assert [n for n, left in enumerate(notices) if left] == [15] and notices[15] == 5
    assert steps_left_notice(run(*events[:2]), Limits(steps=6)) is None


def test_the_steps_left_notice_is_due_after_a_subagents_steps() -> None:
    events = [event for n in range(10) for event in step(n, ViewFile(path=str(n)), SEEN)]
    report = SubagentResult(run="r", status="answered", text="42", usage=Usage(steps=6))
    events += step(10, Browse(task="Look."), report)
    assert steps_left_notice(run(*events[:-1]), Limits(steps=20)) is None
    assert steps_left_notice(run(*events), Limits(steps=20)) == 3
    events += step(11, ViewFile(path="a"), SEEN)
    assert steps_left_notice(run(*events), Limits(steps=20)) is None


def test_subagents_get_half_of_the_remaining_budget() -> None:
    limits = Limits(steps=100, seconds=600, usd=Decimal(2))
    spent = Usage(steps=10, seconds=100, usd=Decimal("0.5"))
    assert subagent_limits(limits, spent, max_steps=30) == Limits(steps=30, seconds=250, usd=Decimal("0.75"))
    assert subagent_limits(limits, spent.model_copy(update={"steps": 80}), max_steps=30) == Limits(
        steps=10, seconds=250, usd=Decimal("0.75")
    )
    capped = limits.model_copy(update={"tokens": 10_000})
    used = spent.model_copy(update={"prompt_tokens": 1500, "completion_tokens": 500})
    shared = subagent_limits(capped, used, max_steps=30, count=4)
    assert shared is not None and shared.tokens == 1000


@pytest.mark.parametrize(
    "spent", [{"steps": 99}, {"seconds": 600.0}, {"usd": Decimal(3)}, {"completion_tokens": 999}]
)
def test_subagents_get_nothing_without_a_remaining_budget(spent: dict[str, object]) -> None:
    limits = Limits(steps=100, seconds=600, usd=Decimal(2), tokens=1000)
    assert subagent_limits(limits, Usage.model_validate(spent), max_steps=30) is None


def test_usage_that_is_carried_on_is_the_usage_of_the_whole_log() -> None:
    """Each entry of a growing run adds to the totals, before and after a person resumes the run."""
    resumed = Message(text="Go on.", source="resume", trigger_id=JobId("again"))
    program = Message(text="The sandbox is new.", source="resume")
    events = [*[silence() for _ in range(3)], resumed, silence(), program, silence(), resumed, silence()]
    growing, steps = Trajectory(), []
    for number, event in enumerate(events):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number**2)
        growing = growing.with_entry(Entry(seq=number, timestamp=at, event=event))
        assert growing.usage_since_resume() == Trajectory(growing.entries).usage_since_resume()
        steps.append(growing.usage_since_resume().steps)
    assert steps == [1, 2, 3, 0, 1, 1, 2, 0, 1]
    assert growing.usage().steps == 6
