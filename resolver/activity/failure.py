"""Classifies runs by how they failed, from their logs.

The kinds are the failures of arXiv:2506.03011, section 5.2, and the ends that a run can have without a result.
"""

from collections.abc import Mapping
from typing import Literal

from patchwright.resolver.activity.agent_test_runs import has_run_tests
from patchwright.resolver.activity.finish_checks import has_reproduced
from patchwright.resolver.domain import Verdict
from patchwright.resolver.events import Trajectory
from patchwright.resolver.run_task import get_task
from patchwright.resolver.suites.missing_program import is_runner_missing
from patchwright.runtime.frozen_model import FrozenModel

FailureKind = Literal[
    "model",
    "looped",
    "environment",
    "limit",
    "gave_up",
    "wrong_place",
    "tests_not_run",
    "broke_tests",
    "misread_issue",
]

FAILURE_LABELS: Mapping[FailureKind, str] = {
    "model": "error of the model or the machine",
    "looped": "repeated itself",
    "environment": "the tests could not run",
    "limit": "reached a limit",
    "gave_up": "gave up without a change",
    "wrong_place": "changed the wrong place",
    "tests_not_run": "did not run the tests after the last edit",
    "broke_tests": "broke tests that passed",
    "misread_issue": "misread the issue",
}


class HiddenTestResult(FrozenModel):
    """What an evaluation knows about a run, and the run itself does not."""

    is_resolved: bool
    is_localized: bool
    """True if the patch changes a file that the reference fix changes."""
    has_regressions: bool = False
    """True if the only hidden tests that fail are tests that passed before."""
    could_run: bool = True
    """False if the hidden tests could not run."""


def classify_failure(trajectory: Trajectory, hidden: HiddenTestResult | None = None) -> FailureKind | None:
    """Returns the first thing that went wrong in a run. Returns None if the run solved the issue, if it has not ended,
    if it had no code to change, or if nothing shows a failure.

    Without `hidden`, the verdict decides whether the run solved the issue. Only hidden tests can show that a run
    misread it.
    """
    stopped, verdict = trajectory.agent_stopped, trajectory.verdict
    if (
        stopped is None
        or stopped.reason in ("input_required", "interrupted")
        or get_task(trajectory) != "work"
    ):
        return None
    if hidden.is_resolved if hidden else _is_solved(verdict):
        return None
    if stopped.reason == "error":
        return "model"
    if stopped.reason == "stuck":
        return "looped"
    if hidden and not hidden.could_run:
        return "environment"
    if verdict is not None and verdict.kind == "untested" and is_runner_missing(verdict.before):
        return "environment"
    if stopped.reason == "limit":
        return "limit"
    if verdict is None:
        return None
    return _classify_patch(trajectory, verdict, hidden)


def _is_solved(verdict: Verdict | None) -> bool:
    return verdict is not None and (verdict.kind in ("fixed", "conditional") or verdict.documentation_only)


def _classify_patch(
    trajectory: Trajectory, verdict: Verdict, hidden: HiddenTestResult | None
) -> FailureKind | None:
    """Returns what is wrong with the patch of an agent that finished."""
    if verdict.kind == "empty":
        return "gave_up"
    if hidden and not hidden.is_localized:
        return "wrong_place"
    if verdict.before is None and hidden is None:
        return None  # The repository has no tests, so nothing shows a failure.
    if not has_run_tests(trajectory, verdict.before.command if verdict.before else None):
        return "tests_not_run"
    if verdict.kind == "regressed" or (hidden and hidden.has_regressions):
        return "broke_tests"
    if hidden is not None:
        return "misread_issue"
    # The agent saw the failure, or wrote a test that shows it, and a test of its own still fails. Otherwise, the
    # patch may be right although no test shows it.
    shows_failure = has_reproduced(trajectory) or "failed" in verdict.new_tests_at_base.values()
    return "wrong_place" if shows_failure and verdict.patch_tests_failing else None
