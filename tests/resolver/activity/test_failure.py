"""Runs are classified by how they failed, from their logs alone."""

from typing import get_args

import pytest

from patchwright.resolver.activity.failure import (
    FAILURE_LABELS,
    FailureKind,
    HiddenTestResult,
    classify_failure,
)
from patchwright.resolver.domain import Patch, StopReason, TestRun, Verdict
from patchwright.resolver.events import AgentStopped, Checkpoint, Event, Trajectory, VerificationCompleted
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from patchwright.runtime.observations import EditResult
from tests.resolver.sample_runs import model_reply, run_of, shell_result, started, step

EDIT = ReplaceText(path="calc.py", old="a - b", new="a + b")
PATCH = Patch(
    base_sha="ab" * 20,
    diff=b"diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a - b\n+a + b\n",
)
TESTS = TestRun(
    command="pytest", results={"test_calc.py::test_add": "passed"}, exit_code=0, seconds=1, output=""
)
NO_RUNNER = TestRun(
    command="pytest", results={}, exit_code=127, seconds=0, output="pytest: not found", problem="not found"
)
SHOW = step("show", RunShell(command="python3 bug.py"), shell_result("Traceback (most recent call last)", 1))
RUN_TESTS = step("test", RunShell(command="pytest -q"), shell_result("3 passed in 0.1s"))
EDITED: tuple[Event, ...] = (
    model_reply("edit", EDIT),
    Checkpoint(patch=PATCH),
    *step("edit", EDIT, EditResult(path="calc.py", diff="-a - b\n+a + b\n"))[1:],
)
UNSOLVED = HiddenTestResult(is_resolved=False, is_localized=True)


def ended(reason: StopReason, verdict: Verdict | None, *work: Event) -> Trajectory:
    """Returns a run with this work, whose patch has this verdict."""
    end: tuple[Event, ...] = (AgentStopped(reason=reason, detail="The end."),)
    if verdict:
        end = (*end, VerificationCompleted(verdict=verdict))
    return run_of(started(), *work, *end)


def verdict(kind: str, **fields: object) -> Verdict:
    return Verdict.model_validate({"kind": kind, "before": TESTS, "after": TESTS, **fields})


WORK = (*SHOW, *EDITED, *RUN_TESTS)
RUNS: dict[FailureKind, Trajectory] = {
    "model": ended("error", verdict("unproven"), *WORK),
    "looped": ended("stuck", verdict("unproven"), *WORK),
    "environment": ended("finished", verdict("untested", before=NO_RUNNER, after=NO_RUNNER), *WORK),
    "limit": ended("limit", verdict("unproven"), *WORK),
    "gave_up": ended("finished", verdict("empty"), *SHOW),
    "wrong_place": ended("finished", verdict("unproven", patch_tests_failing=("t",)), *WORK),
    "tests_not_run": ended("finished", verdict("regressed", pass_to_fail=("t",)), *SHOW, *EDITED),
    "broke_tests": ended("finished", verdict("regressed", pass_to_fail=("t",)), *WORK),
    "misread_issue": ended("finished", verdict("unproven"), *EDITED, *RUN_TESTS),
}


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_a_run_is_classified_by_how_it_failed(kind: FailureKind) -> None:
    hidden = UNSOLVED if kind == "misread_issue" else None
    assert classify_failure(RUNS[kind], hidden) == kind
    assert FAILURE_LABELS[kind]
    stored = [entry.model_validate_json(entry.model_dump_json()) for entry in RUNS[kind].entries]
    assert classify_failure(Trajectory(tuple(stored)), hidden) == kind


def test_a_patch_that_no_test_shows_may_be_right() -> None:
    unproven = verdict("unproven", new_tests_at_base={"t": "passed"})
    for work in ((*EDITED, *RUN_TESTS), WORK):
        assert classify_failure(ended("finished", unproven, *work)) is None
        assert classify_failure(ended("finished", verdict("unproven"), *work)) is None


def test_a_test_of_the_patch_that_still_fails_means_the_wrong_place() -> None:
    new = {"new_tests_at_base": {"t": "failed"}, "patch_tests_failing": ("t",)}
    assert (
        classify_failure(ended("finished", verdict("unproven", **new), *EDITED, *RUN_TESTS)) == "wrong_place"
    )


@pytest.mark.parametrize("kind", ["fixed", "conditional"])
def test_a_proven_run_has_not_failed_even_if_it_reached_a_limit(kind: str) -> None:
    assert classify_failure(ended("limit", verdict(kind), *WORK)) is None


def test_runs_that_wait_or_go_on_have_not_failed() -> None:
    assert classify_failure(run_of(started(), *WORK)) is None
    assert classify_failure(ended("input_required", None, *SHOW)) is None
    assert classify_failure(ended("finished", None, *WORK)) is None
    assert classify_failure(ended("finished", Verdict(kind="untested"), *WORK)) is None  # no tests at all
    assert classify_failure(ended("finished", verdict("unproven", documentation_only=True), *WORK)) is None


def test_hidden_tests_decide_what_the_verdict_cannot_know() -> None:
    proven = ended(
        "finished", verdict("fixed"), *WORK, model_reply("end", Finish(cause="", change="", testing=""))
    )
    assert classify_failure(proven, UNSOLVED) == "misread_issue"
    assert classify_failure(proven, UNSOLVED.model_copy(update={"is_resolved": True})) is None
    assert classify_failure(proven, UNSOLVED.model_copy(update={"is_localized": False})) == "wrong_place"
    assert classify_failure(proven, UNSOLVED.model_copy(update={"has_regressions": True})) == "broke_tests"
    assert classify_failure(proven, UNSOLVED.model_copy(update={"could_run": False})) == "environment"
    solved = ended("finished", verdict("unproven"), *WORK)
    assert classify_failure(solved, UNSOLVED.model_copy(update={"is_resolved": True})) is None
