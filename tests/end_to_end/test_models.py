"""Complete runs with models that lack function calling or fail during the run."""

from typing import Any

import pytest

from patchwright.demo.recorded_model import ModelFault, RecordedCall, RecordedTurn
from patchwright.resolver.domain import JobId, Published
from patchwright.resolver.events import ModelReply, ToolResult
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure
from tests.bot.github.test_attachments import png
from tests.end_to_end.conftest import FIX_TURNS, Scenario

pytestmark = pytest.mark.slow

FAILS = RunShell(command='python3 -c "from calc import add; assert add(2, 3) == 5"')
TURNS = (RecordedTurn("See it fail.", FAILS), *FIX_TURNS)
NO_CREDIT = ModelFault(status=402, body='{"error": {"message": "Your account has no credit left."}}')


def in_tags(call: RecordedCall) -> str:
    """Writes a call as a model without function calling does: with the parameters that the prompt describes."""
    assert isinstance(call.arguments, dict)
    data = {
        name: value for name, value in call.arguments.items() if name != "thread_replies"
    }  # only for pull requests
    fields = [f"<{name}>\n{value}\n</{name}>" for name, value in data.items()]
    return "\n".join([f'<call name="{call.name}">', *fields, "</call>"])


async def test_a_model_without_function_calling_fixes_the_issue(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_TOOL_CALLING"] = "text"
    await scenario.script_model(
        RecordedTurn('Look.\n<call name="run_shell">\n<timeout>soon</timeout>\n</call>'),
        *[RecordedTurn("\n".join([turn.thought, *map(in_tags, turn.calls)])) for turn in TURNS],
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    assert not any("tools" in request for request in scenario.endpoint.requests)
    roles = [message["role"] for message in scenario.endpoint.requests[-1]["messages"]]
    assert roles == ["system", *["user", "assistant"] * len(TURNS), "user"]
    first = next(event.observation for event in scenario.trajectory() if isinstance(event, ToolResult))
    assert isinstance(first, ActionFailure) and first.reason == "malformed"
    assert "`timeout`: must be a valid integer" in scenario.endpoint.requests[1]["messages"][-1]["content"]


async def test_an_issue_with_an_image_goes_to_the_multimodal_model(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_MULTIMODAL_MODEL"] = "openai/gpt-4o"
    await scenario.script_model(*TURNS)
    assert isinstance(await scenario.resolve(), Published)
    assert {request["model"] for request in scenario.endpoint.requests} == {"scripted"}
    scenario.issue.body = f"![it]({scenario.fake_github.add_attachment('assets/shot', png())})"
    await scenario.script_model(*TURNS)
    await scenario.resolve(scenario.job().model_copy(update={"id": JobId("with-an-image")}))
    assert {request["model"] for request in scenario.endpoint.requests} == {"gpt-4o"}


async def test_a_model_of_the_responses_api_fixes_the_issue(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_MODEL"] = "openai/responses/scripted"
    await scenario.script_model(*TURNS)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    assert all("input" in request and "messages" not in request for request in scenario.endpoint.requests)


async def test_a_fallback_model_completes_a_run_whose_model_fails(
    scenario: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    def no_credit_after_two_replies(turn: int, request: dict[str, Any]) -> None:
        if request["model"] != "second" and turn >= 2:
            scenario.endpoint.add_faults(NO_CREDIT)

    scenario.environment["PATCHWRIGHT_MODEL_FALLBACKS"] = "openai/second"
    await scenario.script_model(*TURNS, on_request=no_credit_after_two_replies)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    spoke = [event.usage.model for event in scenario.trajectory() if isinstance(event, ModelReply)]
    first = scenario.environment["PATCHWRIGHT_MODEL"]
    assert spoke == [first, first, *["openai/second"] * (len(TURNS) - 2)]
    requests = [request["model"] for request in scenario.endpoint.requests]
    name = first.partition("/")[2]
    assert requests == [name, name, name, *["second"] * (len(TURNS) - 2)], "and it stays there"
    assert [record.getMessage() for record in caplog.records].count("model fell back") == 1
    assert scenario.pull.body is not None
    assert f"steps of `{first}`, then `openai/second` ·" in scenario.pull.body
