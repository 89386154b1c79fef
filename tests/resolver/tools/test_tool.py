"""Tools: their schemas, and the parsing of any call that a model writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.tool_actions.control_actions import Finish, Think
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry, build_parameters_schema
from patchwright.runtime.actions import ReplaceText, RunShell, SandboxAction, ViewFile
from patchwright.runtime.observations import Acknowledgment, ActionFailure, Observation, TextResult


class RecordingSandbox:
    """A sandbox that answers every action alike and records them."""

    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self) -> None:
        self.acted: list[SandboxAction] = []

    async def act(self, action: SandboxAction) -> Observation:
        self.acted.append(action)
        return TextResult(text="seen")


UNDESCRIBED = {"run_shell": {"command"}, "view_file": {"path"}, "replace_text": {"path", "new"}}
"""Fields whose names say enough, by tool. All other fields have a description."""


def all_tools(sandbox: RecordingSandbox | None = None) -> ToolRegistry:
    return ToolRegistry((*build_sandbox_tools(sandbox or RecordingSandbox()), *build_control_tools()))


def call(name: str, arguments: object) -> RawToolCall:
    return RawToolCall(
        id="c1", name=name, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments)
    )


def test_every_action_has_a_tool_with_a_simple_schema() -> None:
    specs = {spec.name: spec for spec in all_tools().specs}
    assert list(specs) == [
        "run_shell",
        "send_input",
        "search_code",
        "view_file",
        "create_file",
        "replace_text",
        "insert_text",
        "undo_edit",
        "think",
        "plan",
        "ask",
        "finish",
    ]
    assert specs["view_file"].parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "start": {"type": "integer", "default": 1, "description": "First line."},
            "end": {
                "type": "integer",
                "description": ViewFile.model_fields["end"].description,
            },
            "numbers": {"type": "boolean", "description": "With line numbers."},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    for spec in specs.values():
        assert spec.description and "\n    " not in spec.description
        assert "$" not in json.dumps(spec.parameters) and "anyOf" not in json.dumps(spec.parameters)
        fields = spec.parameters["properties"]
        assert all(field["type"] for field in fields.values())
        undescribed = {name for name, field in fields.items() if not field.get("description")}
        assert undescribed <= UNDESCRIBED.get(spec.name, set()), spec.name


def test_arguments_become_an_action() -> None:
    tools = all_tools()
    assert tools.parse(call("run_shell", {"command": "ls", "timeout": "5"})) == RunShell(
        command="ls", timeout=5
    )
    assert tools.parse(call("view_file", {"path": "a", "end": None})) == ViewFile(path="a")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("run_shell", '{"command": "ls', "not valid JSON: EOF while parsing a string at line 1 column 15"),
        ("run_shell", "", "`command` is missing."),
        ("run_shell", "[1]", "a JSON array, not an object"),
        ("run_shell", '"ls"', "a JSON string, not an object"),
        ("run_shell", "7", "a JSON number, not an object"),
        (
            "run_shell",
            {"command": "ls", "timeout": 0},
            "`timeout`: must be greater than or equal to 1",
        ),
        ("run_shell", {"command": ["ls"]}, "`command`: must be a valid string"),
        ("run_shell", {"cmd": "ls"}, "`cmd` is not a field. Did you mean `command`?"),
        ("run_shell", {"command": "ls", "kind": "execute"}, "`kind`: must be 'run_shell'"),
        (
            "replace_text",
            {"path": "a", "old": "", "new": "b"},
            "`old`: String should have at least 1 character",
        ),
        ("replace_text", {"path": "a"}, "- `old`: string, required."),
        ("run_shell", '{"command": "\\ud800"}', "not valid JSON"),
        ("run_shell", "[" * 100_000, "not valid JSON"),
        ("think", '{"thought": "' + "x" * 1_000_000 + '"}', "the limit is 1,000,000"),
        ("runshell", {}, "there is no tool `runshell`. Did you mean `run_shell`?"),
        ("execute", {"argv": ["sh"]}, "there is no tool `execute`."),
        ("", {}, "there is no tool ``. The tools are run_shell, send_input, search_code"),
    ],
)
async def test_malformed_calls_are_answered_with_the_correct_form(
    name: str, arguments: object, says: str
) -> None:
    tools = all_tools()
    action = tools.parse(call(name, arguments))
    assert isinstance(action, MalformedCall)
    assert len(action.arguments) <= 2_000
    answer = await tools.execute(action)
    assert isinstance(answer, ActionFailure) and answer.reason == "malformed"
    assert says in answer.message
    assert answer.message.startswith("This call was not run")


def test_a_call_of_an_unknown_tool_is_shown_as_such() -> None:
    unknown, malformed = all_tools().parse(call("open_file", {})), all_tools().parse(call("run_shell", "{"))
    assert unknown.describe().title == "call of open_file, but there is no such tool"
    assert malformed.describe().title.startswith(
        "call of run_shell that could not be parsed: This call was not run"
    )


@given(name=st.sampled_from(["run_shell", "think", "nothing"]), arguments=st.text())
def test_no_text_makes_parsing_raise(name: str, arguments: str) -> None:
    assert TOOLS.parse(RawToolCall(id="c", name=name, arguments=arguments)).kind


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(["command", "timeout", "path", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5
        ),
    )
)
def test_no_json_object_makes_parsing_raise(arguments: dict[str, object]) -> None:
    assert TOOLS.parse(call("run_shell", arguments)).kind in ("run_shell", "malformed_call")


TOOLS = all_tools()


async def test_only_sandbox_actions_go_to_the_sandbox() -> None:
    sandbox = RecordingSandbox()
    tools = all_tools(sandbox)
    edit = ReplaceText(path="a", old="b", new="c")
    assert await tools.execute(edit) == TextResult(text="seen")
    assert isinstance(await tools.execute(Think(thought="hm")), Acknowledgment)
    assert isinstance(await tools.execute(Finish(cause="a", change="b", testing="c")), Acknowledgment)
    assert sandbox.acted == [edit]


def test_the_schema_of_an_action_is_built_once_and_never_changed() -> None:
    (issue,) = (tool for tool in build_control_tools(has_review_threads=False) if tool.kind == "finish")
    (review,) = (tool for tool in build_control_tools() if tool.kind == "finish")
    assert build_parameters_schema(Finish) is build_parameters_schema(Finish) == review.spec.parameters
    assert set(review.spec.parameters["properties"]) - set(issue.spec.parameters["properties"]) == {
        "thread_replies"
    }
