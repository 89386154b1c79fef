"""Runs on this disk, looked at from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resolver.agent import begin
from resolver.llm.scripted import Scripted
from resolver.log import FileLog
from runtime.actions import RunShell
from tests.resolver.agents import FINISH, Box, agent


def patchwright(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(data), "PATCHWRIGHT_DATA": str(data)}
    command = [sys.executable, "-m", "bot.cli", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory with one finished run, `acme-7`."""
    (tmp_path / "runs" / "acme-7").mkdir(parents=True)
    log = FileLog(tmp_path / "runs" / "acme-7" / "events.jsonl")
    worker = agent(Scripted([RunShell(command="ls"), FINISH]), Box())
    await begin(log, "You mend.", "Issue 7: \x1b[31mred", worker.tools)
    await worker.run(log)
    log.close()
    return tmp_path


def test_a_run_is_replayed_without_model_or_sandbox(data: Path) -> None:
    shown = patchwright(data, "replay", "acme-7")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[-1] == (
        "acme-7: 2 steps rebuilt, none of them with another prompt than was sent"
    )
    told = json.loads(patchwright(data, "replay", "acme-7", "--json").stdout)
    assert [(step["number"], step["same"]) for step in told["steps"]] == [(1, True), (2, True)]


def test_one_prompt_is_printed_without_control_codes(data: Path) -> None:
    shown = patchwright(data, "replay", "acme-7", "--step", "2").stdout
    assert shown.startswith("--- system\nYou mend.\n--- user\nIssue 7: [31mred\n--- assistant\n")
    assert "[run_shell " in shown and shown.rstrip().endswith("in /workspace]")
    told = json.loads(patchwright(data, "replay", "acme-7", "--step", "2", "--json").stdout)
    assert [message["role"] for message in told["messages"]] == ["system", "user", "assistant", "tool"]


def test_a_prompt_that_differs_ends_with_its_own_code(data: Path) -> None:
    log = data / "runs" / "acme-7" / "events.jsonl"
    log.write_text(log.read_text().replace("You mend.", "You break."))
    shown = patchwright(data, "replay", "acme-7")
    assert shown.returncode == 3
    assert "DIFFERS" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("replay", "acme-8"), "There is no run `acme-8`"),
        (("replay", "../x"), "is not a run's name"),
        (("replay", "acme-7", "--step", "3"), "acme-7 has 2 steps: --step takes 1 to 2"),
    ],
)
def test_what_is_not_there_is_told_in_a_sentence(data: Path, arguments: tuple[str, ...], told: str) -> None:
    shown = patchwright(data, *arguments)
    assert shown.returncode in (1, 2) and told in shown.stderr and "Traceback" not in shown.stderr
