"""Captured runs keep their prompts, their summaries and their HTML."""

import shutil
from pathlib import Path

import pytest

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import AgentStopped, Entry, Trajectory
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets
from patchwright.resolver.viewer.replay import replay_run
from patchwright.resolver.viewer.run_html import render_run_html
from tests.capture import CAPTURED, capture, main
from tests.resolver.test_played_runs import ELSEWHERE, KEPT, run_of

LOGS = sorted(CAPTURED.glob("*/*.jsonl"))


@pytest.fixture
def logs(tmp_path: Path) -> FileLogStore:
    """A data directory with two runs. One of them has a browsing subagent of an older version."""
    for name in ("textile", "pdoc"):
        shutil.copytree(KEPT / name, tmp_path / "runs" / name)
    run_id = next(given.run for given, _ in run_of(KEPT / "pdoc" / "events.jsonl").subagents())
    shutil.copytree(KEPT / "pdoc", tmp_path / "runs" / run_id)
    shutil.copy(KEPT / "pdoc" / "browse-1.jsonl", tmp_path / "runs" / run_id / "events.jsonl")
    return FileLogStore(tmp_path / "runs")


def test_a_captured_run_gives_the_same_prompts_without_the_secrets(
    logs: FileLogStore, tmp_path: Path
) -> None:
    (file,) = capture(logs, RunId("textile"), tmp_path / "seen", Secrets(["extended"]))
    text = file.read_text()
    assert "extended" in (logs.run_directory(RunId("textile")) / "events.jsonl").read_text()
    assert "extended" not in text and SECRET_PLACEHOLDER in text
    captured = Trajectory(tuple(Entry.model_validate_json(line) for line in text.splitlines()))
    steps = list(replay_run(captured))
    assert len(steps) > 2 and all(step.sent_fingerprint and step.is_identical for step in steps)


@pytest.mark.usefixtures("logs")
def test_the_command_makes_a_fixture_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHWRIGHT_DATA", str(tmp_path))
    assert main(["textile", "seen", "--hide", "extended"], tmp_path) == 0
    fixture = tmp_path / "seen/events.jsonl"
    assert "extended" not in fixture.read_text()
    assert run_of(fixture).replies() and main(["no-such-run", "other"], tmp_path) == 2


def test_a_run_with_outdated_prompts_is_not_captured(logs: FileLogStore, tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"Step 1 of .*browse-1 was sent another prompt"):
        capture(logs, RunId("pdoc"), tmp_path / "seen", Secrets())


def test_a_capture_overwrites_no_file(logs: FileLogStore, tmp_path: Path) -> None:
    capture(logs, RunId("textile"), tmp_path / "seen", Secrets())
    with pytest.raises(FileExistsError):
        capture(logs, RunId("textile"), tmp_path / "seen", Secrets())


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parent.name} {log.stem}")
def test_captured_runs_can_be_replayed_summarized_and_rendered(log: Path) -> None:
    assert ELSEWHERE.findall(log.read_bytes()) == []
    trajectory = run_of(log)
    assert [step.number for step in replay_run(trajectory) if not step.is_identical] == []
    (ended,) = [event for event in trajectory if isinstance(event, AgentStopped)]
    assert summarize_run(trajectory).stop_detail == ended.detail
    assert ended.detail in render_run_html(RunId(log.parent.name), trajectory, lambda run: None, Secrets())
