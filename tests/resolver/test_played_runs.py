"""Recorded runs in which a person played the model: every prompt is rebuilt from the log."""

import re
from pathlib import Path

import pytest

from patchwright.resolver.browsing import browsing_agent
from patchwright.resolver.browsing import prompt as browsing_prompt
from patchwright.resolver.browsing.guessed_urls import find_only_url
from patchwright.resolver.browsing.prompt import list_pages
from patchwright.resolver.events import AgentStopped, Entry, ModelReply, Trajectory, VerificationCompleted
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.viewer.replay import replay_run

KEPT = Path(__file__).parent.parent / "golden" / "played"
PLAYED = sorted(KEPT.glob("*/events.jsonl"))
HANDED_OVER = sorted(KEPT.glob("*/browse-*.jsonl"))
MAX_BYTES = 1_000_000
# Paths of the machine that recorded them; /workspace, /tmp and /opt belong to the sandbox.
ELSEWHERE = re.compile(
    rb"/(?:root|home|Users|work|data|mnt|var/folders)/\w|pypi\.org|pythonhosted|api[_-]key", re.I
)


@pytest.fixture(params=PLAYED, ids=lambda path: path.parent.name)
def log(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def run_of(log: Path) -> Trajectory:
    return Trajectory(tuple(Entry.model_validate_json(line) for line in log.read_bytes().splitlines()))


def test_there_are_recorded_runs() -> None:
    assert len(PLAYED) >= 4 and HANDED_OVER


def test_each_rebuilt_prompt_is_the_recorded_one(log: Path) -> None:
    steps = list(replay_run(run_of(log)))
    assert [step.number for step in steps if not step.sent_fingerprint or not step.is_identical] == []
    assert len(steps) > 2


def test_each_prompt_begins_with_the_one_before_so_that_providers_have_it_cached(log: Path) -> None:
    steps = list(replay_run(run_of(log)))
    assert [step.cached_messages for step in steps[1:]] == [step.messages for step in steps[:-1]]


def test_the_work_was_finished_and_the_tests_proved_it(log: Path) -> None:
    trajectory = run_of(log)
    last = trajectory.replies()[-1]
    assert [type(call.action) for call in last.calls] == [Finish]
    assert [event.reason for event in trajectory if isinstance(event, AgentStopped)] == ["finished"]
    assert {event.verdict.kind for event in trajectory if isinstance(event, VerificationCompleted)} == {
        "fixed"
    }


@pytest.mark.parametrize("child", HANDED_OVER, ids=lambda path: path.parent.name)
def test_what_a_browsing_agent_reported_is_what_its_log_gives(child: Path) -> None:
    """Its prompts are not compared, because each contains the instructions, which `browsing_prompt.md`
    covers.
    """
    handed = {given.run: report for given, report in run_of(child.parent / "events.jsonl").subagents()}
    (run,) = (run for run in handed if run.endswith(child.stem))
    trajectory = run_of(child)
    assert browsing_agent.build_result(run, trajectory) == handed[run]
    steps = list(replay_run(trajectory))
    assert len(steps) == len(trajectory.replies()) > 1
    # The address in the task was opened before the first reply.
    assert trajectory.subagent_started is not None
    first = list_pages(trajectory, excluded_call=browsing_agent.INITIAL_SNAPSHOT)[0]
    assert find_only_url(trajectory.subagent_started.task) == first.url
    assert (
        first.tree
        in browsing_prompt.build_prompt(Trajectory(trajectory.entries[: first_reply(trajectory)]))[-1].text
    )


def first_reply(trajectory: Trajectory) -> int:
    return next(at for at, entry in enumerate(trajectory.entries) if isinstance(entry.event, ModelReply))


@pytest.mark.parametrize("log", [*PLAYED, *HANDED_OVER], ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_recorded_log_is_small_and_contains_no_local_paths(log: Path) -> None:
    content = log.read_bytes()
    assert len(content) < MAX_BYTES
    assert ELSEWHERE.findall(content) == []
