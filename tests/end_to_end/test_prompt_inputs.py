"""Inputs of a run besides the issue: the maintainers' instructions and attachments."""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedCall, RecordedTurn
from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.domain import Outcome, Published
from patchwright.resolver.events import Message, ModelReply, SystemPrompt, ToolResult
from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.rendering.jinja_templates import set_template_directory
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.tool_actions.control_actions import Ask
from patchwright.resolver.tool_actions.lookup_actions import ReadSkill
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import RunPython, RunShell
from patchwright.runtime.observations import CellResult, ImageData, ShellResult, TextResult
from tests.bot.github.test_attachments import png
from tests.end_to_end.comments import comment_job
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, TESTS, Scenario
from tests.end_to_end.scripted_models import use_ordered_model
from tests.end_to_end.test_custom_tools import SERVER
from tests.resolver.agent_runs import FakeSandbox
from tests.runtime import sample_documents

pytestmark = pytest.mark.slow

SIGNS = "---\nname: signs\ntriggers: [gives]\n---\nCheck negative numbers too.\n"
RELEASE = "---\nname: release\ndescription: How a change is announced.\n---\nAdd a line to NEWS.\n"


def first_message(scenario: Scenario) -> Message:
    return next(event for event in scenario.trajectory() if isinstance(event, Message))


async def test_the_first_event_that_the_model_sees_is_the_prompt_with_all_its_tools(
    scenario: Scenario,
) -> None:
    await scenario.script_model(*FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    prompt = next(e for e in scenario.trajectory() if isinstance(e, SystemPrompt | Message | ModelReply))
    assert isinstance(prompt, SystemPrompt)
    (sent, *_) = scenario.endpoint.requests
    assert (sent["messages"][0]["content"], sent["tools"]) == (prompt.text, list(prompt.tools))


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
    system = scenario.endpoint.requests[0]["messages"][0]["content"]
    assert "AGENTS.md:\n> Use type hints." in system and "Use type hints." not in brief
    assert "negative numbers" not in system
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
    assert "# Example" not in task, "the demonstration is off by default"


async def test_prefix_demonstration_issue_skills_and_suffix_have_a_fixed_order(
    make_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = make_scenario({"calc.py": CODE, "tests/test_calc.py": TESTS, "AGENTS.md": "Use type hints."})
    for name in ("system_prefix", "system_suffix", "message_prefix", "message_suffix"):
        file = tmp_path / "templates" / "prompts" / f"{name}.md.j2"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"Our {name} for {{{{ repo.owner }}}}.")
    skills = tmp_path / "skills"
    (skills / "owners" / "acme").mkdir(parents=True)
    (skills / "owners" / "other").mkdir()
    (skills / "house.md").write_text("The rules of the house.")
    (skills / "owners" / "acme" / "acme.md").write_text("The rules of acme.")
    (skills / "owners" / "other" / "secret.md").write_text("The rules of others.")
    scenario.environment |= {
        "PATCHWRIGHT_TEMPLATES": str(tmp_path / "templates"),
        "PATCHWRIGHT_SKILLS": str(skills),
        "PATCHWRIGHT_DEMONSTRATION": "true",
    }
    await scenario.script_model(*FIX_TURNS)
    try:
        assert isinstance(
            await scenario.resolve(await comment_job(scenario, "@agent use typo-fixer: it")), Published
        )
    finally:
        set_template_directory(None)
    system, task, *_ = [message["content"] for message in scenario.endpoint.requests[0]["messages"]]
    assert_order(
        system,
        "Our system_prefix for acme.",
        "# How to work",
        *("The rules of the house.", "The rules of acme.", "Use type hints."),
        "# Your specialty",
        "Our system_suffix for acme.",
    )
    assert_order(
        task,
        *("Our message_prefix for acme.", "# Example", scenario.issue.title),
        "Our message_suffix for acme.",
    )
    assert "The rules of others." not in system + task
    assert "house.md (written by the operator of this installation):" in system


def assert_order(text: str, *parts: str) -> None:
    assert [text.count(part) for part in parts] == [1] * len(parts)
    assert sorted(parts, key=text.index) == list(parts)
    assert text.startswith(parts[0]) and text.rstrip().endswith(parts[-1])


async def test_the_calls_of_the_demonstration_are_calls_of_our_tools() -> None:
    tools = ToolRegistry((*build_sandbox_tools(FakeSandbox()), *build_control_tools()))
    text = render_prompt("demonstration.md.j2")
    calls = re.findall(r"^> (\w+) (\{.*\})$", text, re.MULTILINE)
    assert [name for name, _ in calls][::6] == ["run_shell", "finish"] and len(calls) == text.count("\n> ")
    for name, arguments in calls:
        action = tools.parse(RawToolCall(id="1", name=name, arguments=arguments))
        assert not isinstance(action, MalformedCall), action.problem


async def test_a_keyword_in_an_answer_brings_its_skill_once(make_scenario: Callable[..., Scenario]) -> None:
    skill = "---\ntriggers: [migration, answers]\n---\nRun `make migration`.\n"
    files = {"calc.py": CODE, "tests/test_calc.py": TESTS, ".agents/skills/migration.md": skill}
    scenario = make_scenario(files)
    question = RecordedTurn("Ask.", Ask(question="Which way?"))
    await use_ordered_model(scenario, question, RecordedTurn("Look.", RunShell(command="ls")), *FIX_TURNS)
    await scenario.resolve(await comment_job(scenario, "@agent fix it"))
    assert "make migration" not in str(scenario.endpoint.requests[0]["messages"])
    assert isinstance(await scenario.resolve(await comment_job(scenario, "@agent by a migration")), Published)
    for request in scenario.endpoint.requests[1:]:
        assert str(request["messages"]).count("Run `make migration`.") == 1
    assert 'A message mentions "migration".' in str(scenario.endpoint.requests[1]["messages"])


async def test_a_skill_brings_its_mcp_server_only_where_it_applies(
    make_scenario: Callable[..., Scenario],
) -> None:
    skill = (
        "---\nname: {0}\ntriggers: [{0}]\nmcp_servers:\n  {0}: {{command: {1}, tools: [add]}}\n---\nUse it.\n"
    )
    command = json.dumps([sys.executable, str(SERVER)])
    files = {f".agents/skills/{name}.md": skill.format(name, command) for name in ("gives", "migration")}
    remote = "---\nmcp_servers:\n  far: {url: 'https://example.org/mcp'}\n---\nNever.\n"
    scenario = make_scenario({"calc.py": CODE, ".agents/skills/remote.md": remote, **files})
    adds = RecordedTurn("Add.", calls=(RecordedCall(name="gives_add", arguments={"a": 2, "b": 3}),))
    await use_ordered_model(scenario, adds, *FIX_TURNS)
    await scenario.resolve()
    first = scenario.endpoint.requests[0]
    assert "gives_add" in str(first["tools"]) and "migration_add" not in str(first["tools"])
    assert "MCP server far: only the operator can configure a `url`" in str(first["messages"])
    results = [event.observation for event in scenario.trajectory() if isinstance(event, ToolResult)]
    assert results[0] == ExternalToolResult(text="5")


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


async def test_two_pictures_and_a_link_of_an_issue_are_in_the_first_message(scenario: Scenario) -> None:
    shots = [scenario.fake_github.add_attachment(f"assets/shot-{n}", png()) for n in range(2)]
    link = "https://stackblitz.com/edit/kml-symbol"
    scenario.issue.body = f"![before]({shots[0]}) ![after]({shots[1]})\nReproduce it: {link}"
    scenario.environment["PATCHWRIGHT_MULTIMODAL_MODEL"] = "openai/scripted"
    await scenario.script_model(*FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    _, first = scenario.endpoint.requests[0]["messages"]
    text, *pictures = first["content"]
    assert [part["type"] for part in pictures] == ["image_url", "image_url"]
    assert f"Reproduce it: {link}" in text["text"]
    assert f"Not available: {link}: not fetched, because this site offers no download" in text["text"]


async def test_a_document_and_an_archive_of_an_issue_are_read_by_view_and_by_a_skill(
    make_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = make_scenario({"calc.py": CODE, "tests/test_calc.py": TESTS})
    scenario.environment["PATCHWRIGHT_SANDBOX_FEATURES"] = "kernel,documents"
    body = "<w:p><w:r><w:t>It subtracts.</w:t></w:r></w:p>"
    word = sample_documents.docx(tmp_path / "spec.docx", body).read_bytes()
    logs = sample_documents.archive(tmp_path / "logs.zip", {"app.log": "KeyError: 'x'"}).read_bytes()
    files = {"spec.docx": word, "logs.zip": logs}
    scenario.issue.body = " ".join(
        scenario.fake_github.add_attachment(f"files/1/{name}", data) for name, data in files.items()
    )
    find = f"import glob\nd = glob.glob('{scenario.data}/**/attachments', recursive=True)[0]\n"
    look = RunPython(code=f"{find}parse_docx(d + '/1-spec.docx')\nprint(d)", timeout=60)

    def view(turn: int, body: object) -> None:
        (directory,) = scenario.data.glob("**/attachments")
        arguments = viewing.calls[0].arguments
        assert isinstance(arguments, dict)
        arguments["path"] = f"{directory}/2-logs.zip"

    viewing = RecordedTurn("View.", calls=(RecordedCall(name="view_file", arguments={"path": ""}),))
    await scenario.script_model(RecordedTurn("Look.", look), viewing, *FIX_TURNS, on_request=view)
    assert isinstance(await scenario.resolve(), Published)
    ran, viewed = [e.observation for e in scenario.trajectory() if isinstance(e, ToolResult)][:2]
    assert isinstance(ran, CellResult) and ran.output.startswith("It subtracts.\n")
    assert isinstance(viewed, TextResult) and "KeyError: 'x'" in viewed.text


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
