"""Tools that few runs need are called through `use_tool`, and the log is the same as after a direct call."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.events import ModelReply, ReplyUsage
from patchwright.resolver.llm.model import AssistantMessage, RawToolCall, Reply, ToolMessage
from patchwright.resolver.llm.text_tool_calls import parse_text_calls
from patchwright.resolver.llm.text_tool_model import to_text_conversation
from patchwright.resolver.run_log import FileRunLog
from patchwright.resolver.tool_actions.control_actions import Finish, Plan
from patchwright.resolver.tool_actions.lookup_actions import UseTool
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.resolver.viewer.replay import replay_run
from patchwright.runtime.actions import RunPython, RunShell, SendInput
from patchwright.runtime.features import ALL_FEATURES
from patchwright.runtime.observations import Acknowledgment, ActionFailure, TextResult
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.agent_runs import FakeSandbox, make_agent
from tests.resolver.scripted_model import ScriptedModel

TOOLS = (*build_sandbox_tools(FakeSandbox(), ALL_FEATURES), *build_control_tools())
REGISTRY = ToolRegistry(TOOLS, ("run_shell", "finish"))
PLAN: dict[str, Any] = {"items": [{"text": "Rename it."}]}


def call(name: str, arguments: object = None, **more: object) -> RawToolCall:
    fields = {"name": name} | ({} if arguments is None else {"arguments": arguments}) | more
    return RawToolCall(id="c1", name="use_tool", arguments=json.dumps(fields))


def test_a_request_contains_only_the_offered_tools_and_the_names_of_the_others() -> None:
    assert [spec.name for spec in REGISTRY.specs] == ["run_shell", "finish", "use_tool"]
    lines = REGISTRY.specs[-1].description.splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == [
        f"- {tool.spec.name}" for tool in TOOLS if tool.spec.name not in ("run_shell", "finish")
    ]
    assert "- undo_edit: Undo the last edit." in lines


@pytest.mark.parametrize("offered", [("run_shell",), ("run_shell", "send_input")])
def test_a_terminal_is_offered_only_with_the_tool_that_types_into_it(offered: tuple[str, ...]) -> None:
    registry = ToolRegistry(TOOLS, offered)
    assert ("interactive" in registry.specs[0].parameters["properties"]) == ("send_input" in offered)
    wrapped = call("run_shell", {"command": "ed", "interactive": True})
    assert registry.parse(wrapped) == RunShell(command="ed", interactive=True)


def test_without_further_tools_there_is_no_use_tool() -> None:
    assert "use_tool" not in [spec.name for spec in ToolRegistry(TOOLS).specs]


async def test_a_call_without_arguments_returns_the_description_and_the_fields() -> None:
    action = REGISTRY.parse(call("send_input"))
    assert action == UseTool(name="send_input")
    shown = await REGISTRY.execute(action)
    assert isinstance(shown, TextResult)
    assert "the new output when the command ends" in shown.text
    assert "- `key`: ctrl-c or ctrl-d or kill, may be left out." in shown.text
    assert shown.text.endswith("To call it, pass this object to use_tool as `arguments`.")


@pytest.mark.parametrize("arguments", [PLAN, json.dumps(PLAN)], ids=["object", "text"])
def test_a_call_with_arguments_is_the_action_of_the_named_tool(arguments: object) -> None:
    assert REGISTRY.parse(call("plan", arguments)) == Plan(items=(PlanItem(text="Rename it."),))
    assert REGISTRY.parse(call("send_input", {})) == SendInput()


def test_a_direct_call_of_a_further_tool_is_accepted() -> None:
    raw = RawToolCall(id="c1", name="run_python", arguments='{"code": "1"}')
    assert REGISTRY.parse(raw) == RunPython(code="1")


@pytest.mark.parametrize(
    ("raw", "name", "expected"),
    [
        (call("plan", {"points": []}), "plan", "`plan` takes one JSON object"),
        (call("plan", "[not json"), "plan", "not valid JSON"),
        (call("reboot", {"now": True}), "reboot", "there is no tool `reboot`"),
        (call("plan", items=[]), "use_tool", "`items` is not a field"),
        (RawToolCall(id="c1", name="use_tool", arguments="[1"), "use_tool", "not valid JSON"),
        (RawToolCall(id="c1", name="use_tool", arguments="{}"), "use_tool", "`name` is missing"),
    ],
)
def test_a_wrong_call_is_answered_with_the_form_of_the_tool(
    raw: RawToolCall, name: str, expected: str
) -> None:
    action = REGISTRY.parse(raw)
    assert isinstance(action, MalformedCall) and action.name == name and expected in action.problem


@given(
    arguments=st.text() | st.dictionaries(st.sampled_from(["name", "arguments"]), st.text()).map(json.dumps)
)
@example(arguments="[" * 100_000)
@example(arguments='{"name": "plan", "arguments": {"items": NaN}}')
def test_no_text_makes_parsing_raise(arguments: str) -> None:
    assert REGISTRY.parse(RawToolCall(id="c", name="use_tool", arguments=arguments)).kind


async def test_an_unknown_tool_cannot_be_looked_up() -> None:
    result = await REGISTRY.execute(REGISTRY.parse(call("reboot")))
    assert isinstance(result, ActionFailure) and "There is no tool `reboot`" in result.message


async def run_plan(log: FileRunLog, plan: RawToolCall, offered: tuple[str, ...] | None) -> None:
    finish = RawToolCall(
        id="f", name="finish", arguments=json.dumps({"cause": "a", "change": "b", "testing": "c"})
    )
    usage = ReplyUsage(model="scripted")
    model = ScriptedModel([Reply(text="", tool_calls=(one,), usage=usage) for one in (plan, finish)])
    agent = make_agent(model, FakeSandbox())
    agent.tools = ToolRegistry(TOOLS, offered)
    await record_prompts(log, "You fix.", "Issue 7", agent.tools)
    await agent.run(log)


async def test_the_log_is_the_same_as_after_a_direct_call(tmp_path: Path) -> None:
    direct, wrapped = FileRunLog(tmp_path / "direct.jsonl"), FileRunLog(tmp_path / "wrapped.jsonl")
    await run_plan(direct, RawToolCall(id="c1", name="plan", arguments=json.dumps(PLAN)), None)
    await run_plan(wrapped, call("plan", PLAN), ("run_shell", "finish"))
    (one, _), (other, _) = direct.trajectory.replies(), wrapped.trajectory.replies()
    assert isinstance(other, ModelReply) and one.calls == other.calls
    assert [step.is_identical for step in replay_run(wrapped.trajectory)] == [True, True]


async def test_the_model_sees_its_call_as_it_made_it(tmp_path: Path) -> None:
    log = FileRunLog(tmp_path / "log.jsonl")
    await run_plan(log, call("plan", PLAN), ("run_shell", "finish"))
    reply, result = build_messages(log.trajectory)[2:4]
    assert isinstance(reply, AssistantMessage) and isinstance(result, ToolMessage)
    (shown,) = reply.tool_calls
    assert (shown.name, json.loads(shown.arguments)) == ("use_tool", {"name": "plan", "arguments": PLAN})
    assert result.text == "Noted: 1 of 1 left."


async def test_a_model_without_tool_calls_uses_further_tools_too(tmp_path: Path) -> None:
    log = FileRunLog(tmp_path / "log.jsonl")
    await run_plan(log, call("plan", PLAN), ("run_shell", "finish"))
    text = to_text_conversation(build_messages(log.trajectory), REGISTRY.specs)
    assert "- plan: Keep a list of tasks" in text[0].text
    reply = text[2].text
    _, calls = parse_text_calls(reply, REGISTRY.specs, "t")
    assert [REGISTRY.parse(one) for one in calls] == [Plan(items=(PlanItem(text="Rename it."),))]
    _, calls = parse_text_calls("```python\nprint(1)\n```", REGISTRY.specs, "t")
    assert [REGISTRY.parse(one) for one in calls] == [RunPython(code="print(1)")]


async def test_a_further_tool_does_what_it_does_when_offered() -> None:
    result = await REGISTRY.execute(REGISTRY.parse(call("plan", PLAN)))
    assert result == Acknowledgment(text="Noted: 1 of 1 left.")
    assert isinstance(REGISTRY.parse(call("finish", {"cause": "a", "change": "b", "testing": "c"})), Finish)
