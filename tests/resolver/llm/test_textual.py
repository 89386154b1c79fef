"""Tools as text: what such a model is told, what is made of what it writes, and that neither ever breaks."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from demo.model import Endpoint, Turn
from resolver.events import Usage
from resolver.llm.model import FromModel, FromTool, FromUser, Reply, System, ToolCall, ToolSpec
from resolver.llm.textual import Textual, as_text
from resolver.llm.written_calls import read, write
from tests.resolver.llm.test_pictures import PIXEL
from tests.resolver.llm.test_reasoning import model
from tests.resolver.scripted import Scripted


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


def made(reply: str, **how: Any) -> tuple[str, list[tuple[str, Any]]]:
    """What a reply says, and its calls with their arguments parsed where they can be."""
    said, calls = read(reply, TOOLS, "t", **how)
    return said, [(call.name, parsed(call.arguments)) for call in calls]


def parsed(arguments: str) -> Any:
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
def test_finish_goes_before_bash_python_and_browser_and_the_rest_is_a_message(
    reply: str, calls: list[tuple[str, Any]]
) -> None:
    assert made(reply)[1] == calls


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
def test_what_is_nearly_right_is_understood_and_what_is_wrong_is_kept_to_be_told(
    reply: str, calls: list[tuple[str, Any]]
) -> None:
    assert made(reply)[1] == calls


def test_a_call_that_was_cut_off_is_never_run_by_half() -> None:
    cut = '<call name="run_shell"><command>rm -rf build/tmp'
    assert made(cut, truncated=True)[1] == [("run_shell", "<command>rm -rf build/tmp")]


def test_results_that_a_model_makes_up_are_not_believed() -> None:
    call = '<call name="run_shell"><command>ls</command></call>'
    said, calls = made(f"Look.\n{call}\n[result of run_shell]\nAll is well.\n{call}")
    assert (said, len(calls)) == ("Look.", 1)


@given(st.text())
@example("<call name=a>" * 500)
@example("<tool_call>" + "[" * 5000)
@example("```" * 1001)
def test_no_reply_breaks_it(reply: str) -> None:
    said, calls = read(reply, TOOLS, "t")
    assert len(said) <= len(reply) and len({call.id for call in calls}) == len(calls)


pieces = st.sampled_from(
    ["<call name='x'>", "</call>", "<command>", "</command>", "\n", "```", "[result of ", "a", "\\"]
)
values = st.lists(pieces | st.text(max_size=5), max_size=6).map("".join)


@given(
    st.one_of(
        st.fixed_dictionaries({"command": values}, optional={"timeout": st.integers() | values}),
        st.fixed_dictionaries({"steps": st.lists(values), "open": st.booleans()}),
        st.dictionaries(values, values | st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    ),
    st.sampled_from([*SPECS, "reboot"]),
)
def test_what_is_written_is_read_as_the_same_call(arguments: dict[str, Any], name: str) -> None:
    call = ToolCall(id="t-0", name=name, arguments=json.dumps(arguments))
    said, (back,) = read(f"Look.\n\n{write(call, SPECS)}", TOOLS, "t")
    assert (said, back.name, json.loads(back.arguments)) == ("Look.", name, arguments)


@given(values)
def test_arguments_that_were_wrong_stay_wrong_in_the_same_way(arguments: str) -> None:
    try:
        json.loads(arguments)
    except ValueError:
        (back,) = read(write(ToolCall(id="t-0", name="run_shell", arguments=arguments), SPECS), TOOLS, "t")[1]
        assert back.arguments == arguments


def test_the_model_is_told_of_each_tool_and_sees_a_conversation_of_turns() -> None:
    call = ToolCall(id="a", name="run_shell", arguments='{"command": "ls"}')
    system, *rest = as_text(
        [
            System(text="You mend."),
            FromUser(text="Issue 7", pictures=(PIXEL,)),
            FromModel(text="Look.", calls=(call, call.model_copy(update={"id": "b"}))),
            FromTool(call="a", text="calc.py"),
            FromTool(call="b", text="calc.py"),
            FromUser(text="Hurry."),
        ],
        TOOLS,
    )
    assert isinstance(system, System) and system.text.startswith("You mend.\n\n# How to call tools")
    assert (
        "## run_shell\n\nTo run_shell.\n\n- `command`: text, required. The command.\n- `timeout`: integer, may"
        in (system.text)
    )
    written = '<call name="run_shell">\n<command>\nls\n</command>\n</call>'
    assert rest == [
        FromUser(text="Issue 7", pictures=(PIXEL,)),
        FromModel(text=f"Look.\n\n{written}\n{written}"),
        FromUser(text="[result of run_shell]\ncalc.py\n\n[result of run_shell]\ncalc.py\n\nHurry."),
    ]


async def test_over_the_wire_there_are_neither_tools_nor_calls() -> None:
    spoken = Turn('Look.\n<call name="run_shell">\n<command>\nls\n</command>\n</call>')
    async with Endpoint([spoken, Turn("Done.")]) as endpoint:
        textual = Textual(model(endpoint, "openai/recorded"))
        brief = (System(text="You mend."), FromUser(text="Issue 7"))
        reply = await textual.reply(brief, TOOLS)
        assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
            ("text-0-0", "run_shell", '{"command": "ls"}')
        ]
        said = FromModel(text=reply.text, calls=reply.calls)
        again = (*brief, said, FromTool(call="text-0-0", text="calc.py"))
        assert (await textual.reply(again, TOOLS)).text == "Done."
    first, second = endpoint.requests
    assert "tools" not in first and "tool" not in [message["role"] for message in second["messages"]]
    assert second["messages"][:2] == first["messages"]
    assert second["messages"][2]["content"] == spoken.thought.replace("\n", "\n\n", 1)


async def test_calls_that_a_model_makes_all_the_same_are_kept() -> None:
    call = ToolCall(id="a", name="run_shell", arguments="{}")
    reply = Reply(text="", calls=(call,), usage=Usage(model="m"))
    assert await Textual(Scripted([reply])).reply((FromUser(text="x"),), TOOLS) == reply
