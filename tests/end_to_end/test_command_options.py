"""Options of a single run: model, budget, and base; and the replies to invalid ones."""

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published, Rejected, Reported
from patchwright.runtime.actions import RunShell
from tests.end_to_end.comments import comment_job, rejection_text
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, Scenario
from tests.end_to_end.scripted_models import PRICES, use_ordered_model
from tests.end_to_end.test_plans import PLAN

LOOK = RunShell(command="ls")
AGAIN = RecordedTurn("Done.", DONE)


@pytest.mark.slow
async def test_a_model_is_chosen_by_name_or_suffix_and_stays_with_the_run(scenario: Scenario) -> None:
    choices = "openai/second openai/third"
    endpoint = await use_ordered_model(
        scenario, RecordedTurn("So.", PLAN), *FIX_TURNS, AGAIN, allowed_models=choices, model_prices=PRICES
    )
    plan = await comment_job(scenario, "@agent plan model=second budget=1.50")
    await scenario.resolve(plan)
    assert "1 step of `openai/second`" in scenario.comments[-1]
    done = await scenario.resolve(await comment_job(scenario, "@agent go budget=9"))
    assert isinstance(done, Published)
    assert {request["model"] for request in endpoint.requests} == {"second"}
    configured = scenario.trajectory(plan.id).run_configured
    assert configured is not None and configured.models["act"] == "openai/second"
    assert str(configured.usd) == "2.00"
    assert "limited to $2.00 instead of the requested $9" in str(scenario.pull.body)


async def test_a_forbidden_model_is_rejected_with_the_allowed_ones(scenario: Scenario) -> None:
    await use_ordered_model(
        scenario, *FIX_TURNS, allowed_models="openai/second", browsing_model="openai/small"
    )
    assert await rejection_text(scenario, "@agent model=gpt-5 fix it") == (
        "The model `gpt-5` is not available here. "
        "Available models: `openai/scripted`, `openai/small`, `openai/second`."
    )
    assert scenario.endpoint.requests == []


@pytest.mark.slow
async def test_a_requested_budget_ends_the_run_before_the_operators_limit(scenario: Scenario) -> None:
    prices = '{"openai/scripted": {"input": 1000, "output": 1000}}'
    await use_ordered_model(
        scenario,
        RecordedTurn("Look.", LOOK),
        RecordedTurn("Fix.", FIX),
        AGAIN,
        model_prices=prices,
        max_usd=1000,
    )
    outcome = await scenario.resolve(await comment_job(scenario, "@agent budget=0.01 fix it"))
    assert isinstance(outcome, Reported)
    assert "The budget of $0.01 is spent" in scenario.comments[-1]
    assert len(scenario.endpoint.requests) == 1


SLIPS = {
    "@agent modle=x fix it": "There is no option `modle=x`. Did you mean `model=`?",
    "@agent fix it budget=lots": "`budget=lots` is not a dollar amount",
    "@agent retyr": "`retyr` is not a command. Did you mean `retry`?",
    "@agent rebase": "this command works on pull requests only. Write it on the pull request.",
    "@agent run-ci": "this command works on pull requests only. Write it on the pull request.",
    "@agent go": "I found no plan here that waits for approval.",
    "@agent resume": "I found no stopped run here that I could resume.",
}


@pytest.mark.slow
async def test_an_invalid_option_is_answered_and_starts_nothing(scenario: Scenario) -> None:
    await use_ordered_model(scenario, *FIX_TURNS)
    for number, (command, answer) in enumerate(SLIPS.items(), start=1):
        assert (await rejection_text(scenario, command)).startswith(answer[:1].upper() + answer[1:])
        assert len(scenario.comments) == 2 * number
    assert scenario.endpoint.requests == []


@pytest.mark.slow
async def test_the_base_option_uses_the_same_parser(scenario: Scenario) -> None:
    scenario.repo.commit("release/1", {"calc.py": CODE})
    await use_ordered_model(scenario, *FIX_TURNS, AGAIN)
    outcome = await scenario.resolve(await comment_job(scenario, "@agent fix it base=release/1"))
    assert isinstance(outcome, Published) and scenario.pull.base.ref == "release/1"
    refused = await scenario.resolve(await comment_job(scenario, "@agent base=release/2 fix it"))
    assert isinstance(refused, Rejected) and "release/2" in refused.explanation


@pytest.mark.slow
async def test_retry_repeats_the_options_of_the_last_run(scenario: Scenario) -> None:
    await use_ordered_model(scenario, RecordedTurn("Look.", LOOK), *FIX_TURNS, AGAIN, max_steps=1)
    await scenario.resolve(await comment_job(scenario, "@agent budget=1 mind the docs"))
    again = await comment_job(scenario, "@agent retry")
    scenario.environment["PATCHWRIGHT_MAX_STEPS"] = "20"
    outcome = await scenario.resolve(again)
    assert isinstance(outcome, Published)
    started = scenario.trajectory(again.id).run_started
    assert started is not None and started.job.command == "budget=1 mind the docs"
    messages = scenario.endpoint.requests[1]["messages"]
    assert "added:\\n> mind the docs" in str(messages)
    # It starts anew; a message about the tests on the untouched code may already be there.
    assert {message["role"] for message in messages} == {"system", "user"}
