"""A file of the repository defines a micro agent, and a run calls it."""

import json
from collections.abc import Callable

import pytest

from patchwright.demo.recorded_model import RecordedCall, RecordedTurn
from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.domain import Published
from patchwright.resolver.events import SystemPrompt, ToolResult
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.multi_agent_model import use_multi_agent_model
from tests.resolver.delegation.test_micro_agents import AGENT, INPUT, OUTPUT, PATH, REPORTED, TASK

FILES = {
    "calc.py": CODE,
    "more.py": "def doubled(a):\n    return add(a, a)\n",
    "tests/test_calc.py": TESTS,
    PATH: AGENT,
    ".agents/skills/broken.md": AGENT.replace("input:", "asked:"),
}


def call(tool: str, **arguments: object) -> RecordedCall:
    return RecordedCall(name=tool, arguments=arguments)


@pytest.mark.slow
async def test_a_file_defines_a_micro_agent_with_validated_input_and_output(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=FILES)
    first_turn, *rest = FIX_TURNS
    asks = RecordedTurn(
        "Ask.", calls=(call("ask_find-callers", name="add"), call("ask_find-callers", **INPUT))
    )
    works = (
        RecordedTurn("Look.", RunShell(command="grep -rn 'add(' --include=*.py . && rm calc.py")),
        RecordedTurn("There.", calls=(call("report", text="more.py:2"),)),
        RecordedTurn("There.", calls=(call("report", **OUTPUT),)),
    )
    model = await use_multi_agent_model(scenario, first_turn, asks, *rest, others={TASK: works})
    assert isinstance(await scenario.resolve(), Published)

    first, *_ = model.requests_by_question[""]
    offered = {tool["function"]["name"]: tool["function"] for tool in first["tools"]}
    assert [name for name in offered if name.startswith("ask_")] == ["ask_find-callers"]
    assert list(offered["ask_find-callers"]["parameters"]["properties"]) == ["symbol"]
    assert ".agents/skills/broken.md is not a usable micro agent" in json.dumps(first["messages"])

    run = scenario.trajectory(scenario.job().id)
    results = {event.call_id: event.observation for event in run if isinstance(event, ToolResult)}
    wrong, right = run.replies()[1].calls
    refused, report = results[wrong.id], results[right.id]
    assert isinstance(wrong.action, MalformedCall) and isinstance(refused, ActionFailure)
    assert "'symbol' is a required property" in refused.message
    assert right.action == CallTool(name="ask_find-callers", arguments=INPUT)
    assert isinstance(report, SubagentResult) and report.status == "answered"
    assert (report.results[0].text, report.usage.steps) == (REPORTED, 3)

    child = scenario.trajectory(run.subagents()[0][0].run)
    prompted = next(event for event in child if isinstance(event, SystemPrompt))
    assert "give each place as `file:line`" in prompted.text and child.subagent_started is not None
    assert child.subagent_started.depth == 2 and child.subagent_started.task == TASK
    messages = [
        message["content"]
        for message in model.requests_by_question[TASK][-1]["messages"]
        if message["role"] == "tool"
    ]
    assert "This call was not run." in messages[-1] and "`places`: array, required." in messages[-1]
    assert "a + b" in scenario.repo.diff(scenario.pull)  # what it removed was in its own copy


@pytest.mark.slow
async def test_without_delegates_there_is_no_micro_agent(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(files=FILES)
    scenario.environment["PATCHWRIGHT_MAX_SUBAGENT_STEPS"] = "0"
    model = await use_multi_agent_model(scenario, *FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    names = {tool["function"]["name"] for tool in model.requests_by_question[""][0]["tools"]}
    assert not [name for name in names if name.startswith("ask_")]
