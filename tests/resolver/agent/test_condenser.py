"""A conversation that is too long is condensed, as decided from the log and recorded in it."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import strategies as st

from patchwright.resolver.agent.condenser import (
    MIN_INTERVAL,
    Condenser,
    CondenserEvents,
    ContextPolicy,
    ListingCondenser,
    MaskingCondenser,
    PipelineCondenser,
    SummarizingCondenser,
    context_tokens,
    extend_trajectory,
)
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.errors import ContextOverflow, ModelError
from patchwright.resolver.events import (
    AuxiliaryModelCall,
    Event,
    Message,
    ReplyUsage,
    SystemPrompt,
    ToolResult,
    Trajectory,
)
from patchwright.resolver.llm import token_estimate
from patchwright.resolver.llm.model import AssistantMessage, Reply, ToolMessage, UserMessage
from patchwright.resolver.run_events import Condensation
from patchwright.resolver.tool_actions.control_actions import Plan, Think
from patchwright.runtime.actions import RunPython, RunShell, ViewFile
from patchwright.runtime.observations import ActionFailure, CellResult, EditResult, ImageData, ShellResult
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.agent.test_messages import decided, tool_result, trajectory
from tests.resolver.scripted_model import ScriptedModel

NOTES = Reply(
    text="The cause is in calc.py, line 2.",
    tool_calls=(),
    usage=ReplyUsage(model="cheap", usd=Decimal("0.01")),
)
START: tuple[Event, ...] = (
    SystemPrompt(text="You fix.", tools=()),
    Message(text="Issue 7", source="initial_prompt"),
)


def exchange(number: int, characters: int = 4_000, usage: int = 0) -> tuple[Event, ...]:
    """A reply with one call, and a result of this many characters."""
    id = f"c{number}"
    reply = decided((id, RunShell(command=f"cat {number}.txt")), thought=f"Step {number}.")
    counted = reply.model_copy(update={"usage": ReplyUsage(model="scripted", prompt_tokens=usage)})
    ran = ShellResult(output=str(number % 10) * characters, exit_code=0, cwd="/w", seconds=0.1)
    return counted, ToolResult(call_id=id, observation=ran)


def run(steps: int, characters: int = 4_000) -> Trajectory:
    return trajectory(*START, *(event for n in range(steps) for event in exchange(n, characters)))


def done(condenser: Condenser, run: Trajectory, goal: int = 1) -> CondenserEvents:
    return asyncio.run(condenser.condense(run, goal))


def condense_run(policy: ContextPolicy, run: Trajectory) -> Trajectory:
    return extend_trajectory(run, asyncio.run(policy.condense_if_needed(run)))


def texts(run: Trajectory) -> list[str]:
    return [message.text for message in build_messages(run)]


def condensations(run: Trajectory) -> list[Condensation]:
    return [event for event in run if isinstance(event, Condensation)]


# --- condensers ---------------------------------------------------------------------------------------------


def test_masking_leaves_one_line_and_the_facts_of_each_old_large_result() -> None:
    before = run(4)
    after = build_messages(extend_trajectory(before, done(MaskingCondenser(keep=2), before)))
    assert after[3] == ToolMessage(
        tool_call_id="c0",
        text="[left out to save room: 4,000 characters; run it again only if you need them]\n"
        "[exit code 0, 0.1 s, in /w]",
    )
    assert after[6:] == build_messages(before)[6:]
    assert [m for m in after if isinstance(m, AssistantMessage)] == [
        m for m in build_messages(before) if isinstance(m, AssistantMessage)
    ]


def test_short_or_unrepeatable_results_are_not_masked() -> None:
    before = trajectory(
        decided(("a", ViewFile(path="a")), ("b", ViewFile(path="b"))),
        tool_result("a", "short"),
        ToolResult(call_id="b", observation=ActionFailure(reason="io", message="x" * 5_000)),
    )
    assert done(MaskingCondenser(keep=0), before) == ()


def test_an_old_image_is_masked_with_its_result() -> None:
    picture = ImageData(media_type="image/png", data=b"\x89PNG")
    cell = CellResult(output="", ok=True, seconds=0.1, images=(picture,))
    before = trajectory(decided(("a", RunPython(code="plot()"))), ToolResult(call_id="a", observation=cell))
    assert any(isinstance(message, UserMessage) and message.images for message in build_messages(before))
    after = build_messages(extend_trajectory(before, done(MaskingCondenser(keep=0), before)))
    assert not any(isinstance(message, UserMessage) for message in after)


def test_a_masked_edit_says_that_it_is_still_in_place() -> None:
    before = trajectory(
        decided(("a", Think(thought="x"))),
        ToolResult(call_id="a", observation=EditResult(path="a.py", diff="+" * 2_000)),
    )
    (_, result) = texts(extend_trajectory(before, done(MaskingCondenser(keep=0), before)))
    assert (
        result
        == "[left out to save room: the diff; the edit is still in place, and `git diff` shows it]\n[edited]"
    )


def test_only_the_latest_large_results_stay() -> None:
    before = run(5)
    for keep in (0, 1, 2, 5):
        after = extend_trajectory(before, done(MaskingCondenser(keep=keep), before))
        assert sum("left out to save room" in text for text in texts(after)) == 5 - keep
        assert len(tuple(after.replies())) == 5


def test_a_summary_replaces_the_middle() -> None:
    before = run(10)
    model = ScriptedModel([NOTES])
    paid, condensed = done(SummarizingCondenser(model, keep=3), before, goal=100_000)
    after = extend_trajectory(before, (paid, condensed))
    assert paid == AuxiliaryModelCall(purpose="condense", usage=NOTES.usage)
    head, brief, summary, *tail = build_messages(after)
    assert (head, brief) == build_messages(before)[:2]
    assert isinstance(summary, UserMessage)
    assert "your first 7 replies" in summary.text
    assert NOTES.text in summary.text
    assert tuple(tail) == build_messages(before)[-6:]
    assert after.usage().usd == Decimal("0.01")


def test_the_summarizing_model_reads_the_issue_and_only_what_is_removed() -> None:
    before = run(5, characters=100)
    model = ScriptedModel([NOTES])
    done(SummarizingCondenser(model, keep=2), before, goal=100_000)
    (_, record) = model.requests[0]
    assert all(part in record.text for part in ("Issue 7", "cat 0.txt", "cat 2.txt", "0000000000"))
    assert "cat 3.txt" not in record.text


def test_a_second_summary_includes_the_first() -> None:
    first = extend_trajectory(
        run(8), done(SummarizingCondenser(ScriptedModel([NOTES]), keep=2), run(8), goal=100_000)
    )
    more = Trajectory((*first.entries, *run(12).entries[len(run(8)) :]))
    model = ScriptedModel([Reply(text="All of it.", tool_calls=(), usage=NOTES.usage)])
    second = extend_trajectory(more, done(SummarizingCondenser(model, keep=2), more, goal=100_000))
    assert NOTES.text in model.requests[0][1].text
    assert [text for text in texts(second) if "Summary of the work so far" in text] == [texts(second)[2]]
    assert NOTES.text not in "".join(texts(second))
    assert "your first 10 replies" in texts(second)[2]


@pytest.mark.parametrize(
    "reply",
    [ModelError("down"), ContextOverflow("too long"), Reply(text=" \n", tool_calls=(), usage=NOTES.usage)],
)
def test_without_a_summary_each_call_gets_a_line(reply: Reply | ModelError) -> None:
    before = run(10)
    after = extend_trajectory(
        before, done(SummarizingCondenser(ScriptedModel([reply]), keep=3), before, goal=100_000)
    )
    note = texts(after)[2]
    assert "No summary is available" in note
    assert "7. $ cat 6.txt -> exit code 0" in note
    assert "cat 7.txt" not in note
    assert after.usage().prompt_tokens == 0
    assert isinstance(after.entries[-1].event, Condensation)


def test_messages_of_people_stay_and_reminders_are_removed() -> None:
    reply, result = exchange(1)
    events = [
        *START,
        *exchange(0),
        Message(text="Mind Python 3.9.", source="comment"),
        Message(text="5 steps left.", source="program"),
        reply,
        Message(text="And Python 3.10.", source="comment"),
        result,
        *exchange(2),
    ]
    before = trajectory(*events)
    after = texts(extend_trajectory(before, done(ListingCondenser(keep=1), before, goal=100_000)))
    assert after[:4] == ["You fix.", "Issue 7", "Mind Python 3.9.", "And Python 3.10."]
    assert "5 steps left." not in after


def test_the_latest_plan_stays_when_its_reply_is_removed() -> None:
    items = (PlanItem(text="Reproduce.", status="done"), PlanItem(text="Fix the sign.", status="doing"))
    plan = Plan(items=items)
    work = (*exchange(0), *exchange(1))
    before = trajectory(*START, decided(("p", plan)), tool_result("p"), *work)
    summary = texts(extend_trajectory(before, done(ListingCondenser(keep=1), before, goal=100_000)))[2]
    assert "- done: Reproduce.\n- doing: Fix the sign.\n" in summary
    later = trajectory(*before, decided(("q", plan)), tool_result("q"))
    assert (
        "Fix the sign"
        not in texts(extend_trajectory(later, done(ListingCondenser(keep=1), later, goal=100_000)))[2]
    )


def test_the_last_reply_stays_with_its_reasoning_however_large() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    last = decided(("z", ViewFile(path="z"))).model_copy(update={"reasoning": (thinking,)})
    before = trajectory(*run(3), last, tool_result("z", "z" * 50_000))
    after = build_messages(extend_trajectory(before, done(ListingCondenser(), before, goal=1)))
    assert after[-2:] == build_messages(before)[-2:]
    assert isinstance(after[-2], AssistantMessage)
    assert after[-2].reasoning == (thinking,)
    assert len(after) == 5


def test_the_next_condenser_runs_only_while_the_conversation_is_too_long() -> None:
    before = run(10)
    enough = token_estimate.estimate_tokens(
        build_messages(extend_trajectory(before, done(MaskingCondenser(), before)))
    )
    assert done(PipelineCondenser((MaskingCondenser(), ListingCondenser())), before, goal=enough) == done(
        MaskingCondenser(), before
    )
    assert [
        e.forgotten_replies > 0
        for e in done(PipelineCondenser((MaskingCondenser(), ListingCondenser())), before, goal=enough - 1)
        if isinstance(e, Condensation)
    ] == [False, True]


# --- context policy -----------------------------------------------------------------------------------------


def test_a_short_conversation_is_not_condensed() -> None:
    assert condense_run(ContextPolicy(max_tokens=20_000), run(10)).entries == run(10).entries


def test_a_long_conversation_is_condensed_to_the_goal() -> None:
    after = condense_run(ContextPolicy(max_tokens=8_000), run(10))
    (condensed,) = condensations(after)
    assert condensed.tokens_before > 8_000
    assert condensed.tokens_after <= 0.6 * 8_000
    assert abs(context_tokens(after) - condensed.tokens_after) < 200


def test_the_providers_token_count_overrides_our_estimate() -> None:
    events = (*START, *exchange(0, 40, usage=90_000))
    assert context_tokens(trajectory(*events)) in range(90_000, 90_100)
    assert context_tokens(trajectory(*events, Condensation())) < 1_000


def test_a_token_count_of_several_tries_is_ignored() -> None:
    retried = trajectory(*START, *(event for n in range(9) for event in exchange(n, usage=1_000 * (n + 1))))
    retried = extend_trajectory(retried, exchange(9, usage=60_000))
    assert condense_run(ContextPolicy(max_tokens=20_000), retried).entries == retried.entries
    assert condensations(condense_run(ContextPolicy(max_tokens=8_000), retried)) != []


def test_the_cost_of_a_failed_summary_is_counted() -> None:
    failed = ModelError("cut off", usage=ReplyUsage(model="cheap", prompt_tokens=7, usd=Decimal("0.02")))
    after = extend_trajectory(
        run(10), done(SummarizingCondenser(ScriptedModel([failed]), keep=3), run(10), goal=100_000)
    )
    assert after.usage().usd == Decimal("0.02")


def test_two_condensations_are_some_replies_apart() -> None:
    policy = ContextPolicy(max_tokens=1_500)
    trajectory_ = run(0)
    counts = []
    for n in range(30):
        trajectory_ = condense_run(policy, extend_trajectory(trajectory_, exchange(n)))
        counts.append(len(condensations(trajectory_)))
    assert 3 <= counts[-1] <= 2 * (30 // MIN_INTERVAL + 1)


def test_a_summary_that_is_too_long_is_counted_and_not_used() -> None:
    before = run(MIN_INTERVAL + 1, characters=10)
    wordy = Reply(text="word " * 5_000, tool_calls=(), usage=NOTES.usage)
    after = condense_run(
        ContextPolicy(SummarizingCondenser(ScriptedModel([wordy]), keep=1), max_tokens=10), before
    )
    assert build_messages(after) == build_messages(before)
    assert after.usage().usd == Decimal("0.01")
    assert (
        condense_run(
            ContextPolicy(SummarizingCondenser(ScriptedModel([]), keep=1), max_tokens=10), after
        ).entries
        == after.entries
    )


def test_a_rejected_prompt_length_is_not_reached_again() -> None:
    policy = ContextPolicy(max_tokens=100_000)
    overflowed = extend_trajectory(run(10), asyncio.run(policy.condense_after_overflow(run(10))))
    (condensed,) = condensations(overflowed)
    assert condensed.cause == "overflow"
    assert condensed.tokens_after <= condensed.tokens_before // 2
    assert asyncio.run(policy.condense_after_overflow(overflowed)) == ()
    grown = overflowed
    for n in range(10, 30):
        grown = condense_run(policy, extend_trajectory(grown, exchange(n)))
        assert context_tokens(grown) < condensed.tokens_before
    assert len(condensations(grown)) > 1


def test_a_single_result_that_exceeds_the_context_window_is_masked() -> None:
    before = trajectory(*START, *exchange(0, 50_000))
    relief = asyncio.run(ContextPolicy().condense_after_overflow(before))
    assert "left out to save room" in texts(extend_trajectory(before, relief))[-1]


# --- properties of any log ----------------------------------------------------------------------------------

CONDENSERS = st.sampled_from(
    [
        MaskingCondenser(keep=0, min_length=0),
        MaskingCondenser(keep=2, min_length=0),
        ListingCondenser(keep=1),
        ListingCondenser(keep=3),
    ]
)
