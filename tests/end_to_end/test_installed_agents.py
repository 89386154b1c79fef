"""Agents of installed packages do the work of a run in place of a language model."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published, Reported
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import RunShell
from tests.end_to_end.comments import comment_job, rejection_text
from tests.end_to_end.conftest import CODE, DONE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.scripted_models import use_ordered_model
from tests.end_to_end.test_extending import block
from tests.end_to_end.test_plans import PLAN
from tests.resolver.installed_package import install_package

pytestmark = pytest.mark.slow

FILES = {"calc.py": CODE, "tests/test_calc.py": TESTS}
OWN = """
import os
from patchwright import CustomAgent, ToolRequest

class Counter(CustomAgent):
    def step(self, state):
        if state.steps < 3:
            return ToolRequest(tool="run_shell", arguments={"command": f"echo {state.steps} >> count.txt"})
        return f"Counted with {os.environ['CANARY_API_KEY']}."

def broken(state):
    yield ToolRequest(tool="run_shell", arguments={"command": "true"})
    raise ValueError("no such thing")

def counting(state):
    said = []
    for letter in "abc":
        command = f"echo {letter} | tee -a count.txt"
        said.append((yield ToolRequest(tool="run_shell", arguments={"command": command})))
    return "".join(said)
"""


@pytest.fixture
def make(
    make_scenario: Callable[..., Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Scenario]:
    """Installs the agents, and returns the factory of scenarios."""
    install_package(tmp_path, "rename_agent", block("# rename_agent.py"), "patchwright.agents", "rename")
    install_package(tmp_path, "own_agents", OWN, "patchwright.agents", "Counter", "broken", "counting")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CANARY_API_KEY", "canary-of-the-operator-4711")
    return make_scenario


async def test_a_comment_names_an_installed_agent_whose_patch_is_verified(
    make: Callable[..., Scenario],
) -> None:
    scenario = make(files=FILES, title="Rename double to twice", body="It reads better.")
    await use_ordered_model(scenario, *FIX_TURNS)
    job = await comment_job(scenario, "@agent use rename: in all files, please")
    outcome = await scenario.resolve(job)
    assert isinstance(outcome, Published) and outcome.verdict.kind == "conditional"
    assert "twice(4) == 8" in scenario.repo.read("patchwright/issue-1", "tests/test_calc.py")
    run = scenario.trajectory(job.id)
    assert run.run_started is not None
    assert (run.run_started.agent, run.run_started.model) == ("rename", "rename")
    end = run.replies()[-1].calls[0].action
    assert (
        isinstance(end, Finish)
        and end.change.startswith("`double` is now `twice`:")
        and "calc.py" in end.change
    )
    assert scenario.endpoint.requests == []


async def test_the_repository_overrides_the_operators_agent_and_a_comment_overrides_both(
    make: Callable[..., Scenario],
) -> None:
    scenario = make(files=FILES | {".github/patchwright.toml": 'agent = "Counter"\n'})
    await use_ordered_model(scenario, *FIX_TURNS, agent="rename", max_steps=9)
    await scenario.resolve()
    run = scenario.trajectory()
    assert run.run_started is not None and run.run_started.agent == "Counter"
    actions = [type(reply.calls[0].action) for reply in run.replies()]
    assert actions[:4] == [RunShell, RunShell, RunShell, Finish]
    assert "canary-of-the-operator" not in str(run.entries)
    assert scenario.endpoint.requests == []
    await scenario.resolve(await comment_job(scenario, "@agent explain agent=codeact why?"))
    assert scenario.endpoint.requests != []


async def test_an_installed_agent_obeys_the_limits_and_its_failure_ends_the_run(
    make: Callable[..., Scenario],
) -> None:
    scenario = make(files=FILES)
    await use_ordered_model(scenario, *FIX_TURNS, agent="Counter", max_steps=2)
    assert isinstance(await scenario.resolve(), Published)
    stopped = scenario.trajectory().agent_stopped
    assert stopped is not None and stopped.reason == "limit"
    job = await comment_job(scenario, "@agent agent=broken base=main again")
    assert isinstance(await scenario.resolve(job), Reported)
    assert "The agent broken failed: ValueError: no such thing" in scenario.comments[-1]


async def test_a_killed_run_of_a_generator_continues_with_the_recorded_results(
    make: Callable[..., Scenario],
) -> None:
    scenario = make(files=FILES)
    await use_ordered_model(scenario, *FIX_TURNS, agent="counting")
    resolving = asyncio.create_task(scenario.resolve())
    while not (scenario.runs and len(scenario.trajectory().replies()) >= 2):
        await asyncio.sleep(0)
    resolving.cancel()
    await asyncio.gather(resolving, return_exceptions=True)
    before = scenario.trajectory()
    assert before.agent_stopped is None
    assert isinstance(await scenario.resolve(), Published)
    run = scenario.trajectory()
    assert tuple(run)[: len(before.entries)] == tuple(before)
    commands = [call.action for reply in run.replies() for call in reply.calls]
    assert [one.command[5] for one in commands if isinstance(one, RunShell)] == ["a", "b", "c"]


async def test_a_sentence_that_begins_like_a_choice_of_an_agent_is_a_request(
    make: Callable[..., Scenario],
) -> None:
    scenario = make(files=FILES)
    await use_ordered_model(scenario, *FIX_TURNS)
    await scenario.resolve(await comment_job(scenario, "@agent use pathlib: os.path is old"))
    run = scenario.trajectory().run_started
    assert run is not None and run.agent == "codeact"
    assert str(scenario.endpoint.requests[0]).count("use pathlib: os.path is old") == 1


async def test_an_unknown_agent_is_rejected_with_the_nearest_name_before_a_sandbox_starts(
    make: Callable[..., Scenario],
) -> None:
    scenario = make(files=FILES)
    await use_ordered_model(scenario, RecordedTurn("So.", PLAN), RecordedTurn("Done.", DONE))
    text = await rejection_text(scenario, "@agent use renam")
    assert text.startswith("There is no agent `renam`: did you mean `rename`?")
    text = await rejection_text(scenario, "@agent agent=gpt fix it")
    assert text.startswith("There is no agent `gpt`. The agents here are `codeact`, `Counter`,")
    text = await rejection_text(scenario, "@agent use renam: fix it")
    assert text.startswith("There is no agent `renam`: did you mean `rename`?")
    assert scenario.endpoint.requests == []
    scenario.environment["PATCHWRIGHT_AGENT"] = "gpt"
    text = await rejection_text(scenario, "@agent fix it")
    assert text.startswith("There is no agent `gpt`. The agents here are `codeact`, `Counter`,")
    del scenario.environment["PATCHWRIGHT_AGENT"]
    await scenario.resolve(await comment_job(scenario, "@agent plan it"))
    text = await rejection_text(scenario, "@agent go use rename:")
    assert text.startswith("A run keeps its agent until it ends.") and "`retry agent=rename`" in text
