"""The contract of every built-in tool: its schema is valid, a call becomes its action, whose execution has a result,
and a wrong call is explained.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import jsonschema
import mcp.types
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.browsing.browser_options import build_browser_tools
from patchwright.resolver.delegation.delegate_tool import build_report_tools
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ModelReply, ReplyUsage, ToolCall
from patchwright.resolver.llm.model import RawToolCall, ToolSpec
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.skills.skills import RepoSkills
from patchwright.resolver.tool_actions.control_actions import Finish, Report
from patchwright.resolver.tool_actions.subagent_actions import Delegate
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.entry_point_tools import FunctionTool
from patchwright.resolver.tools.further_tools import build_use_tool_spec
from patchwright.resolver.tools.plan_mode import apply_plan_mode
from patchwright.resolver.tools.read_skill_tool import build_skill_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.search_providers import SearchResults
from patchwright.resolver.tools.search_web_tool import SearchWebTool
from patchwright.resolver.tools.tool import ActionTool, ToolRegistry
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.features import ALL_FEATURES
from patchwright.runtime.observations import ActionFailure, Observation, TextResult
from tests.resolver.activity.test_summary import SAMPLES
from tests.resolver.agent_runs import FakeSandbox
from tests.resolver.delegation_runs import MultiAgentModel, delegating_run
from tests.resolver.fake_browser import BLANK, FakeBrowserSandbox, browsing_parent, code_reply, page
from tests.resolver.scripted_model import ScriptedModel

CALLS = [
    action for action in (*SAMPLES, Finish(cause="a", change="b", testing="c"), Report(text="a"))
    if action.kind not in ("malformed_call", "call_tool")  # no tools: calls that are not checked yet
]  # fmt: skip


async def show(action: Action) -> Observation:
    return TextResult(text=f"did {action.kind}")


class FakeSearchClient:
    """Finds nothing."""

    name = "Fake"

    async def search(self, query: str) -> SearchResults:
        return SearchResults(provider=self.name, results=())


@asynccontextmanager
async def open_tools(sandboxes: LocalSandboxes, directory: Path) -> AsyncIterator[dict[str, ToolRegistry]]:
    """Yields the registry of each built-in tool. Only the browser, the other agents and the search engine are fakes."""
    answer = page("RootWebArea 'Shop'").model_copy(update={"user_message": "42"})
    task = next(action.tasks[0] for action in CALLS if isinstance(action, Delegate))
    investigators = MultiAgentModel([], {task: [Report(text="It adds.")]})
    async with (
        sandboxes.open("contract") as sandbox,
        browsing_parent(
            directory / "browse", FakeBrowserSandbox(BLANK, answer), [code_reply('send_msg_to_user("42")')]
        ) as (browse_log, browsing, _),
        delegating_run(directory / "delegate", investigators) as delegating,
        FileLogStore(directory / "search").open(RunId("run")) as search_log,
    ):
        settings = Settings(data=directory, agent_uses_browser=True)
        tools = (
            *build_sandbox_tools(sandbox, ALL_FEATURES),
            *build_browser_tools(
                settings, ALL_FEATURES, ScriptedModel([], sees=True), FakeBrowserSandbox(answer)
            ),
            *SearchWebTool(FakeSearchClient(), search_log, Secrets([]), max_searches=1).tools(),
            *build_skill_tools(RepoSkills()),
            *build_control_tools(),
            *build_report_tools(),
            *apply_plan_mode((), planning=True),
        )
        with_use_tool = ToolRegistry(build_control_tools(), offered=())
        for log, kind in ((browse_log, "browse"), (delegating.log, "delegate")):
            # These tools run while their call waits for its result.
            (action,) = (action for action in CALLS if action.kind == kind)
            call = ToolCall(id="c", action=action)
            await log.append(ModelReply(thought="", calls=(call,), usage=ReplyUsage(model="m")))
        yield {
            **{tool.spec.name: ToolRegistry((tool,)) for tool in tools},
            "use_tool": with_use_tool,
            "browse": browsing.tools,
            "delegate": delegating.agent.tools,
        }


async def test_a_call_is_checked_against_the_schema_executed_and_answered(
    sandboxes: LocalSandboxes, tmp_path: Path
) -> None:
    async with open_tools(sandboxes, tmp_path) as registries:
        assert registries.keys() == {action.kind for action in CALLS}
        for action in CALLS:
            await check_tool(registries[action.kind], action)


async def check_tool(tools: ToolRegistry, action: Action) -> None:
    (spec,) = (spec for spec in tools.specs if spec.name == action.kind)
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
SPECS = (*BUILT_IN, build_use_tool_spec(BUILT_IN), FunctionTool(convert, FakeSandbox()).spec)


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
