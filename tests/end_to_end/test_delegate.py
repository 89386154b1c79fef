"""The agent delegates to two parallel investigators, each with its own copy of the tree."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchwright.demo.recorded_model import RecordedCall, RecordedTurn
from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.domain import Published, RunId
from patchwright.resolver.events import SystemPrompt, ToolResult
from patchwright.resolver.tool_actions.control_actions import Report, Think
from patchwright.resolver.tool_actions.subagent_actions import Delegate
from patchwright.runtime.actions import RunShell, ViewFile
from patchwright.runtime.observations import ActionFailure, ShellResult
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.multi_agent_model import use_multi_agent_model
from tests.preloaded_command import COMMAND
from tests.resolver.git_repository import Repository

pytestmark = pytest.mark.slow

CALLERS, PROMISES = "Find every caller of add().", "What does double() promise?"
ASK = RecordedTurn("Let others look.", Delegate(tasks=(CALLERS, PROMISES)))
DOUBLED = "def doubled(a):\n    return add(a, a)\n"


LOOKS = (
    RecordedTurn("Look.", RunShell(command="cat calc.py; git diff --stat; grep -rn 'add(' --include=*.py .")),
    RecordedTurn(
        "Break it.", RunShell(command="rm calc.py; echo broken > left.txt; git status --short; pwd")
    ),
    RecordedTurn("There.", Report(text="more.py:2, in doubled()")),
)
READS = (
    RecordedTurn("Read.", ViewFile(path="calc.py")),
    RecordedTurn("So.", Report(text="It doubles; only ints are tested.")),
)


@pytest.fixture
def make_delegating_scenario(make_scenario: Callable[..., Scenario]) -> Callable[..., Scenario]:
    """Makes scenarios whose agent may ask investigators."""

    def make(**arguments: Any) -> Scenario:
        scenario = make_scenario(**arguments)
        scenario.environment["PATCHWRIGHT_MAX_SUBAGENT_STEPS"] = "20"
        return scenario

    return make


async def test_two_investigators_work_in_parallel_and_the_run_continues_with_their_results(
    make_delegating_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_delegating_scenario(
        files={"calc.py": CODE, "more.py": DOUBLED, "tests/test_calc.py": TESTS}
    )
    first_turn, *rest = FIX_TURNS
    model = await use_multi_agent_model(
        scenario, first_turn, ASK, *rest, others={CALLERS: LOOKS, PROMISES: READS}, delay=0.2
    )
    assert isinstance(await scenario.resolve(), Published)
    assert model.max_concurrent == 2  # two of them waited for the model at the same time

    run = scenario.trajectory(scenario.job().id)
    (report,) = [
        event.observation
        for event in run
        if isinstance(event, ToolResult) and isinstance(event.observation, SubagentResult)
    ]
    assert [(part.status, part.text, part.usage.steps) for part in report.results] == [
        ("answered", "more.py:2, in doubled()", 3),
        ("answered", "It doubles; only ints are tested.", 2),
    ]
    assert run.usage().steps == len(run.replies()) + 5
    messages = [
        message["content"]
        for message in model.requests_by_question[""][-1]["messages"]
        if message["role"] == "tool"
    ]
    assert (
        "[1 of 2: the answer to the question]" in messages[1] and "> more.py:2, in doubled()" in messages[1]
    )

    first = scenario.trajectory(run.subagents()[0][0].run)
    looked, broke = [
        event.observation
        for event in first
        if isinstance(event, ToolResult) and isinstance(event.observation, ShellResult)
    ]
    assert "return a + b" in looked.output and "calc.py | 2 +-" in looked.output  # the tree at that time
    assert "D calc.py" in broke.output and "?? left.txt" in broke.output
    # Its edit broke only its own copy.
    assert "left.txt" not in scenario.repo.diff(scenario.pull) and "a + b" in scenario.repo.diff(
        scenario.pull
    )
    # It can read and run commands, but not edit or delegate.
    prompted = next(event for event in first if isinstance(event, SystemPrompt))
    names = {tool["function"]["name"] for tool in prompted.tools}
    assert {"run_shell", "view_file", "think", "report"} <= names
    assert not names & {"create_file", "replace_text", "insert_text", "delegate", "browse", "finish", "ask"}
    assert prompted.text.startswith("You answer a question about one repository for another agent")


@pytest.mark.slow
async def test_a_failed_investigator_does_not_stop_the_run(
    make_delegating_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_delegating_scenario()
    scenario.environment["PATCHWRIGHT_MAX_SUBAGENT_STEPS"] = "4"
    lost = tuple(RecordedTurn(f"Hm {n}.", Think(thought=f"Hm {n}.")) for n in range(9))
    await use_multi_agent_model(scenario, ASK, *FIX_TURNS, others={CALLERS: lost, PROMISES: READS})
    assert isinstance(await scenario.resolve(), Published)
    ((_, failed), (_, fine)) = scenario.trajectory(scenario.job().id).subagents()
    assert failed is not None and fine is not None
    assert (failed.status, failed.usage.steps, fine.status) == ("unfinished", 4, "answered")
    assert "step limit of 4 is reached" in failed.text


@pytest.mark.browser
async def test_by_default_one_agent_works_and_only_the_browsing_agent_helps_on_demand(
    scenario: Scenario,
) -> None:
    scenario.environment |= {
        "PATCHWRIGHT_SANDBOX_FEATURES": "browser",
        "PATCHWRIGHT_MULTIMODAL_MODEL": "openai/scripted",
    }
    ask = RecordedTurn(
        "",
        calls=(RecordedCall(name="use_tool", arguments={"name": "delegate", "arguments": {"tasks": ["?"]}}),),
    )
    model = await use_multi_agent_model(scenario, ask, *FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    run = scenario.trajectory()
    refused = next(event.observation for event in run if isinstance(event, ToolResult))
    assert isinstance(refused, ActionFailure) and run.subagents() == ()
    assert "there is no tool `delegate`" in refused.message
    tools = {
        tool["function"]["name"]: tool["function"] for tool in model.requests_by_question[""][0]["tools"]
    }
    further = re.findall(r"^- (\w+):", tools["use_tool"]["description"], re.MULTILINE)
    assert "browse" not in tools and "browse" in further
    assert not {name for name in (*tools, *further) if name == "delegate" or name.startswith("ask_")}
    assert "image_url" not in str(model.requests_by_question), "no screenshot"


@pytest.mark.slow
async def test_a_run_killed_during_delegation_counts_the_cost_and_continues(
    make_delegating_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = make_delegating_scenario()
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    issue, fix = tmp_path / "issue.md", tmp_path / "fix.diff"
    issue.write_text("add() subtracts")
    killed: list[int] = []

    def dies(turn: int, request: dict[str, Any]) -> None:
        if request["messages"][1]["content"] == PROMISES and turn == 1:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    model = await use_multi_agent_model(
        scenario, ASK, *FIX_TURNS, others={CALLERS: LOOKS, PROMISES: READS}, on_request=dies
    )
    process = await scenario.cli(
        "resolve", "--repo", str(repository.path), "--issue", str(issue), program=COMMAND
    )
    await process.communicate()
    assert process.returncode == -signal.SIGKILL and len(killed) == 1
    run = RunId(next(name for name in scenario.runs if "-sub-" not in name))

    code, out, error = await scenario.command("resolve", "--continue", run, "--out", str(fix))
    assert code == 0, out + error
    reports = [report for _, report in scenario.trajectory(run).subagents() if report]
    assert len(reports) == 2 and reports[1].status == "unfinished" and reports[1].usage.steps == 1
    assert "process was stopped" in reports[1].text
    spent = scenario.trajectory(run).usage()
    assert spent.steps == len(scenario.trajectory(run).replies()) + sum(each.usage.steps for each in reports)
    assert "a + b" in fix.read_text()
    assert len(model.requests_by_question[PROMISES]) == 2  # not started again
