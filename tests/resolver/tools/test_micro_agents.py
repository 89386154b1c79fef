"""Micro agents: a file alone makes one, what goes in and what comes out is checked, and a bad file harms nothing."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from resolver import prose
from resolver.actions import CallTool, Malformed, Reported
from resolver.domain import RunId
from resolver.events import Decided, Prompted, Usage
from resolver.llm.model import FromTool, Reply, ToolCall
from resolver.log import FileLogs
from resolver.preparing.instructions import instructions
from resolver.preparing.skills import MAX_AGENTS, MAX_PROMPT, Skill
from resolver.render import result
from resolver.rules import Limits
from resolver.tools.investigate import MAX_REPORT
from resolver.tools.micro_agents import MAX_INPUT, micro_agents
from runtime.actions import RunShell
from tests.resolver.investigations import FINISH, Minds, asking, came
from tests.resolver.preparing.test_skills import found as found
from tests.resolver.preparing.test_skills import issue, written

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


def calls(name: str, *several: dict[str, Any]) -> Reply:
    """A reply with these calls of one tool."""
    made = tuple(
        ToolCall(id=f"c{number}", name=name, arguments=json.dumps(each))
        for number, each in enumerate(several)
    )
    return Reply(text="", calls=made, usage=Usage(model="scripted"))


@pytest.fixture
async def skill(found: Any) -> Skill:
    """The micro agent of the file."""
    (skill,) = (await found({PATH: AGENT})).agents
    assert isinstance(skill, Skill)
    return skill


# --- what a file makes --------------------------------------------------------------------------------------


async def test_a_file_alone_makes_a_tool_with_its_description_and_input(skill: Skill, tmp_path: Path) -> None:
    async with asking(tmp_path, Minds([], {}), skills=[skill]) as run:
        (spec,) = [spec for spec in run.agent.tools.specs if spec.name.startswith("ask_")]
    assert spec.name == "ask_find-callers" and PATH in spec.description
    assert spec.description.startswith("Find every caller of one function.\n")
    assert spec.parameters == {
        "type": "object",
        "properties": {"symbol": {"type": "string", "description": "Its name.", "minLength": 1}},
        "required": ["symbol"],
        "additionalProperties": False,
    }


async def test_what_it_is_told_stands_in_no_first_message(found: Any) -> None:
    skills = await found({PATH: AGENT})
    seen = instructions(skills, issue("find-callers"), "", 8_000)
    assert "search_code" not in written(seen) and "find-callers" not in written(seen)
    assert not seen.readable and not skills.problems


async def test_a_file_that_names_an_agent_of_another_program_stays_a_skill(found: Any) -> None:
    text = "---\nname: db\nagent: CodeActAgent\ntriggers: [alembic]\n---\nMigrate."
    (skill,) = (await found({".openhands/microagents/db.md": text})).skills
    assert (skill.kind, skill.form) == ("triggered", None)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("input:", "inputs:", "its input: it is no JSON schema"),
        ("{type: boolean}", "{type: yesno}", "its output: properties.complete.type: 'yesno' is not valid"),
        ("minLength: 1", "pattern: '(a+)+$'", "its input: `pattern` is not understood"),
        ("required: [symbol]", "required: [name]", "its input: `name` is required, but no property"),
        ("name: find-callers", "name: find.callers", "its name holds more than"),
        ("description: Find every caller of one function.", "description:", "it has no description"),
        ("Look with `search_code`", "x" * MAX_PROMPT, "its text is longer than 20,000 characters"),
    ],
)
async def test_a_broken_file_is_told_once_and_left_out(
    found: Any,
    old: str,
    new: str,
    said: str,
) -> None:
    assert old in AGENT
    skills = await found({PATH: AGENT.replace(old, new, 1), "AGENTS.md": "Use tabs."})
    (problem,) = skills.problems
    assert problem.startswith(f"{PATH} is no micro agent that can be asked (") and said in problem
    assert problem.endswith("left out.") and problem in written(instructions(skills, issue(), "", 8_000))
    assert [skill.path for skill in skills.skills] == ["AGENTS.md"]


async def test_the_second_of_one_name_and_the_eleventh_are_told(found: Any) -> None:
    more = {f".agents/skills/y{n}.md": AGENT.replace("find-callers", f"y{n}") for n in range(MAX_AGENTS)}
    skills = await found({".agents/skills/a.md": AGENT, ".agents/skills/b.md": AGENT + "x", **more})
    assert [skill.name for skill in skills.agents] == [
        "find-callers",
        *(f"y{n}" for n in range(MAX_AGENTS - 1)),
    ]
    assert [problem.partition(" (")[2] for problem in skills.problems] == [
        "another file has the same name): left out.",
        "there are 10 others before it): left out.",
    ]


async def test_one_with_the_name_of_another_tool_is_left_out_and_the_operator_hears_it(
    skill: Skill, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(tmp_path, Minds([], {})) as run:
        assert micro_agents([skill], run.investigating, {"ask_find-callers"}) == ()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.__dict__["tool"] == "ask_find-callers"


# --- asking one ---------------------------------------------------------------------------------------------


async def test_what_goes_in_and_what_comes_out_fit_the_files_schemas(skill: Skill, tmp_path: Path) -> None:
    others = {TASK: [calls("report", {"places": "more.py"}), calls("report", OUTPUT)]}
    minds = Minds([calls("ask_find-callers", {"symbol": ""}, INPUT), FINISH], others)
    async with asking(tmp_path, minds, skills=[skill]) as run:
        await run.agent.run(run.log)
        (first, *_) = run.log.trajectory.decisions()
        wrong, right = [call.action for call in first.calls]
        ((_, report),) = run.log.trajectory.delegations()
    assert isinstance(wrong, Malformed) and "- `symbol`: '' should be non-empty" in wrong.problem
    assert "`ask_find-callers` takes one JSON object with these fields and no others" in wrong.problem
    assert right == CallTool(name="ask_find-callers", arguments=INPUT)
    assert report is not None and (report.status, report.text) == ("answered", REPORTED)
    told = [message.text for message in minds.parent.asked[1] if isinstance(message, FromTool)]
    assert f"> {REPORTED}" in told[1].splitlines() and "[1 of 1: the answer" in told[1]

    child = FileLogs(tmp_path).read(RunId("job-7-sub-1"))
    prompted = next(event for event in child if isinstance(event, Prompted))
    assert "give each place as `file:line`" in prompted.system and PATH in prompted.system
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in prompted.tools}
    assert skill.form is not None and tools["report"] == skill.form.output
    assert not set(tools) & {"ask_find-callers", "delegate", "finish"}
    sent_back = next(event for event in child if isinstance(event, Decided)).calls[0].action
    assert (
        isinstance(sent_back, Malformed) and "`places`: 'more.py' is not of type 'array'" in sent_back.problem
    )


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ({"places": ["x" * MAX_REPORT]}, "8,000 are the limit"),
        ({"places": [], "why": "none"}, "'why' was unexpected"),
        ({"text": "more.py:2"}, "'places' is a required property"),
    ],
)
async def test_a_report_that_never_fits_never_arrives(
    skill: Skill, tmp_path: Path, report: dict[str, Any], said: str
) -> None:
    minds = Minds([calls("ask_find-callers", INPUT), FINISH], {TASK: [calls("report", report)] * 4})
    async with asking(tmp_path, minds, skills=[skill], steps=4) as run:
        await run.agent.run(run.log)
        seen = came(run.log)
    assert isinstance(seen, Reported) and seen.status == "unfinished"
    assert "more.py:2" not in result(seen) and "no answer to the question" in result(seen)
    child = FileLogs(tmp_path).read(RunId("job-7-sub-1"))
    assert said in problem_of(child.decisions()[0])


def problem_of(reply: Decided) -> str:
    (call,) = reply.calls
    assert isinstance(call.action, Malformed)
    return call.action.problem


async def test_an_input_that_is_too_long_is_told(skill: Skill, tmp_path: Path) -> None:
    async with asking(tmp_path, Minds([], {}), skills=[skill]) as run:
        call = ToolCall(id="1", name="ask_find-callers", arguments=json.dumps({"symbol": "x" * MAX_INPUT}))
        action = run.agent.tools.parse(call)
    assert isinstance(action, Malformed) and "10,000 are the limit" in action.problem


async def test_killed_while_it_works_it_is_answered_with_what_is_known_of_it(
    skill: Skill, tmp_path: Path
) -> None:
    minds = Minds([calls("ask_find-callers", INPUT)], {TASK: [RunShell(command="hang")]})
    async with asking(tmp_path, minds, skills=[skill]) as run:
        working = asyncio.create_task(run.agent.run(run.log))
        async with asyncio.timeout(10):
            while not run.sent or not run.sent[0].hangs.is_set():
                await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    async with asking(tmp_path, Minds([FINISH], {}), skills=[skill]) as run:
        await run.agent.run(run.log)
        seen = came(run.log)
    assert isinstance(seen, Reported) and seen.status == "unfinished"
    assert "The program was stopped" in seen.text and seen.spent.steps == 1


async def test_with_little_left_none_is_asked(skill: Skill, tmp_path: Path) -> None:
    minds = Minds([calls("ask_find-callers", INPUT), FINISH], {})
    async with asking(tmp_path, minds, limits=Limits(steps=2), skills=[skill]) as run:
        await run.agent.run(run.log)
        assert getattr(came(run.log), "message", "") == prose.not_delegated(too_deep=False)
