"""Integration tests detect wrong results and a fault in each part, and script/regenerate keeps replies that fit."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchwright import LocalWorkspace, Tool
from patchwright.resolver.rendering.jinja_templates import set_template_directory
from patchwright.runtime.actions import ReplaceText, SandboxAction, UndoEdit
from patchwright.runtime.observations import Observation
from patchwright.runtime.sandbox import WrapperSandbox
from tests.integration.scenario import GoldTest
from tests.integration.test_scenarios import CASES, run


@pytest.fixture
def typos(tmp_path: Path) -> Path:
    """A copy of a case that a test may change."""
    return Path(shutil.copytree(CASES / "typos", tmp_path / "typos"))


def test_a_result_that_differs_from_the_gold_files_is_shown_as_a_diff(
    typos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = typos / "gold/bad.txt"
    gold.write_text(gold.read_text().replace("Enjoy", "Like"))
    with pytest.raises(AssertionError, match="GoldTest rejects the result of typos"):
        run(GoldTest, typos, tmp_path / "root")
    assert "--- gold/bad.txt\n+++ bad.txt\n" in (shown := capsys.readouterr().out)
    assert "\n-Like the rest.\n+Enjoy the rest.\n" in shown


# A fault in each part is detected.


@pytest.fixture
def templates(tmp_path: Path) -> Iterator[Path]:
    """A directory with the only template of prompts that a test replaces."""
    path = tmp_path / "templates/prompts/conversation.md.j2"
    path.parent.mkdir(parents=True)
    yield path
    set_template_directory(None)


def test_a_wrong_prompt_is_detected(typos: Path, tmp_path: Path, templates: Path) -> None:
    templates.write_text("Do what you think is right in {{ root }}. Scratch: {{ scratch }}.")
    set_template_directory(templates.parents[1])
    with pytest.raises(AssertionError, match=r"\n\+Do what you think is right in /workspace\."):
        run(GoldTest, typos, tmp_path / "root")


def test_a_fragmented_message_is_detected(typos: Path, tmp_path: Path) -> None:
    recording = typos / "recorded.jsonl"
    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    for call in lines[1]["reply"]["tool_calls"]:
        call["arguments"] = call["arguments"][:-3]
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(AssertionError, match="the arguments are not valid JSON"):
        run(GoldTest, typos, tmp_path / "root")


class ForgetfulSandbox(WrapperSandbox):
    """Reports each edit as it should, and takes it back."""

    async def act(self, action: SandboxAction) -> Observation:
        observation = await self._sandbox.act(action)
        if isinstance(action, ReplaceText):
            await self._sandbox.act(UndoEdit(path=action.path))
        return observation


class ForgetfulWorkspace(LocalWorkspace):
    async def _open(self) -> None:
        await super()._open()
        self._sandbox = ForgetfulSandbox(self.sandbox)


class ForgetfulTest(GoldTest):
    workspace = ForgetfulWorkspace


def test_a_sandbox_that_does_nothing_is_detected(typos: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ForgetfulTest rejects the result of typos"):
        run(ForgetfulTest, typos, tmp_path / "root")


# script/regenerate without a model


@pytest.fixture
def regenerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHWRIGHT_REGENERATE", "keep")


@pytest.mark.usefixtures("regenerate")
def test_a_reworded_task_is_recorded_with_the_old_replies(
    typos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, recording = typos / "task.md", typos / "recorded.jsonl"
    task.write_text(task.read_text().replace("Correct", "Please correct"))
    run(GoldTest, typos, tmp_path / "root")
    assert "Please correct" in recording.read_text()
    monkeypatch.delenv("PATCHWRIGHT_REGENERATE")
    run(GoldTest, typos, tmp_path / "again")


class WithoutShellTest(GoldTest):
    def tools(self) -> list[Tool]:
        return super().tools()[1:]


@pytest.mark.usefixtures("regenerate")
def test_another_set_of_tools_asks_for_a_live_model(typos: Path, tmp_path: Path) -> None:
    before = (typos / "recorded.jsonl").read_bytes()
    with pytest.raises(AssertionError, match=r"PATCHWRIGHT_MODEL=\S+ \S+ script/regenerate"):
        run(WithoutShellTest, typos, tmp_path / "root")
    assert (typos / "recorded.jsonl").read_bytes() == before
