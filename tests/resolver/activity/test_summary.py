"""Actions are described in one line each."""

import pytest
from pydantic import TypeAdapter

from patchwright.resolver.actions import (
    Action,
    Ask,
    Browse,
    CallTool,
    Delegate,
    MalformedCall,
    Plan,
    PlanItem,
    ProposePlan,
    ReadSkill,
    SearchWeb,
    Think,
)
from patchwright.resolver.descriptions import MAX_LINE, describe_action
from patchwright.runtime.actions import (
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
    Plan(items=(PlanItem(text="a", status="done"), PlanItem(text="b"))),
    Ask(question=LONG),
    ProposePlan(cause=LONG, steps=("a",), test_plan="b", risks="c"),
    ReadSkill(name=LONG[:200]),
    CallTool(name="numbers_add", arguments={"a": LONG}),
    Think(thought=LONG),
    MalformedCall(name="run_shell", arguments=LONG, problem=LONG),
)
OF_THE_PROGRAM = set(
    "run_shell_with_secrets host_reply execute start_process process_exchange interrupt fingerprint_tree "
    "read_bytes write_bytes".split()
)


@pytest.mark.parametrize("action", SAMPLES, ids=lambda action: action.kind)
def test_every_action_is_described_in_one_short_line(action: Action) -> None:
    line = describe_action(action)
    assert "\n" not in line and len(line) <= MAX_LINE
    assert len(line.split()) > 1, "a name alone says nothing to a reviewer"


def test_every_action_has_a_description() -> None:
    schema = TypeAdapter(Action).json_schema(by_alias=False)
    kinds = set(schema["discriminator"]["mapping"])
    assert kinds - OF_THE_PROGRAM == {action.kind for action in SAMPLES} | {"finish", "report"}
