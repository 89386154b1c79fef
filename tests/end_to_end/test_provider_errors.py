"""Provider errors: the run continues, or ends with a visible reason; costs are always counted."""

import asyncio
import json
import time
from collections.abc import Callable
from decimal import ROUND_DOWN, Decimal
from typing import Any

import pytest

from patchwright.bot.composition import composition_root
from patchwright.bot.github.auth import RequestPolicy
from patchwright.bot.job_runner import JobRunner
from patchwright.bot.jobs import Failed
from patchwright.bot.status_comment import report_failure
from patchwright.demo.recorded_model import (
    ModelFault,
    RecordedModel,
    RecordedTurn,
    html_page,
    rate_limited,
    reply_without_choices,
    server_error,
    truncated_reply,
)
from patchwright.resolver.cost import MinimumCost
from patchwright.resolver.domain import Published
from patchwright.resolver.events import AgentStopped, AuxiliaryModelCall, ModelReply
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, KEY, Scenario
from tests.end_to_end.scripted_models import (
    PRICES,
    SHOW_FAILURE,
    events_of_kind,
    resolve_to_pull_request,
    resolve_to_report,
    use_ordered_model,
)
from tests.end_to_end.test_agent_questions import comment

TURNS = (RecordedTurn("Look.", SHOW_FAILURE), *FIX_TURNS)
PASSING = (rate_limited(1), server_error(503), html_page(), truncated_reply(), reply_without_choices())


def refusal(status: int, code: str, message: str) -> ModelFault:
    return ModelFault(status=status, body=json.dumps({"error": {"message": message, "code": code}}))


FILTERED = refusal(400, "content_filter", "The response was filtered.")
NO_CREDIT = refusal(402, "insufficient_quota", "Your account has no credit left.")
WRONG_KEY = refusal(401, "invalid_api_key", "Incorrect API key provided.")


@pytest.fixture
def untested_scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    """A repository without tests: unfinished work is offered as a draft with the reason."""
    return make_scenario(files={"calc.py": CODE})


async def resolve_as_worker(scenario: Scenario) -> object:
    """Runs the job as the server's worker does: errors are reported in the thread."""
    settings = composition_root.read_settings({}, scenario.environment, None, None)
    async with composition_root.open_forge(
        settings, RequestPolicy(write_interval=0, initial_backoff=0.01)
    ) as forge:
        worker = JobRunner(scenario.resolve, lambda job, error: report_failure(forge, job, error))
        return await worker.run(scenario.job(), 1)


@pytest.mark.timeout(120)
@pytest.mark.slow
async def test_temporary_errors_are_retried_and_billed_failures_are_counted(
    scenario: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    left = dict(enumerate(PASSING))
    received: list[float] = []
    slow: list[int] = []

    async def trouble(turn: int, body: dict[str, Any]) -> None:
        received.append(time.monotonic())
        if fault := left.pop(turn, None):
            endpoint.add_faults(fault)
        elif turn == len(PASSING) - 1 and not slow:
            slow.append(turn)
            await asyncio.sleep(3.2)  # longer than any test waits
            endpoint.add_faults(server_error())  # nobody receives it

    endpoint = await use_ordered_model(
        scenario, *TURNS, on_request=trouble, model_timeout=3, model_prices=PRICES
    )
    assert (await resolve_to_pull_request(scenario)).startswith("**Fixed:**")
    assert not left
    retried = [record for record in caplog.records if record.getMessage() == "model request retried"]
    assert len(retried) == len(PASSING), "each but what was billed, and the one that was too slow"
    assert received[1] - received[0] >= 1, "the provider asked for a second"
    run = scenario.trajectory()
    spent = run.usage()
    assert spent.usd == Decimal(spent.prompt_tokens + 10 * spent.completion_tokens) / 10**6
    empty = run.replies()[len(PASSING) - 1]
    assert (empty.calls, empty.usage.prompt_tokens, empty.usage.completion_tokens) == ((), 1000, 50)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ([FILTERED], "filter"),
        ([rate_limited(3600)], "3,600 s"),
        ([server_error()] * 9, "Tried 2 times"),
    ],
    ids=["filtered", "wait of an hour", "down"],
)
async def test_a_permanent_error_ends_the_run_and_its_work_is_offered_with_the_reason(
    untested_scenario: Scenario, faults: list[ModelFault], reason: str
) -> None:
    def fail(turn: int, body: dict[str, Any]) -> None:
        if turn == 1:
            endpoint.add_faults(faults.pop(0))

    endpoint = await use_ordered_model(
        untested_scenario,
        RecordedTurn("Fix.", FIX),
        on_request=fail,
        model_retry_timeout=1.5,
        model_prices=PRICES,
    )
    body = await resolve_to_pull_request(untested_scenario)
    (ended,) = events_of_kind(untested_scenario, "agent_stopped")
    assert isinstance(ended, AgentStopped) and ended.reason == "error"
    assert ended.detail in body and reason in ended.detail
    assert body.startswith("**Stopped early:**") and "The agent stopped before it described its work." in body
    assert "**To ask for changes,** mention `@agent` in a comment." in body


@pytest.mark.slow
async def test_a_run_that_outlasted_its_provider_keeps_its_log_and_is_resumed_by_a_comment(
    scenario: Scenario,
) -> None:
    faults = [server_error(503)] * 9

    def fail(turn: int, body: dict[str, Any]) -> None:
        if turn == 1 and faults:
            endpoint.add_faults(faults.pop())

    endpoint = await use_ordered_model(scenario, *TURNS, on_request=fail, model_retry_timeout=1.5)
    report = await resolve_to_report(scenario)
    assert "comment `@agent resume`" in report and "Tried 2 times" in report
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    requested = await comment(scenario, "@agent resume")
    faults.clear()
    outcome = await scenario.resolve(requested)
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    assert len(scenario.repo.pulls) == 1
    replies = [event for event in scenario.trajectory(scenario.job().id) if isinstance(event, ModelReply)]
    assert [reply.thought for reply in replies[:2]] == ["Look.", "Fix it."]  # no reply is paid twice


@pytest.mark.slow
async def test_empty_billed_replies_end_the_run_and_are_counted(untested_scenario: Scenario) -> None:
    endpoint = await use_ordered_model(untested_scenario, RecordedTurn("Never said."), model_prices=PRICES)
    endpoint.add_faults(*[reply_without_choices()] * 3)
    assert "3 replies in a row without calling a tool" in await resolve_to_report(untested_scenario)
    spent = untested_scenario.trajectory().usage()
    assert (spent.prompt_tokens, spent.completion_tokens, spent.usd) == (3000, 150, Decimal("0.0045"))


@pytest.mark.slow
async def test_a_second_model_without_a_price_is_not_reported_as_free(untested_scenario: Scenario) -> None:
    def fail(turn: int, body: dict[str, Any]) -> None:
        if (
            turn == 1 and body["model"] == "scripted"
        ):  # it fails after billing, and the retry is out of credit
            endpoint.add_faults(NO_CREDIT if "cut" in left else truncated_reply())
            left.append("cut")

    left: list[str] = []
    prices = json.dumps({"openai/scripted": json.loads(PRICES)["openai/scripted"]})
    endpoint = await use_ordered_model(
        untested_scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE), on_request=fail,
        model_fallbacks="openai/second", model_prices=prices,
    )  # fmt: skip
    body = await resolve_to_pull_request(untested_scenario)
    run = untested_scenario.trajectory()
    both, cost = run.replies()[1].usage, run.usage().cost
    assert (
        isinstance(both.usd, MinimumCost) and isinstance(cost, MinimumCost) and both.model == "openai/second"
    )
    (comment,) = untested_scenario.comments
    lower_bound = cost.usd.quantize(Decimal("0.0001"), ROUND_DOWN)
    assert f"then `openai/second` · at least ${lower_bound} · " in body
    assert f"at least ${lower_bound} · " in comment
    assert "$2.00 (as far as prices are known)" in body
    _, out, _ = await untested_scenario.command("runs", "--json")
    (listed,) = json.loads(out)["runs"]
    assert (listed["cost_usd"], listed["cost_usd_at_least"]) == (None, float(cost.usd))


@pytest.mark.slow
async def test_a_model_that_calls_no_tools_is_reported_in_the_thread_before_the_work(
    untested_scenario: Scenario,
) -> None:
    weak = RecordedModel([RecordedTurn("I would rather talk.")], key=KEY, answers_probes=False)
    endpoint = await untested_scenario.stack.enter_async_context(weak)
    untested_scenario.environment["PATCHWRIGHT_MODEL_BASE_URL"] = endpoint.base_url
    failed = await resolve_as_worker(untested_scenario)
    assert isinstance(failed, Failed) and failed.fault == "settings"
    (comment,) = untested_scenario.comments
    assert "The model openai/scripted cannot do the work, so nothing was started" in comment
    assert len(endpoint.requests) == 2 and not events_of_kind(untested_scenario, "model_reply")
    (billed,) = events_of_kind(untested_scenario, "auxiliary_model_call")
    assert isinstance(billed, AuxiliaryModelCall) and billed.usage.prompt_tokens > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "expected"),
    [(WRONG_KEY, "PATCHWRIGHT_MODEL_API_KEY"), (NO_CREDIT, "credit")],
    ids=["key", "credit"],
)
async def test_a_rejected_account_is_reported_in_the_thread_and_the_run_continues_once_fixed(
    untested_scenario: Scenario, fault: ModelFault, expected: str
) -> None:
    def refuse(turn: int, body: dict[str, Any]) -> None:
        if turn == 1 and len(endpoint.requests) == 2:
            endpoint.add_faults(fault)

    endpoint = await use_ordered_model(
        untested_scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE), on_request=refuse
    )
    assert isinstance(await resolve_as_worker(untested_scenario), Failed)
    (comment,) = untested_scenario.comments
    assert comment.startswith("**Not done.**") and expected in comment
    assert untested_scenario.repo.pulls == ()
    outcome = await untested_scenario.resolve()
    assert isinstance(outcome, Published)
    assert [type(event) for event in untested_scenario.trajectory()].count(ModelReply) == len(
        endpoint.requests
    ) - 1
