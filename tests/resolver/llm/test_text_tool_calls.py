"""Tools as text: the prompt, the parsed calls, and robustness against any reply."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import (
    AssistantMessage,
    RawToolCall,
    Reply,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from patchwright.resolver.llm.text_tool_calls import format_text_call, parse_text_calls
from patchwright.resolver.llm.text_tool_model import TextToolModel, to_text_conversation
from tests.resolver.llm.test_chat_completions import PIXEL
from tests.resolver.llm.test_reasoning import model
from tests.resolver.scripted_model import ScriptedModel


def spec(name: str, required: list[str], **fields: str) -> ToolSpec:
    properties = {key: {"type": kind, "description": f"The {key}."} for key, kind in fields.items()}
    return ToolSpec(
        name=name,
        description=f"To {name}.",
        parameters={"type": "object", "properties": properties, "required": required},
    )


TOOLS = (
    spec("run_shell", ["command"], command="string", timeout="integer"),
    spec("run_python", ["code"], code="string"),
    spec("use_browser", ["code"], code="string"),
    spec("finish", ["cause", "change"], cause="string", change="string"),
    spec("plan", ["steps"], steps="array", open="boolean"),
)
SPECS = {tool.name: tool for tool in TOOLS}


def parse(reply: str, **how: Any) -> tuple[str, list[tuple[str, Any]]]:
    """Returns the text of a reply and its calls, with their arguments parsed if possible."""
    parsed, calls = parse_text_calls(reply, TOOLS, "t", **how)
    return parsed, [(call.name, parse_json(call.arguments)) for call in calls]


def parse_json(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


FINISH = "<call name='finish'>\n<cause>\nx < y\n</cause>\n<change>\nNone.\n</change>\n</call>"
BASH, PYTHON, BROWSER = "```bash\nls -la\n```", "```python\nprint(1)\n```", "```browser\ngoto('x')\n```"


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (FINISH, [("finish", {"cause": "x < y", "change": "None."})]),
        (f"{BASH}\n{FINISH}", [("finish", {"cause": "x < y", "change": "None."})]),
        ("```finish\n<cause>x</cause><change>y</change>\n```", [("finish", {"cause": "x", "change": "y"})]),
        (f"Look.\n{BASH}", [("run_shell", {"command": "ls -la"})]),
        (f"{PYTHON}\n{BASH}", [("run_shell", {"command": "ls -la"})]),
        (f"{BROWSER}\n{PYTHON}", [("run_python", {"code": "print(1)"})]),
        (BROWSER, [("use_browser", {"code": "goto('x')"})]),
        ("I am not sure what to do.", []),
        ("```text\nnothing to run\n```", []),
        ("", []),
    ],
    ids="finish finish-first finish-fenced bash bash-first python-first browser message text empty".split(),
)
def test_finish_wins_over_bash_python_and_browser_blocks(reply: str, calls: list[tuple[str, Any]]) -> None:
    assert parse(reply)[1] == calls


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        ('<call name="run_shell">\nls\n</call>', [("run_shell", {"command": "ls"})]),
        ("<call name=run_shell><command>a</command><timeout> 5 </timeout></call>",
         [("run_shell", {"command": "a", "timeout": 5})]),
        ('<call name="run_shell"><command>a && b < c', [("run_shell", {"command": "a && b < c"})]),
        ('<call name="plan"><steps>["a"]</steps><open>maybe</open></call>',
         [("plan", {"steps": ["a"], "open": "maybe"})]),
        ('<call name="finish">done</call>', [("finish", "done")]),
        ('<call name="reboot"><now>yes</now></call>', [("reboot", {"now": "yes"})]),
        ('<tool_call>{"name": "run_shell", "arguments": {"command": "ls"}}</tool_call>',
         [("run_shell", {"command": "ls"})]),
        ("<tool_call>run ls</tool_call>", [("tool_call", "run ls")]),
        ('```json\n{"name": "run_shell", "arguments": {"command": "ls"}}\n```',
         [("run_shell", {"command": "ls"})]),
        ('<call name="run_shell"><command>a</command></call>' * 2, [("run_shell", {"command": "a"})] * 2),
    ],
)  # fmt: skip
def test_nearly_correct_calls_are_parsed_and_wrong_ones_are_kept(
    reply: str, calls: list[tuple[str, Any]]
) -> None:
    assert parse(reply)[1] == calls


def test_a_truncated_call_is_never_executed() -> None:
    cut = '<call name="run_shell"><command>rm -rf build/tmp'
    assert parse(cut, truncated=True)[1] == [("run_shell", "<command>rm -rf build/tmp")]


def test_made_up_results_are_dropped() -> None:
    call = '<call name="run_shell"><command>ls</command></call>'
    text, calls = parse(f"Look.\n{call}\n[result of run_shell]\nAll is well.\n{call}")
    assert (text, len(calls)) == ("Look.", 1)


@pytest.mark.slow
@given(st.text())
@example("<call name=a>" * 500)
@example("<tool_call>" + "[" * 5000)
@example("```" * 1001)
def test_no_reply_makes_the_text_parser_raise(reply: str) -> None:
    parsed, calls = parse_text_calls(reply, TOOLS, "t")
    assert len(parsed) <= len(reply) and len({call.id for call in calls}) == len(calls)


pieces = st.sampled_from(
    ["<call name='x'>", "</call>", "<command>", "</command>", "\n", "```", "[result of ", "a", "\\"]
)
values = st.lists(pieces | st.text(max_size=5), max_size=6).map("".join)


@pytest.mark.slow
@given(
    st.one_of(
        st.fixed_dictionaries({"command": values}, optional={"timeout": st.integers() | values}),
        st.fixed_dictionaries({"steps": st.lists(values), "open": st.booleans()}),
        st.dictionaries(values, values | st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    ),
    st.sampled_from([*SPECS, "reboot"]),
)
def test_a_formatted_call_is_parsed_as_the_same_call(arguments: dict[str, Any], name: str) -> None:
    call = RawToolCall(id="t-0", name=name, arguments=json.dumps(arguments))
    parsed, (back,) = parse_text_calls(f"Look.\n\n{format_text_call(call, SPECS)}", TOOLS, "t")
    assert (parsed, back.name, json.loads(back.arguments)) == ("Look.", name, arguments)


@given(values)
def test_invalid_arguments_survive_formatting_and_parsing(arguments: str) -> None:
    try:
        json.loads(arguments)
    except ValueError:
        (back,) = parse_text_calls(
            format_text_call(RawToolCall(id="t-0", name="run_shell", arguments=arguments), SPECS), TOOLS, "t"
        )[1]
        assert back.arguments == arguments


def test_the_prompt_describes_each_tool_and_alternates_turns() -> None:
    call = RawToolCall(id="a", name="run_shell", arguments='{"command": "ls"}')
    system, *rest = to_text_conversation(
        [
            SystemMessage(text="You fix."),
            UserMessage(text="Issue 7", images=(PIXEL,)),
            AssistantMessage(text="Look.", tool_calls=(call, call.model_copy(update={"id": "b"}))),
            ToolMessage(tool_call_id="a", text="calc.py"),
            ToolMessage(tool_call_id="b", text="calc.py"),
            UserMessage(text="Hurry."),
        ],
        TOOLS,
    )
    assert isinstance(system, SystemMessage) and system.text.startswith("You fix.\n\n# How to call tools")
    assert (
        "## run_shell\n\nTo run_shell.\n\n- `command`: text, required. The command.\n- `timeout`: integer, may"
        in (system.text)
    )
    written = '<call name="run_shell">\n<command>\nls\n</command>\n</call>'
    assert rest == [
        UserMessage(text="Issue 7", images=(PIXEL,)),
        AssistantMessage(text=f"Look.\n\n{written}\n{written}"),
        UserMessage(text="[result of run_shell]\ncalc.py\n\n[result of run_shell]\ncalc.py\n\nHurry."),
    ]


async def test_the_request_contains_neither_tools_nor_calls() -> None:
    spoken = RecordedTurn('Look.\n<call name="run_shell">\n<command>\nls\n</command>\n</call>')
    async with RecordedModel([spoken, RecordedTurn("Done.")]) as endpoint:
        textual = TextToolModel(model(endpoint, "openai/recorded"))
        brief = (SystemMessage(text="You fix."), UserMessage(text="Issue 7"))
        reply = await textual.reply(brief, TOOLS)
        assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
            ("text-0-0", "run_shell", '{"command": "ls"}')
        ]
        assistant_message = AssistantMessage(text=reply.text, tool_calls=reply.tool_calls)
        again = (*brief, assistant_message, ToolMessage(tool_call_id="text-0-0", text="calc.py"))
        assert (await textual.reply(again, TOOLS)).text == "Done."
    first, second = endpoint.requests
    assert "tools" not in first and "tool" not in [message["role"] for message in second["messages"]]
    assert second["messages"][:2] == first["messages"]
    assert second["messages"][2]["content"] == spoken.thought.replace("\n", "\n\n", 1)


async def test_native_calls_of_the_model_are_kept() -> None:
    call = RawToolCall(id="a", name="run_shell", arguments="{}")
    reply = Reply(text="", tool_calls=(call,), usage=ReplyUsage(model="m"))
    assert await TextToolModel(ScriptedModel([reply])).reply((UserMessage(text="x"),), TOOLS) == reply
