"""Tools: what a model is shown, and what becomes of whatever it writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver.actions import Finish, Malformed, Think
from resolver.llm.model import ToolCall
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools
from runtime.actions import ReplaceText, RunShell, SandboxAction, ViewFile
from runtime.observations import Failed, Noted, Observation, Viewed


class Recording:
    """A sandbox that answers every action alike and remembers them."""

    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self) -> None:
        self.acted: list[SandboxAction] = []

    async def act(self, action: SandboxAction) -> Observation:
        self.acted.append(action)
        return Viewed(text="seen")


def all_tools(sandbox: Recording | None = None) -> Tools:
    return Tools((*sandbox_tools(sandbox or Recording()), *talk_tools()))


def call(name: str, arguments: object) -> ToolCall:
    return ToolCall(
        id="c1", name=name, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments)
    )


def test_every_action_that_a_model_may_call_is_a_tool_with_a_plain_schema() -> None:
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
            "path": {
                "type": "string",
                "minLength": 1,
                "description": ViewFile.model_fields["path"].description,
            },
            "start": {"type": "integer", "minimum": 1, "default": 1, "description": "First line to show."},
            "end": {
                "type": "integer",
                "minimum": 1,
                "description": ViewFile.model_fields["end"].description,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    for spec in specs.values():
        assert spec.description and "\n    " not in spec.description
        assert "$" not in json.dumps(spec.parameters) and "anyOf" not in json.dumps(spec.parameters)
        assert all(field["type"] and field["description"] for field in spec.parameters["properties"].values())


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
        ("run_shell", "", "`command`: Field required"),
        ("run_shell", "[1]", "a JSON array, not an object"),
        ("run_shell", '"ls"', "a JSON string, not an object"),
        ("run_shell", "7", "a JSON number, not an object"),
        (
            "run_shell",
            {"command": "ls", "timeout": 0},
            "`timeout`: Input should be greater than or equal to 1",
        ),
        ("run_shell", {"command": ["ls"]}, "`command`: Input should be a valid string"),
        ("run_shell", {"cmd": "ls"}, "`cmd`: Extra inputs are not permitted"),
        ("run_shell", {"command": "ls", "kind": "execute"}, "`kind`: Input should be 'run_shell'"),
        (
            "replace_text",
            {"path": "a", "old": "", "new": "b"},
            "`old`: String should have at least 1 character",
        ),
        ("replace_text", {"path": "a"}, "- `old`: string, required."),
        ("run_shell", '{"command": "\\ud800"}', "not valid JSON"),
        ("run_shell", "[" * 100_000, "not valid JSON"),
        ("think", '{"thought": "' + "x" * 1_000_000 + '"}', "1,000,000 are the limit"),
        ("runshell", {}, "there is no tool `runshell`. Did you mean `run_shell`?"),
        ("execute", {"argv": ["sh"]}, "there is no tool `execute`."),
        ("", {}, "there is no tool ``. The tools are run_shell, send_input, search_code"),
    ],
)
async def test_nonsense_becomes_an_observation_that_says_what_would_be_right(
    name: str, arguments: object, says: str
) -> None:
    tools = all_tools()
    action = tools.parse(call(name, arguments))
    assert isinstance(action, Malformed)
    assert len(action.arguments) <= 2_000
    answer = await tools.answer(action)
    assert isinstance(answer, Failed) and answer.reason == "malformed"
    assert says in answer.message
    assert answer.message.startswith("This call was not run")


@given(name=st.sampled_from(["run_shell", "think", "nothing"]), arguments=st.text())
def test_no_text_makes_parsing_raise(name: str, arguments: str) -> None:
    assert TOOLS.parse(ToolCall(id="c", name=name, arguments=arguments)).kind


@given(
    st.dictionaries(
        st.sampled_from(["command", "timeout", "path", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5
        ),
    )
)
def test_no_json_object_makes_parsing_raise(arguments: dict[str, object]) -> None:
    assert TOOLS.parse(call("run_shell", arguments)).kind in ("run_shell", "malformed")


TOOLS = all_tools()


async def test_sandbox_actions_go_to_the_sandbox_and_the_rest_does_not() -> None:
    sandbox = Recording()
    tools = all_tools(sandbox)
    edit = ReplaceText(path="a", old="b", new="c")
    assert await tools.answer(edit) == Viewed(text="seen")
    assert isinstance(await tools.answer(Think(thought="hm")), Noted)
    assert isinstance(await tools.answer(Finish(cause="a", change="b", checked="c")), Noted)
    assert sandbox.acted == [edit]
