"""A file of the repository defines a micro agent, and a run calls it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedCall, RecordedTurn
from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.domain import Published, Reported
from patchwright.resolver.events import SystemPrompt, ToolResult
from patchwright.resolver.tool_actions.control_actions import Report
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
from patchwright.runtime.actions import ReplaceText, RunShell
from patchwright.runtime.observations import ActionFailure, ShellResult
from tests.end_to_end.comments import comment_job, rejection_text
from tests.end_to_end.conftest import CODE, DONE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.multi_agent_model import use_multi_agent_model
from tests.end_to_end.scripted_models import SHOW_FAILURE, use_ordered_model
from tests.end_to_end.test_plans import PLAN
from tests.resolver.delegation.test_micro_agents import AGENT, INPUT, OUTPUT, PATH, REPORTED, TASK

TYPOS = Path(__file__).parents[1] / "integration" / "typos"
FILES = {
    "calc.py": CODE,
    "more.py": "def doubled(a):\n    return add(a, a)\n",
    "tests/test_calc.py": TESTS,
    PATH: AGENT,
    ".agents/skills/broken.md": AGENT.replace("input:", "asked:"),
}


def call(tool: str, **arguments: object) -> RecordedCall:
    return RecordedCall(name=tool, arguments=arguments)


@pytest.mark.slow
async def test_a_file_defines_a_micro_agent_with_validated_input_and_output(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=FILES)
    scenario.environment["PATCHWRIGHT_MAX_SUBAGENT_STEPS"] = "20"
    first_turn, *rest = FIX_TURNS
    asks = RecordedTurn(
        "Ask.", calls=(call("ask_find-callers", name="add"), call("ask_find-callers", **INPUT))
    )
    works = (
        RecordedTurn("Look.", RunShell(command="grep -rn 'add(' --include=*.py . && rm calc.py")),
        RecordedTurn("There.", calls=(call("report", text="more.py:2"),)),
        RecordedTurn("There.", calls=(call("report", **OUTPUT),)),
    )
    model = await use_multi_agent_model(scenario, first_turn, asks, *rest, others={TASK: works})
    assert isinstance(await scenario.resolve(), Published)

    first, *_ = model.requests_by_question[""]
    offered = {tool["function"]["name"]: tool["function"] for tool in first["tools"]}
    assert [name for name in offered if name.startswith("ask_")] == ["ask_find-callers"]
    assert list(offered["ask_find-callers"]["parameters"]["properties"]) == ["symbol"]
    assert ".agents/skills/broken.md is not a usable micro agent" in json.dumps(first["messages"])

    run = scenario.trajectory(scenario.job().id)
    results = {event.call_id: event.observation for event in run if isinstance(event, ToolResult)}
    wrong, right = run.replies()[1].calls
    refused, report = results[wrong.id], results[right.id]
    assert isinstance(wrong.action, MalformedCall) and isinstance(refused, ActionFailure)
    assert "'symbol' is a required property" in refused.message
    assert right.action == CallTool(name="ask_find-callers", arguments=INPUT)
    assert isinstance(report, SubagentResult) and report.status == "answered"
    assert (report.results[0].text, report.usage.steps) == (REPORTED, 3)

    child = scenario.trajectory(run.subagents()[0][0].run)
    prompted = next(event for event in child if isinstance(event, SystemPrompt))
    assert "give each place as `file:line`" in prompted.text and child.subagent_started is not None
    assert child.subagent_started.depth == 2 and child.subagent_started.task == TASK
    messages = [
        message["content"]
        for message in model.requests_by_question[TASK][-1]["messages"]
        if message["role"] == "tool"
    ]
    assert "This call was not run." in messages[-1] and "`places`: array, required." in messages[-1]
    assert "a + b" in scenario.repo.diff(scenario.pull)  # what it removed was in its own copy


@pytest.mark.slow
async def test_by_default_the_agent_gets_no_micro_agents(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(files=FILES)
    model = await use_multi_agent_model(scenario, *FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    request = model.requests_by_question[""][0]
    assert "ask_find-callers" not in json.dumps(request["tools"])


LOOK = RecordedTurn("Look.", SHOW_FAILURE)
EDITOR = """---
name: editor
description: Edits one thing.
agent: true
edits: true
input: {properties: {what: {type: string}}, required: [what]}
output: {properties: {done: {type: string}}, required: [done]}
---
Do what the input says.
"""


def edit(command: str, report: str | None) -> tuple[RecordedTurn, ...]:
    """Returns the turns of a micro agent that runs a command and then reports, or never reports."""
    act = RecordedTurn("Edit.", RunShell(command=command))
    return (act, RecordedTurn("Done.", calls=(call("report", done=report),)) if report else act)


@pytest.mark.slow
async def test_a_micro_agent_edits_the_parents_tree_and_what_fails_or_is_forbidden_is_undone(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=FILES | {".agents/skills/editor.md": EDITOR})
    scenario.environment["PATCHWRIGHT_MAX_SUBAGENT_STEPS"] = "2"
    tasks = ("good", "forbidden", "unfinished")
    asks = (RecordedTurn(f"Ask: {what}.", calls=(call("ask_editor", what=what),)) for what in tasks)
    look = RecordedTurn("Look.", RunShell(command="git status --short && cat calc.py"))
    scripts = (
        edit("echo '# good' >> calc.py && echo 1 > new.txt", "added"),
        edit(
            "mkdir -p .github/workflows && echo 1 > .github/workflows/x.yml && echo '# bad' >> calc.py",
            "added",
        ),
        edit("echo '# half' >> calc.py && rm new.txt more.py", None),
    )
    others = {json.dumps({"what": what}): script for what, script in zip(tasks, scripts, strict=True)}
    await use_multi_agent_model(scenario, *asks, look, *FIX_TURNS, others=others)
    assert isinstance(await scenario.resolve(), Published)
    run = scenario.trajectory(scenario.job().id)
    results = {event.call_id: event.observation for event in run if isinstance(event, ToolResult)}
    good, forbidden, unfinished, looked = (results[reply.calls[0].id] for reply in run.replies()[:4])
    assert isinstance(good, SubagentResult) and good.status == "answered"
    assert isinstance(forbidden, SubagentResult) and forbidden.status == "unfinished"
    assert (
        ".github/workflows/x.yml" in forbidden.text
        and "All changes of this agent were undone." in forbidden.text
    )
    assert isinstance(unfinished, SubagentResult) and unfinished.status == "unfinished"
    assert "All changes of this agent were undone." in unfinished.text
    assert isinstance(looked, ShellResult) and looked.output.split("\n")[:2] == [" M calc.py", "?? new.txt"]
    assert "# good" in looked.output and "# bad" not in looked.output and "# half" not in looked.output
    assert [spawned.role for spawned, _ in run.subagents()] == ["edit"] * 3
    assert "# good" in scenario.repo.read("patchwright/issue-1", "calc.py")
    assert scenario.repo.read("patchwright/issue-1", "new.txt") == "1\n"


@pytest.mark.slow
async def test_a_plan_calls_no_micro_agent_that_edits(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(files=FILES | {".agents/skills/editor.md": EDITOR})
    scenario.environment["PATCHWRIGHT_MAX_SUBAGENT_STEPS"] = "20"
    ask = RecordedTurn("Ask.", calls=(call("ask_editor", what="good"),))
    await use_multi_agent_model(scenario, ask, RecordedTurn("So.", PLAN), others={})
    job = await comment_job(scenario, "@agent plan it")
    await scenario.resolve(job)
    run = scenario.trajectory(job.id)
    (refused,) = [event.observation for event in run if isinstance(event, ToolResult)][:1]
    assert isinstance(refused, ActionFailure) and "until a person approves your plan" in refused.message
    assert run.subagents() == ()


@pytest.mark.slow
async def test_a_comment_addresses_a_micro_agent_of_the_repository_or_of_patchwright(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=FILES)
    await scenario.script_model(*FIX_TURNS)
    refused = await rejection_text(scenario, "@agent use find-callers: add()")
    assert refused.startswith("The agent `find-callers` only answers questions.")
    assert "Ask it with `explain use find-callers:`" in refused
    assert (await rejection_text(scenario, "@agent use typo-fixr")).startswith(
        "There is no agent `typo-fixr`: did you mean `typo-fixer`?"
    )
    await scenario.script_model(RecordedTurn("There.", Report(text="In more.py:2.")))
    answer = await scenario.resolve(await comment_job(scenario, "@agent explain use find-callers: of add()?"))
    assert isinstance(answer, Reported) and "In more.py:2." in scenario.comments[-1]
    system = scenario.endpoint.requests[0]["messages"][0]["content"]
    assert "The maintainers of this repository wrote this task for you." in system
    assert "give each place as `file:line`" in system


@pytest.mark.slow
async def test_the_typo_fixer_corrects_a_file_as_in_the_gold_file(
    make_scenario: Callable[..., Scenario],
) -> None:
    seeded, gold = ((TYPOS / name / "bad.txt").read_text() for name in ("workspace", "gold"))
    scenario = make_scenario(files=FILES | {"bad.txt": seeded})
    pairs = zip(seeded.splitlines(), gold.splitlines(), strict=True)
    edits = [ReplaceText(path="bad.txt", old=old, new=new) for old, new in pairs if old != new]
    await scenario.script_model(RecordedTurn("Correct.", *edits), RecordedTurn("Done.", DONE))
    outcome = await scenario.resolve(await comment_job(scenario, "@agent use typo-fixer: all files"))
    assert isinstance(outcome, Published) and len(edits) == 3
    assert scenario.repo.read("patchwright/issue-1", "bad.txt") == gold
    system, task, *_ = [message["content"] for message in scenario.endpoint.requests[0]["messages"]]
    assert "You work as the agent typo-fixer. Patchwright's developers wrote this task for you." in system
    assert "Correct spelling mistakes, doubled words" in system and "> all files" in task


@pytest.mark.slow
async def test_the_commit_writer_reads_the_diff_and_its_message_is_used(scenario: Scenario) -> None:
    message = {
        "subject": "Fix: Add instead of subtracting",
        "body": "The sign was wrong since it was rewritten.",
    }
    written = RecordedTurn("", calls=(call("report", **message),))
    endpoint = await use_ordered_model(scenario, LOOK, *FIX_TURNS, written, commit_writer="true")
    assert isinstance(await scenario.resolve(), Published)
    commit = scenario.repo.bare.git("log", "-1", "--format=%B", "patchwright/issue-1").decode()
    subject, mark, body, *_ = commit.split("\n\n")
    assert {"subject": subject, "body": body} == message and mark == "[skip ci]"
    system, task = [one["content"] for one in endpoint.requests[-1]["messages"]]
    assert 'It starts with "Fix: " only if the change repairs wrong behavior' in system
    given = json.loads(task)
    assert "+    return a + b" in given["diff"] and given["request"].startswith("add(2, 3) gives -1")
    assert [tool["function"]["name"] for tool in endpoint.requests[-1]["tools"]] == ["report"]
    assert scenario.trajectory().usage().steps == 1 + len(FIX_TURNS)


@pytest.mark.slow
async def test_an_unusable_message_of_the_commit_writer_is_replaced(scenario: Scenario) -> None:
    wrong = RecordedTurn("", calls=(call("report", subject="x" * 73, body=""),))
    await use_ordered_model(scenario, LOOK, *FIX_TURNS, wrong, commit_writer="true")
    assert isinstance(await scenario.resolve(), Published)
    commit = scenario.repo.bare.git("log", "-1", "--format=%B", "patchwright/issue-1").decode()
    assert commit.startswith("Fix: add(2, 3) gives -1\n\n[skip ci]\n\nadd() subtracted.")
