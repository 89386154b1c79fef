"""The contract of every built-in tool: its schema is valid, a call becomes its action, whose execution has a result,
and a wrong call is explained.
"""

import json

import jsonschema
import mcp.types
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.delegation.delegate_tool import build_report_tools
from patchwright.resolver.llm.model import RawToolCall, ToolSpec
from patchwright.resolver.tool_actions.control_actions import Finish, Report
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.entry_point_tools import FunctionTool
from patchwright.resolver.tools.further_tools import build_use_tool_spec
from patchwright.resolver.tools.plan_mode import apply_plan_mode
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ActionTool, Tool, ToolRegistry
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.features import ALL_FEATURES
from patchwright.runtime.observations import ActionFailure, Observation, TextResult
from tests.resolver.activity.test_summary import SAMPLES
from tests.resolver.agent_runs import FakeSandbox

CALLS = [
    action for action in (*SAMPLES, Finish(cause="a", change="b", testing="c"), Report(text="a"))
    if action.kind not in ("malformed_call", "call_tool")  # no tools: calls that are not checked yet
]  # fmt: skip


NEED_MORE = {"use_browser", "browse", "delegate", "search_web", "read_skill", "use_tool"}
"""Tools that need a browser, a model, skills or another machine; tests of their own execute them."""


async def show(action: Action) -> Observation:
    return TextResult(text=f"did {action.kind}")


async def test_a_call_is_checked_against_the_schema_executed_and_answered(sandboxes: LocalSandboxes) -> None:
    async with sandboxes.open("contract") as sandbox:
        tools = (*build_sandbox_tools(sandbox, ALL_FEATURES), *build_control_tools(), *build_report_tools())
        real = {tool.spec.name: tool for tool in (*tools, *apply_plan_mode((), planning=True))}
        assert {action.kind for action in CALLS} - real.keys() == NEED_MORE
        for action in CALLS:
            await check_tool(real.get(action.kind, ActionTool(type(action), show)), action)


async def check_tool(tool: Tool, action: Action) -> None:
    tools = ToolRegistry((tool,))
    (spec,) = tools.specs
    jsonschema.Draft202012Validator.check_schema(spec.parameters)
    dumped = action.model_dump(mode="json", exclude_none=True, by_alias=False)
    arguments = {name: value for name, value in dumped.items() if name in spec.parameters["properties"]}
    jsonschema.validate(arguments, spec.parameters)

    parsed = tools.parse(RawToolCall(id="c", name=spec.name, arguments=json.dumps(arguments)))
    assert parsed == action
    TypeAdapter(AnyObservation).validate_python(await tools.execute(parsed))

    wrong = RawToolCall(id="c", name=spec.name, arguments=json.dumps(arguments | {"surprise": 1}))
    malformed = tools.parse(wrong)
    assert isinstance(malformed, MalformedCall) and "`surprise` is not a field" in malformed.problem
    answer = await tools.execute(malformed)
    assert isinstance(answer, ActionFailure) and answer.reason == "malformed"


def convert(text: str, size: int = 3, names: list[str] | None = None) -> str:
    """Convert a text."""
    return text


BUILT_IN = [ActionTool(type(action), show).spec for action in CALLS]
SPECS = (*BUILT_IN, build_use_tool_spec(BUILT_IN), FunctionTool(convert, FakeSandbox()).spec)  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_one_definition_has_the_format_of_each_api(spec: ToolSpec) -> None:
    """The libraries of the APIs define the formats."""
    chat = TypeAdapter(ChatCompletionFunctionToolParam).validate_python(spec.to_openai_tool())
    responses = TypeAdapter(FunctionToolParam).validate_python(spec.to_responses_tool())
    listed = mcp.types.Tool.model_validate(spec.to_mcp_tool())
    # pydantic leaves out a key that a format of OpenAI does not have.
    assert (chat, responses) == (spec.to_openai_tool(), spec.to_responses_tool())
    assert not listed.model_extra
    function = chat["function"]
    assert [
        (function["name"], function["description"], function["parameters"]),
        (responses["name"], responses["description"], responses["parameters"]),
        (listed.name, listed.description, listed.inputSchema),
    ] == [(spec.name, spec.description, spec.parameters)] * 3
