"""Runs that were captured stay as they were: their prompts, what is told of them, and how they look."""

import shutil
from pathlib import Path

import pytest

from resolver.domain import RunId
from resolver.errors import LogError
from resolver.events import Ended, Entry, Trajectory
from resolver.log import FileLogs
from resolver.replay import replay
from resolver.secrets import HIDDEN, Secrets
from resolver.summary import summarize
from resolver.viewer.viewer import view
from tests.capture import SEEN, capture
from tests.resolver.test_played import ELSEWHERE, KEPT, run_of

CAPTURED = sorted(SEEN.glob("*/*.jsonl"))


@pytest.fixture
def logs(tmp_path: Path) -> FileLogs:
    """A data directory with two runs, one of which asked a browsing agent of an older version."""
    for name in ("textile", "pdoc"):
        shutil.copytree(KEPT / name, tmp_path / "runs" / name)
    asked = next(given.run for given, _ in run_of(KEPT / "pdoc" / "events.jsonl").delegations())
    shutil.copytree(KEPT / "pdoc", tmp_path / "runs" / asked)
    shutil.copy(KEPT / "pdoc" / "browse-1.jsonl", tmp_path / "runs" / asked / "events.jsonl")
    return FileLogs(tmp_path / "runs")


def test_a_captured_run_gives_the_prompts_that_its_words_give_without_the_secrets(
    logs: FileLogs, tmp_path: Path
) -> None:
    (file,) = capture(logs, RunId("textile"), tmp_path / "seen", Secrets(["extended"]))
    text = file.read_text()
    assert "extended" in (logs.path(RunId("textile")) / "events.jsonl").read_text()
    assert "extended" not in text and HIDDEN in text
    captured = Trajectory(tuple(Entry.model_validate_json(line) for line in text.splitlines()))
    steps = list(replay(captured))
    assert len(steps) > 2 and all(step.sent and step.same for step in steps)


def test_a_run_with_an_agent_whose_prompts_are_built_otherwise_by_now_is_not_captured(
    logs: FileLogs, tmp_path: Path
) -> None:
    with pytest.raises(LogError, match=r"Step 1 of .*browse-1 was sent another prompt"):
        capture(logs, RunId("pdoc"), tmp_path / "seen", Secrets())


def test_nothing_is_written_over(logs: FileLogs, tmp_path: Path) -> None:
    capture(logs, RunId("textile"), tmp_path / "seen", Secrets())
    with pytest.raises(FileExistsError):
        capture(logs, RunId("textile"), tmp_path / "seen", Secrets())


@pytest.mark.parametrize("log", CAPTURED, ids=lambda log: f"{log.parent.name} {log.stem}")
def test_what_was_captured_is_replayed_told_and_shown(log: Path) -> None:
    assert ELSEWHERE.findall(log.read_bytes()) == []
    trajectory = run_of(log)
    assert [step.number for step in replay(trajectory) if not step.same] == []
    (ended,) = [event for event in trajectory if isinstance(event, Ended)]
    assert summarize(trajectory).ending == ended.detail
    assert ended.detail in view(RunId(log.parent.name), trajectory, lambda run: None, Secrets())
