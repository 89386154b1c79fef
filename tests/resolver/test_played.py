"""Runs in which a person answered for the model: every prompt is rebuilt from the log that was kept."""

import re
from pathlib import Path

import pytest

from resolver.actions import Finish
from resolver.browsing import browsing
from resolver.browsing import prompt as browsing_prompt
from resolver.browsing.addresses import only_address
from resolver.browsing.prompt import pages
from resolver.events import Decided, Ended, Entry, Judged, Trajectory
from resolver.replay import replay

KEPT = Path(__file__).parent.parent / "golden" / "played"
PLAYED = sorted(KEPT.glob("*/events.jsonl"))
HANDED_OVER = sorted(KEPT.glob("*/browse-*.jsonl"))
MAX_BYTES = 1_000_000
# Of the machine that they were played on; /workspace, /tmp and /opt are the sandbox's own.
ELSEWHERE = re.compile(
    rb"/(?:root|home|Users|work|data|mnt|var/folders)/\w|pypi\.org|pythonhosted|api[_-]key", re.I
)


@pytest.fixture(params=PLAYED, ids=lambda path: path.parent.name)
def log(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def run_of(log: Path) -> Trajectory:
    return Trajectory(tuple(Entry.model_validate_json(line) for line in log.read_bytes().splitlines()))


def test_runs_were_kept() -> None:
    assert len(PLAYED) >= 4 and HANDED_OVER


def test_each_prompt_is_the_one_that_was_answered(log: Path) -> None:
    steps = list(replay(run_of(log)))
    assert [step.number for step in steps if not step.sent or not step.same] == []
    assert len(steps) > 2


def test_each_prompt_begins_with_the_one_before_so_that_providers_have_it_cached(log: Path) -> None:
    steps = list(replay(run_of(log)))
    assert [step.kept for step in steps[1:]] == [step.messages for step in steps[:-1]]


def test_the_work_was_finished_and_the_tests_proved_it(log: Path) -> None:
    trajectory = run_of(log)
    last = trajectory.decisions()[-1]
    assert [type(call.action) for call in last.calls] == [Finish]
    assert [event.reason for event in trajectory if isinstance(event, Ended)] == ["finished"]
    assert {event.verdict.kind for event in trajectory if isinstance(event, Judged)} == {"fixed"}


@pytest.mark.parametrize("child", HANDED_OVER, ids=lambda path: path.parent.name)
def test_what_a_browsing_agent_reported_is_what_its_log_gives(child: Path) -> None:
    """Its prompts are not compared: the instructions are in each of them, and `browsing_prompt.md` has every word."""
    handed = {given.run: report for given, report in run_of(child.parent / "events.jsonl").delegations()}
    (run,) = (run for run in handed if run.endswith(child.stem))
    trajectory = run_of(child)
    assert browsing.report(run, trajectory) == handed[run]
    steps = list(replay(trajectory))
    assert len(steps) == len(trajectory.decisions()) > 1
    # The address that the task names was open before the first reply.
    assert trajectory.assigned is not None
    first = pages(trajectory, but=browsing.FIRST_LOOK)[0]
    assert only_address(trajectory.assigned.task) == first.url
    assert (
        first.tree
        in browsing_prompt.shown(Trajectory(trajectory.entries[: first_reply(trajectory)]))[-1].text
    )


def first_reply(trajectory: Trajectory) -> int:
    return next(at for at, entry in enumerate(trajectory.entries) if isinstance(entry.event, Decided))


@pytest.mark.parametrize("log", [*PLAYED, *HANDED_OVER], ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_kept_log_is_small_and_names_nothing_of_the_machine_it_came_from(log: Path) -> None:
    content = log.read_bytes()
    assert len(content) < MAX_BYTES
    assert ELSEWHERE.findall(content) == []
