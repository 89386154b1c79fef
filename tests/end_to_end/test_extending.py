"""Runs docs/extending.md word for word: a skill, a forge and a comment command.

Its tool is tested in tests/resolver/tools/test_entry_point_tools.py.
"""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from patchwright.resolver.forge import Forge
from tests.end_to_end.conftest import FIX_TURNS, Scenario
from tests.resolver.git_repository import Repository

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()


def block(begins: str) -> str:
    (found,) = re.findall(rf"^```\w+\n({re.escape(begins)}.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(("text", "shown"), [("It takes 60 seconds.", True), ("It takes long.", False)])
async def test_the_skill_is_offered_if_a_keyword_matches(
    scenario: Scenario, tmp_path: Path, text: str, shown: bool
) -> None:
    skill = block("---\nname: durations")
    Repository(tmp_path / "clock").commit({"a.py": "x = 1\n", ".agents/skills/durations/SKILL.md": skill})
    (tmp_path / "bug.md").write_text(f"Wrong\n\n{text}\n")
    await scenario.script_model(*FIX_TURNS[-1:])
    await scenario.command("resolve", "--repo", str(tmp_path / "clock"), "--issue", str(tmp_path / "bug.md"))
    request = json.dumps(scenario.endpoint.requests[0])
    assert ("Times are rounded to the nearest second" in request) == shown


async def test_a_file_based_forge_gets_the_change_and_the_comment(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "file_forge.py").write_text(block("# file_forge.py"))
    (tmp_path / "run_job.py").write_text(block("# run_job.py"))
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "1.md").write_text("add() subtracts\n\nIt should add.\n")
    await scenario.script_model(*FIX_TURNS)
    outcome = await run(scenario, tmp_path)
    assert (outcome["kind"], outcome["verdict"]["kind"], outcome["branch"]) == (
        "published",
        "fixed",
        "patchwright/issue-1",
    )
    assert "return a + b" in scenario.repo.read("patchwright/issue-1", "calc.py")
    files = sorted(file.name for file in (tmp_path / "issues").iterdir())
    assert files == ["1-change.md", "1-run-1.md", "1.md"]
    assert (
        (tmp_path / "issues/1-change.md")
        .read_text()
        .startswith("Fix: add() subtracts\n\n**Fixed:** 1 new test")
    )
    again = await run(scenario, tmp_path)
    assert again == outcome


def test_the_page_states_the_number_of_forge_methods() -> None:
    needed = [name for name in vars(Forge) if not name.startswith("_")]
    assert f"The interface `Forge` (`resolver/forge.py`) has {len(needed)} methods." in TEXT
    assert [name for name in needed if f"    async def {name}(" not in block("# file_forge.py")] == []


async def test_a_new_comment_command_takes_one_row_and_one_module(tmp_path: Path) -> None:
    root, row = Path(__file__).parents[2], block('Command("status"').strip()
    shutil.copytree(
        root / "patchwright", tmp_path / "patchwright", ignore=shutil.ignore_patterns("__pycache__")
    )
    table = tmp_path / "patchwright" / "resolver" / "comment_commands.py"
    table.write_text(table.read_text().replace('    Command("help"', f'    {row},\n    Command("help"'))
    module = tmp_path / "patchwright" / "bot" / "triggers" / "status_command.py"
    module.write_text(block("# status_command.py"))
    (tmp_path / "test_status.py").write_text(STATUS_TEST)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"),
        *("--rootdir", str(tmp_path), "test_status.py"),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()


STATUS_TEST = """
import patchwright.bot
from patchwright.bot.jobs import Answered
from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.comment_commands import COMMANDS
from patchwright.resolver.rendering.template_renderer import render_reply
from tests.bot.handler_scenario import HandlerScenario, scenario as scenario

async def test_the_command_works(scenario: HandlerScenario) -> None:
    await scenario.label()
    job = await scenario.request("@agent status, please")
    assert scenario.replies == ["I have 1 unfinished jobs here."]
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.result == Answered()
    await scenario.request("@agent status", by="stranger")
    assert scenario.replies[1].startswith("@stranger needs write access")
    assert parse_request("sttus").error.suggestion == "status"
    row = "| `@agent status` | say what I am working on here |"
    values = {"commands": COMMANDS, "mention": "@agent", "label": "fix-me", "workflow_runs_url": "https://x.test"}
    assert row in render_reply("help.md.j2", **values, in_workflow=False)
    assert row not in render_reply("help.md.j2", **values, in_workflow=True)
"""


async def run(scenario: Scenario, directory: Path) -> dict[str, dict[str, str]]:
    """Runs `run_job.py` and returns the outcome that it prints."""
    cloned = {
        "CLONE_URL": f"{scenario.fake_github.server_url}/acme/calc.git",
        "CLONE_TOKEN": scenario.fake_github.create_token("maintainer"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "run_job.py", cwd=directory, env=scenario.environment | cloned,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    outcome: dict[str, dict[str, str]] = json.loads(out.decode().splitlines()[-1])
    return outcome
