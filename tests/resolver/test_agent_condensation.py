"""An agent whose prompt is rejected as too long condenses it once, and stops if that is not enough."""

from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.agent.condenser import (
    ContextPolicy,
    ListingCondenser,
    MaskingCondenser,
    PipelineCondenser,
    SummarizingCondenser,
    extend_trajectory,
)
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import ContextOverflow, ModelError
from patchwright.resolver.events import AgentStopped, AuxiliaryModelCall, ReplyUsage
from patchwright.resolver.llm.model import ChatMessage, Reply
from patchwright.resolver.llm.token_estimate import estimate_tokens, max_context_tokens
from patchwright.resolver.run_events import Condensation
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore, FileRunLog
from tests.resolver.agent.test_condenser import condensations, condense_run, exchange, run
from tests.resolver.agent.test_messages import assert_paired
from tests.resolver.agent_runs import FINISH, FakeSandbox, create_file, make_agent, run_agent
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

TOO_LONG = ContextOverflow("Too long.")
LOOKED = tuple(create_file(f"{n}") for n in range(12))


@pytest.fixture
async def log(tmp_path: Path):
    async with FileLogStore(tmp_path).open(RunId("run")) as log:
        yield log


async def condensing(
    log: FileRunLog, policy: ContextPolicy, *script: ScriptLine, limits: Limits | None = None
) -> None:
    """Runs an agent with this context policy."""
    worker = make_agent(ScriptedModel(script, usd=Decimal("0.01")), FakeSandbox(), limits)
    worker.context_policy = policy
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    await worker.run(log)


def condensed(log: FileRunLog) -> list[Condensation]:
    return [event for event in log.trajectory if isinstance(event, Condensation)]


async def test_a_prompt_that_is_too_long_is_condensed_and_sent_again(log: FileRunLog) -> None:
    model = await run_agent(log, *LOOKED, TOO_LONG, FINISH)
    (relief,) = condensed(log)
    assert relief.cause == "overflow"
    assert 0 < relief.forgotten_replies < len(LOOKED)
    assert log.trajectory.agent_stopped is not None
    assert log.trajectory.agent_stopped.reason == "finished"
    assert len(model.requests[-1]) < len(model.requests[-2])
    assert "6. create 5 -> " in model.requests[-1][2].text


async def test_a_second_overflow_right_after_a_condensation_ends_the_run(log: FileRunLog) -> None:
    await run_agent(log, *LOOKED, TOO_LONG, TOO_LONG)
    assert len(condensed(log)) == 1
    assert log.trajectory.agent_stopped == AgentStopped(reason="limit", detail="Too long.")


async def test_another_overflow_after_a_reply_is_condensed_again(log: FileRunLog) -> None:
    more = [create_file(f"more {n}") for n in range(8)]
    await run_agent(log, *LOOKED, TOO_LONG, *more, TOO_LONG, FINISH)
    assert [event.cause for event in condensed(log)].count("overflow") == 2
    assert log.trajectory.agent_stopped is not None
    assert log.trajectory.agent_stopped.reason == "finished"


@pytest.mark.parametrize("failure", [ModelError("down"), TOO_LONG])
async def test_a_failed_summary_does_not_stop_the_run(log: FileRunLog, failure: ModelError) -> None:
    policy = ContextPolicy(SummarizingCondenser(ScriptedModel([failure])))
    await condensing(log, policy, *LOOKED, TOO_LONG, FINISH)
    assert "No summary is available" in condensed(log)[0].summary
    assert log.trajectory.agent_stopped is not None
    assert log.trajectory.agent_stopped.reason == "finished"


async def test_the_cost_of_a_summary_counts_before_the_next_model_call(log: FileRunLog) -> None:
    dear = Reply(text="Notes.", tool_calls=(), usage=ReplyUsage(model="dear", usd=Decimal("5")))
    policy = ContextPolicy(
        PipelineCondenser(
            (MaskingCondenser(), SummarizingCondenser(ScriptedModel([dear])), ListingCondenser())
        )
    )
    await condensing(log, policy, *LOOKED, TOO_LONG)
    assert any(isinstance(event, AuxiliaryModelCall) for event in log.trajectory)
    assert log.trajectory.agent_stopped is not None
    assert log.trajectory.agent_stopped.reason == "limit"
    assert "budget" in log.trajectory.agent_stopped.detail


def test_a_step_without_condensation_keeps_every_sent_byte() -> None:
    sent: tuple[ChatMessage, ...] = ()
    grown = run(0)
    for n in range(50):
        grown = extend_trajectory(grown, exchange(n))
        now = build_messages(grown)
        assert now[: len(sent)] == sent
        added = now[len(sent) :]
        assert [message.role for message in added][-2:] == ["assistant", "tool"]
        assert len(added) == (4 if n == 0 else 2)
        sent = now


@pytest.mark.parametrize(("window", "most"), [(None, 100_000), (1_000_000, 100_000), (32_000, 22_400)])
def test_a_model_with_a_small_context_window_gets_shorter_prompts(window: int | None, most: int) -> None:
    assert max_context_tokens(ScriptedModel([], window=window)) == most


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.7])
def test_a_run_of_500_events_stays_below_the_limit_with_any_tokenizer(ratio: float) -> None:
    """`ratio` is how many tokens the provider counts for one that we estimate."""
    policy, limit, grown = ContextPolicy(max_tokens=20_000), 20_000, run(0)
    for n in range(250):
        grown = condense_run(policy, grown)
        sent = build_messages(grown)
        tokens = int(ratio * estimate_tokens(sent))
        assert tokens <= limit
        assert [message.text for message in sent[:2]] == ["You fix.", "Issue 7"]
        assert n == 0 or sent[-1].text.startswith(str((n - 1) % 10) * 4_000)
        assert_paired(sent)
        grown = extend_trajectory(grown, exchange(n, 4_000, usage=tokens))
    assert len(grown) > 500 and len(condensations(grown)) > 10
