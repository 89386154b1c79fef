"""The contract of every built-in tool: its schema is valid, a call becomes its action, and a wrong one is explained."""

import json

import jsonschema
import pytest

from patchwright.resolver.actions import Action
from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.tool import ActionTool, ToolRegistry
from patchwright.runtime.observations import ActionFailure, Observation, TextResult
from tests.resolver.activity.test_summary import SAMPLES

CALLS = [
    action for action in (*SAMPLES, Finish(cause="a", change="b", testing="c"))
    if action.kind not in ("malformed_call", "call_tool")  # no tools: calls that are not checked yet
]  # fmt: skip


async def show(action: Action) -> Observation:
    return TextResult(text=f"did {action.kind}")


@pytest.mark.parametrize("action", CALLS, ids=lambda action: action.kind)
async def test_a_call_is_checked_against_the_schema_executed_and_answered(action: Action) -> None:
    tools = ToolRegistry((ActionTool(type(action), show),))
    (spec,) = tools.specs
    jsonschema.Draft202012Validator.check_schema(spec.parameters)
    dumped = action.model_dump(mode="json", exclude_none=True, by_alias=False)
    arguments = {name: value for name, value in dumped.items() if name in spec.parameters["properties"]}
    jsonschema.validate(arguments, spec.parameters)

    parsed = tools.parse(RawToolCall(id="c", name=spec.name, arguments=json.dumps(arguments)))
    assert parsed == action
    assert await tools.execute(parsed) == TextResult(text=f"did {action.kind}")

    wrong = RawToolCall(id="c", name=spec.name, arguments=json.dumps(arguments | {"surprise": 1}))
    malformed = tools.parse(wrong)
    assert isinstance(malformed, MalformedCall) and "`surprise` is not a field" in malformed.problem
    answer = await tools.execute(malformed)
    assert isinstance(answer, ActionFailure) and answer.reason == "malformed"
