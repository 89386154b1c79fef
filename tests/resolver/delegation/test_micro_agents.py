"""Micro agents: one file defines one, input and output are validated, and an invalid file does no harm."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.agent.messages import render_observation
from patchwright.resolver.delegation.delegate_tool import MAX_REPORT
from patchwright.resolver.delegation.micro_agents import MAX_INPUT_LENGTH, build_micro_agent_tools
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ModelReply, ReplyUsage, SystemPrompt
from patchwright.resolver.llm.model import RawToolCall, Reply, ToolMessage
from patchwright.resolver.preparation.instructions import select_instructions
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.skills.skills import MAX_AGENTS, MAX_PROMPT, RepoSkill
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
from patchwright.runtime.actions import RunShell
from tests.resolver.delegation_runs import FINISH, MultiAgentModel, delegating_run, first_result
from tests.resolver.skills.test_skills import found as found
from tests.resolver.skills.test_skills import issue, written

AGENT = """---
name: find-callers
description: Find every caller of one function.
agent: true
input:
  properties:
    symbol: {type: string, description: Its name., minLength: 1}
  required: [symbol]
output:
  properties:
    places: {type: array, items: {type: string}}
    complete: {type: boolean}
  required: [places]
---
Look with `search_code`, and give each place as `file:line`.
"""
PATH = ".agents/skills/find-callers.md"
INPUT, OUTPUT = {"symbol": "add"}, {"places": ["more.py:2"], "complete": True}
TASK = '{"symbol": "add"}'
REPORTED = '{"places": ["more.py:2"], "complete": true}'


def reply_with_calls(name: str, *several: dict[str, Any]) -> Reply:
    """Returns a reply with these calls of one tool."""
    made = tuple(
        RawToolCall(id=f"c{number}", name=name, arguments=json.dumps(each))
        for number, each in enumerate(several)
    )
    return Reply(text="", tool_calls=made, usage=ReplyUsage(model="scripted"))


@pytest.fixture
async def skill(found: Any) -> RepoSkill:
    """The micro agent in the file."""
    (skill,) = (await found({PATH: AGENT})).agents
    assert isinstance(skill, RepoSkill)
    return skill


# --- definition ---------------------------------------------------------------------------------------------


async def test_a_file_alone_makes_a_tool_with_its_description_and_input(
    skill: RepoSkill, tmp_path: Path
) -> None:
    async with delegating_run(tmp_path, MultiAgentModel([], {}), skills=[skill]) as run:
        (spec,) = [spec for spec in run.agent.tools.specs if spec.name.startswith("ask_")]
    assert spec.name == "ask_find-callers" and PATH in spec.description
    assert spec.description.startswith("Find every caller of one function.\n")
    assert spec.parameters == {
        "type": "object",
        "properties": {"symbol": {"type": "string", "description": "Its name.", "minLength": 1}},
        "required": ["symbol"],
        "additionalProperties": False,
    }


async def test_a_micro_agents_instructions_are_not_in_the_first_message(found: Any) -> None:
    skills = await found({PATH: AGENT})
    result = select_instructions(skills, issue("find-callers"), "", 8_000)
    assert "search_code" not in written(result) and "find-callers" not in written(result)
    assert not result.has_more_to_read and not skills.problems


async def test_a_file_for_another_programs_agent_stays_a_skill(found: Any) -> None:
    text = "---\nname: db\nagent: CodeActAgent\ntriggers: [alembic]\n---\nMigrate."
    (skill,) = (await found({".openhands/microagents/db.md": text})).skills
    assert (skill.kind, skill.form) == ("triggered", None)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("input:", "inputs:", "its input: it is not a JSON schema"),
        ("{type: boolean}", "{type: yesno}", "its output: properties.complete.type: 'yesno' is not valid"),
        ("minLength: 1", "pattern: '(a+)+$'", "its input: `pattern` is not supported"),
        ("required: [symbol]", "required: [name]", "its input: `name` is required, but it is not a property"),
        ("name: find-callers", "name: find.callers", "the name may contain only"),
        (
            "description: Find every caller of one function.",
            "description:",
            "the description or the text is missing",
        ),
        ("Look with `search_code`", "x" * MAX_PROMPT, "the text is longer than 20,000 characters"),
    ],
)
async def test_a_broken_micro_agent_file_is_reported_once_and_skipped(
    found: Any,
    old: str,
    new: str,
    expected: str,
) -> None:
    assert old in AGENT
    skills = await found({PATH: AGENT.replace(old, new, 1), "AGENTS.md": "Use tabs."})
    (problem,) = skills.problems
    assert problem.startswith(f"{PATH} is not a usable micro agent (") and expected in problem
    assert problem.endswith("skipped.") and problem in written(
        select_instructions(skills, issue(), "", 8_000)
    )
    assert [skill.path for skill in skills.skills] == ["AGENTS.md"]


async def test_duplicate_names_and_too_many_micro_agents_are_reported(found: Any) -> None:
    more = {f".agents/skills/y{n}.md": AGENT.replace("find-callers", f"y{n}") for n in range(MAX_AGENTS)}
    skills = await found({".agents/skills/a.md": AGENT, ".agents/skills/b.md": AGENT + "x", **more})
    assert [skill.name for skill in skills.agents] == [
        "find-callers",
        *(f"y{n}" for n in range(MAX_AGENTS - 1)),
    ]
    assert [problem.partition(" (")[2] for problem in skills.problems] == [
        "another file has the same name): skipped.",
        "only the first 10 micro agents are used): skipped.",
    ]


async def test_a_micro_agent_with_a_taken_tool_name_is_skipped_with_a_warning(
    skill: RepoSkill, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with delegating_run(tmp_path, MultiAgentModel([], {})) as run:
        assert build_micro_agent_tools([skill], run.investigating, {"ask_find-callers"}) == ()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.__dict__["tool"] == "ask_find-callers"


# --- calls --------------------------------------------------------------------------------------------------


async def test_a_micro_agents_input_and_output_are_validated(skill: RepoSkill, tmp_path: Path) -> None:
    others = {TASK: [reply_with_calls("report", {"places": "more.py"}), reply_with_calls("report", OUTPUT)]}
    model = MultiAgentModel([reply_with_calls("ask_find-callers", {"symbol": ""}, INPUT), FINISH], others)
    async with delegating_run(tmp_path, model, skills=[skill]) as run:
        await run.agent.run(run.log)
        (first, *_) = run.log.trajectory.replies()
        wrong, right = [call.action for call in first.calls]
        ((_, report),) = run.log.trajectory.subagents()
    assert isinstance(wrong, MalformedCall) and "- `symbol`: '' should be non-empty" in wrong.problem
    assert "`ask_find-callers` takes one JSON object with these fields and no others" in wrong.problem
    assert right == CallTool(name="ask_find-callers", arguments=INPUT)
    assert report is not None and (report.status, report.text) == ("answered", REPORTED)
    messages = [message.text for message in model.parent.requests[1] if isinstance(message, ToolMessage)]
    assert f"> {REPORTED}" in messages[1].splitlines() and "[1 of 1: the answer" in messages[1]

    child = FileLogStore(tmp_path).read(RunId("job-7-sub-1"))
    prompted = next(event for event in child if isinstance(event, SystemPrompt))
    assert "give each place as `file:line`" in prompted.text and PATH in prompted.text
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in prompted.tools}
    assert skill.form is not None and tools["report"] == skill.form.output
    assert not set(tools) & {"ask_find-callers", "delegate", "finish"}
    sent_back = next(event for event in child if isinstance(event, ModelReply)).calls[0].action
    assert (
        isinstance(sent_back, MalformedCall)
        and "`places`: 'more.py' is not of type 'array'" in sent_back.problem
    )


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({"places": ["x" * MAX_REPORT]}, "the limit is 8,000"),
        ({"places": [], "why": "none"}, "'why' was unexpected"),
        ({"text": "more.py:2"}, "'places' is a required property"),
    ],
)
async def test_a_report_that_violates_the_schema_is_rejected(
    skill: RepoSkill, tmp_path: Path, report: dict[str, Any], expected: str
) -> None:
    model = MultiAgentModel(
        [reply_with_calls("ask_find-callers", INPUT), FINISH],
        {TASK: [reply_with_calls("report", report)] * 4},
    )
    async with delegating_run(tmp_path, model, skills=[skill], max_steps=4) as run:
        await run.agent.run(run.log)
        result = first_result(run.log)
    assert isinstance(result, SubagentResult) and result.status == "unfinished"
    assert "more.py:2" not in render_observation(
        result
    ) and "no answer to the question" in render_observation(result)
    child = FileLogStore(tmp_path).read(RunId("job-7-sub-1"))
    assert expected in problem_of(child.replies()[0])


def problem_of(reply: ModelReply) -> str:
    (call,) = reply.calls
    assert isinstance(call.action, MalformedCall)
    return call.action.problem


async def test_an_input_that_is_too_long_is_rejected(skill: RepoSkill, tmp_path: Path) -> None:
    async with delegating_run(tmp_path, MultiAgentModel([], {}), skills=[skill]) as run:
        call = RawToolCall(
            id="1", name="ask_find-callers", arguments=json.dumps({"symbol": "x" * MAX_INPUT_LENGTH})
        )
        action = run.agent.tools.parse(call)
    assert isinstance(action, MalformedCall) and "the limit is 10,000" in action.problem


async def test_a_micro_agent_killed_at_work_is_reported_as_unfinished(
    skill: RepoSkill, tmp_path: Path
) -> None:
    model = MultiAgentModel([reply_with_calls("ask_find-callers", INPUT)], {TASK: [RunShell(command="hang")]})
    async with delegating_run(tmp_path, model, skills=[skill]) as run:
        working = asyncio.create_task(run.agent.run(run.log))
        async with asyncio.timeout(60):
            while not run.sent or not run.sent[0].hangs.is_set():
                await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    async with delegating_run(tmp_path, MultiAgentModel([FINISH], {}), skills=[skill]) as run:
        await run.agent.run(run.log)
        result = first_result(run.log)
    assert isinstance(result, SubagentResult) and result.status == "unfinished"
    assert "The process was stopped" in result.text and result.usage.steps == 1


async def test_no_micro_agent_starts_without_remaining_limits(skill: RepoSkill, tmp_path: Path) -> None:
    model = MultiAgentModel([reply_with_calls("ask_find-callers", INPUT), FINISH], {})
    async with delegating_run(tmp_path, model, limits=Limits(steps=2), skills=[skill]) as run:
        await run.agent.run(run.log)
        assert getattr(first_result(run.log), "message", "") == render_prompt(
            "not_delegated.md.j2", is_too_deep=False, count=1
        )
