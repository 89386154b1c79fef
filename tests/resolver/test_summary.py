"""Calls as a reviewer reads them, a line each."""

import pytest
from pydantic import TypeAdapter

from resolver.actions import (
    Action,
    Ask,
    Browse,
    CallTool,
    Delegate,
    Malformed,
    Plan,
    PlanItem,
    Propose,
    ReadSkill,
    SearchWeb,
    Think,
)
from resolver.summary import LINE, did
from runtime.actions import (
    CreateFile,
    InsertText,
    ReplaceText,
    RunPython,
    RunShell,
    SearchCode,
    SendInput,
    UndoEdit,
    UseBrowser,
    ViewFile,
)

LONG = "first line\nsecond `line` " + "x" * 500
SAMPLES: tuple[Action, ...] = (
    RunShell(command=LONG),
    SendInput(text=LONG),
    RunPython(code=LONG),
    UseBrowser(code=LONG),
    ViewFile(path=LONG, start=2),
    SearchCode(query=LONG),
    CreateFile(path=LONG, content=""),
    ReplaceText(path=LONG, old="a", new="b"),
    InsertText(path=LONG, line=1, text="x"),
    UndoEdit(path=LONG),
    Browse(task=LONG),
    SearchWeb(query=LONG[:300]),
    Delegate(tasks=(LONG,)),
    Plan(items=(PlanItem(text="a", state="done"), PlanItem(text="b"))),
    Ask(question=LONG),
    Propose(cause=LONG, steps=("a",), proof="b", risks="c"),
    ReadSkill(name=LONG[:200]),
    CallTool(name="numbers_add", arguments={"a": LONG}),
    Think(thought=LONG),
    Malformed(name="run_shell", arguments=LONG, problem=LONG),
)
OF_THE_PROGRAM = set(
    "run_lent provide execute start_stream converse interrupt mark_tree read_bytes write_bytes".split()
)


@pytest.mark.parametrize("action", SAMPLES, ids=lambda action: action.kind)
def test_every_call_is_one_short_line_that_says_what_it_was_about(action: Action) -> None:
    line = did(action)
    assert "\n" not in line and len(line) <= LINE
    assert len(line.split()) > 1, "a name alone says nothing to a reviewer"


def test_no_action_of_a_model_is_left_out() -> None:
    schema = TypeAdapter(Action).json_schema(by_alias=False)
    kinds = set(schema["discriminator"]["mapping"])
    assert kinds - OF_THE_PROGRAM == {action.kind for action in SAMPLES} | {"finish", "report"}
