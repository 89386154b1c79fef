"""The budget runs out during a step: the work so far is verified, published, and reported."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.events import AgentStopped
from patchwright.resolver.rendering.filters import format_usage
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult
from tests.end_to_end.conftest import CODE, FIX, NEW_TEST, Scenario
from tests.end_to_end.scripted_models import (
    PRICES,
    call_results,
    events_of_kind,
    resolve_to_pull_request,
    use_ordered_model,
)

pytestmark = pytest.mark.slow


def limit(scenario: Scenario, body: str) -> str:
    """Returns the stop reason in the log, which the pull request must mention."""
    (ended,) = events_of_kind(scenario, "agent_stopped")
    assert isinstance(ended, AgentStopped) and ended.reason == "limit"
    assert (
        body.startswith(f"**Stopped early:** {ended.detail}")
        and "The agent stopped before it described its work." in body
    )
    return ended.detail


async def test_a_reply_that_exceeds_the_budget_is_still_executed(scenario: Scenario) -> None:
    endpoint = await use_ordered_model(
        scenario,
        RecordedTurn("Fix.", FIX, NEW_TEST),
        RecordedTurn("Never said."),
        model_prices=PRICES,
        max_usd="0.001",
    )
    body = await resolve_to_pull_request(scenario)
    assert "\n\n**Fixed:**" in body
    spent = scenario.trajectory().usage()
    assert Decimal("0.001") < spent.usd == Decimal(spent.prompt_tokens + 10 * spent.completion_tokens) / 10**6
    assert limit(scenario, body) == f"The budget of $0.001 is spent (${spent.usd:.4f})."
    assert f" · {format_usage(spent)} · " in body and f"${spent.usd:.4f}" in format_usage(spent)
    assert spent.usd == sum(reply.usage.usd or 0 for reply in scenario.trajectory().replies())
    assert len(endpoint.requests) == 1


async def test_without_a_price_tokens_are_limited(scenario: Scenario) -> None:
    endpoint = await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX, NEW_TEST), RecordedTurn("Never said."), max_tokens=1000
    )
    body = await resolve_to_pull_request(scenario)
    assert "\n\n**Fixed:**" in body
    spent = scenario.trajectory().usage()
    assert spent.unpriced and spent.tokens == spent.prompt_tokens + spent.completion_tokens > 1000
    assert limit(scenario, body) == f"The limit of 1,000 tokens is reached ({spent.tokens:,})."
    assert len(endpoint.requests) == 1


@pytest.mark.slow
async def test_a_command_is_stopped_at_the_timeout_of_its_run(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})
    wait = RunShell(command="echo started; sleep 60; echo late")
    endpoint = await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Wait.", wait), RecordedTurn("Never said.")
    )
    body = await resolve_to_pull_request(scenario, timeout=6)
    assert "\n\n**Untested:**" in body
    assert limit(scenario, body) == "The time limit of 6 s is reached."
    assert len(endpoint.requests) == 2
    (shown,) = [
        result
        for action, result in call_results(scenario)
        if action == wait and isinstance(result, ShellResult)
    ]
    assert shown.exit_code is None and shown.output.strip() == "started"
