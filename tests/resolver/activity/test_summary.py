"""Actions are described in one line each."""

import re

import pytest
from pydantic import TypeAdapter

from patchwright.resolver.actions import Action
from patchwright.resolver.activity.summary import list_steps, summarize_run
from patchwright.resolver.descriptions import describe_action
from patchwright.resolver.domain import Issue, User, Verdict
from patchwright.resolver.events import Message
from patchwright.resolver.publishing.reply_texts import render_pull_request_body
from patchwright.resolver.tool_actions.control_actions import Ask, Plan, ProposePlan, Think
from patchwright.resolver.tool_actions.lookup_actions import ReadSkill, SearchWeb, UseTool
from patchwright.resolver.tool_actions.subagent_actions import Browse, Delegate
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
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
from patchwright.runtime.output_text import MAX_LINE
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.sample_runs import run_of, shell_result, started, step

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
    UseTool(name="plan"),
    CallTool(name="numbers_add", arguments={"a": LONG}),
    Think(thought=LONG),
    MalformedCall(name="run_shell", arguments=LONG, problem=LONG),
)


@pytest.mark.parametrize("action", SAMPLES, ids=lambda action: action.kind)
def test_every_action_is_described_in_one_short_line(action: Action) -> None:
    line = describe_action(action)
    assert "\n" not in line and len(line) <= MAX_LINE
    assert len(line.split()) > 1, "a name alone says nothing to a reviewer"


def test_every_action_has_a_description() -> None:
    schema = TypeAdapter(Action).json_schema(by_alias=False)
    kinds = set(schema["discriminator"]["mapping"])
    assert kinds == {action.kind for action in SAMPLES} | {"finish", "report"}


@pytest.mark.parametrize("action", SAMPLES, ids=lambda action: action.kind)
def test_every_action_is_one_harmless_bullet_of_the_pull_request(action: Action) -> None:
    hostile = "a` @octocat\n- **evil** [x](http://x.test) <b>"
    changes = {name: hostile for name, value in action if value == LONG}
    run = run_of(started(), *step("a", action.model_copy(update=changes), shell_result("")))
    thread = Issue(
        number=7, title="t", body="", author=User(id=1, login="a"), trusted=True, open=True, url=""
    )
    body = render_pull_request_body(thread, Verdict(kind="fixed"), summarize_run(run))
    lines = body[body.index("How the agent worked") :].splitlines()
    (bullet,) = [line for line in lines if line.startswith("- **")]
    assert re.fullmatch(r"- \*\*1\*\* `[^`]+`: exit code 0", bullet), bullet
    assert "@octocat" not in bullet


def test_the_first_step_in_a_new_sandbox_is_marked() -> None:
    run = run_of(
        started(),
        *step("a", RunShell(command="make serve &"), shell_result("")),
        Message(text="Set up again.", source="resume", new_sandbox=True),
        *step("b", RunShell(command="make serve &"), shell_result("")),
        *step("c", RunShell(command="make test"), shell_result("")),
    )
    assert [each.is_first_in_new_sandbox for each in list_steps(run)] == [False, True, False]
    thread = Issue(
        number=7, title="t", body="", author=User(id=1, login="a"), trusted=True, open=True, url=""
    )
    body = render_pull_request_body(thread, Verdict(kind="fixed"), summarize_run(run))
    log = body[body.index("How the agent worked") :]
    lines = [line for line in log.splitlines() if line.startswith("- ")]
    assert lines[1] == (
        "- The run continued in a new sandbox. What the agent had started or installed in the old one is gone."
    )
    assert lines[0].startswith("- **1** ") and lines[2].startswith("- **2** ")
