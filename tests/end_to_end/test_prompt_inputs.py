"""Inputs of a run besides the issue: the maintainers' instructions and attachments."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Outcome, Published
from patchwright.resolver.events import Message, ToolResult
from patchwright.resolver.rendering.jinja_templates import set_template_directory
from patchwright.resolver.tool_actions.lookup_actions import ReadSkill
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ImageData, ShellResult, TextResult
from tests.bot.github.test_attachments import png
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, TESTS, Scenario

pytestmark = pytest.mark.slow

SIGNS = "---\nname: signs\ntriggers: [gives]\n---\nCheck negative numbers too.\n"
RELEASE = "---\nname: release\ndescription: How a change is announced.\n---\nAdd a line to NEWS.\n"


def first_message(scenario: Scenario) -> Message:
    return next(event for event in scenario.trajectory() if isinstance(event, Message))


async def test_a_skill_is_triggered_by_a_keyword_and_another_is_read_on_demand(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(
        {
            "calc.py": CODE,
            "tests/test_calc.py": TESTS,
            "AGENTS.md": "Use type hints.",
            ".openhands/microagents/signs.md": SIGNS,
            ".agents/skills/release/SKILL.md": RELEASE,
        }
    )
    await scenario.script_model(RecordedTurn("Read.", ReadSkill(name="release")), *FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    brief = first_message(scenario).text
    assert "AGENTS.md:\n> Use type hints." in brief
    assert 'because the issue mentions "gives":\n> Check negative numbers too.' in brief
    assert "  release: How a change is announced." in brief
    assert "NEWS" not in brief
    tools = {tool["function"]["name"] for tool in scenario.endpoint.requests[0]["tools"]}
    assert "read_skill" in tools
    (read,) = [
        e.observation
        for e in scenario.trajectory()
        if isinstance(e, ToolResult) and isinstance(e.observation, TextResult)
    ]
    assert "Add a line to NEWS." in read.text


async def test_without_instructions_there_is_no_tool_for_them(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    tools = {tool["function"]["name"] for tool in scenario.endpoint.requests[0]["tools"]}
    assert "read_skill" not in tools


async def test_the_operators_custom_prompt_reaches_the_model(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    shown = "Once `sub()` added: its test failed, `+` became `-`, and the test passed."
    (tmp_path / "prompts/system.md.j2").write_text(f"You fix what is broken in {{{{ root }}}}. {shown}")
    scenario.environment["PATCHWRIGHT_TEMPLATES"] = str(tmp_path)
    await scenario.script_model(*FIX_TURNS)
    try:
        assert isinstance(await scenario.resolve(), Published)
    finally:
        set_template_directory(None)
    system, task, *_ = [message["content"] for message in scenario.endpoint.requests[0]["messages"]]
    assert system.startswith("You fix what is broken in /") and system.rstrip().endswith(shown)
    assert scenario.issue.title in task, "what is shown stands before the task"


async def test_an_image_and_a_pdf_of_an_issue_reach_the_agent(scenario: Scenario) -> None:
    shot = scenario.fake_github.add_attachment("assets/shot", png())
    report = scenario.fake_github.add_attachment("files/1/report.pdf", b"%PDF-1.7 nothing")
    scenario.issue.body = f"See ![it]({shot}) and [this]({report})."
    look = RunShell(
        command=f"find {scenario.data} -name '?-*' -path '*/attachments/*' -size +0 | xargs -n 1 basename | sort"
    )
    await scenario.script_model(
        RecordedTurn("Look.", look), RecordedTurn("Fix.", FIX, NEW_TEST), RecordedTurn("Done.", DONE)
    )
    assert isinstance(await scenario.resolve(), Published)
    message = first_message(scenario)
    assert message.images == (ImageData(media_type="image/png", data=png()),)
    assert "1-shot.png (image/png, " in message.text
    assert "2-report.pdf (application/pdf, 16 B)" in message.text
    ran = next(
        e.observation
        for e in scenario.trajectory()
        if isinstance(e, ToolResult) and isinstance(e.observation, ShellResult)
    )
    assert ran.output.split() == ["1-shot.png", "2-report.pdf"]
    sent = str(scenario.endpoint.requests[0]["messages"])
    assert "this model has no vision" in sent


async def test_attachments_are_restored_when_a_run_continues_in_a_new_sandbox(
    scenario: Scenario,
) -> None:
    shot = scenario.fake_github.add_attachment("assets/shot", png())
    scenario.issue.body = f"See ![it]({shot})."
    look = RunShell(command=f"find {scenario.data} -path '*/attachments/1-shot.png' -size +0")
    runs: list[asyncio.Task[Outcome]] = []

    def end(turn: int, body: object) -> None:
        if turn == 1 and len(runs) == 1:
            runs[0].get_loop().call_soon_threadsafe(runs[0].cancel)

    await scenario.script_model(
        RecordedTurn("Look.", look), RecordedTurn("Look again.", look), *FIX_TURNS, on_request=end
    )
    while len(runs) < 2:
        runs.append(asyncio.create_task(scenario.resolve()))
        await asyncio.wait(runs)
    assert runs[0].cancelled() and isinstance(runs[1].result(), Published)
    resumed = next(
        event.text
        for event in scenario.trajectory()
        if isinstance(event, Message) and event.source == "resume"
    )
    assert "in a new sandbox" in resumed and "except the issue's attachments" in resumed
    results = [e.observation for e in scenario.trajectory() if isinstance(e, ToolResult)][:2]
    first, again = [each.output for each in results if isinstance(each, ShellResult)]
    assert first.endswith("/attachments/1-shot.png\n") and again.endswith("/attachments/1-shot.png\n")


@pytest.mark.slow
async def test_slow_baseline_tests_are_reported_when_they_complete(
    make_scenario: Callable[..., Scenario],
) -> None:
    slow = "import time\n\n\ndef test_slow():\n    time.sleep(10)\n"
    scenario = make_scenario({"calc.py": CODE, "tests/test_calc.py": TESTS, "tests/test_slow.py": slow})
    await scenario.script_model(RecordedTurn("Wait.", RunShell(command="sleep 16")), *FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    assert "still running on the untouched code" in first_message(scenario).text
    (message,) = [e.text for e in scenario.trajectory() if isinstance(e, Message) and e.source == "baseline"]
    assert message.startswith("The tests on the untouched code have ended, so you need not repeat them")
    assert "On the untouched code: " in message and "passed" in message
