"""Verification of a merge of a pull request's head and its base branch."""

from pathlib import Path

import pytest

from patchwright.resolver.domain import Patch, TestRun, TestStatus
from patchwright.resolver.git.merge import MergeResult
from patchwright.resolver.proof.baseline import BaselineCache, BaselineRuns
from patchwright.resolver.proof.merge_verification import combine_runs, verify_merge
from patchwright.resolver.suites.execution import TestSetup
from patchwright.resolver.suites.suite import Suites
from tests.resolver.patch_verifier import BUG, PYTEST, TESTS, VerifierFactory

MARKED = "<<<<<<< a\n1\n=======\n2\n>>>>>>> b\n"


def run(results: dict[str, TestStatus], exit_code: int, **fields: object) -> TestRun:
    return TestRun(
        command="test", command_reason="", results=results, exit_code=exit_code, seconds=2, output="",
    ).model_copy(update=fields)  # fmt: skip


def test_a_test_passed_before_the_merge_if_it_passed_on_one_side() -> None:
    head = run({"a": "failed", "b": "passed", "c": "failed"}, 1, flaky=("f",), outcomes={"a": "x", "c": "y"})
    base = run({"a": "passed", "b": "failed", "d": "error"}, 0, flaky=("e", "f"), outcomes={"d": "z"})
    assert combine_runs(head, base) == run(
        {"a": "passed", "b": "passed", "c": "failed", "d": "error"},
        0, flaky=("e", "f"), outcomes={"c": "y", "d": "z"}, seconds=4,
    )  # fmt: skip
    assert combine_runs(run({}, 3, problem=None), run({}, 2, problem="slow")) == run(
        {}, 3, problem="slow", seconds=4
    )
    assert combine_runs(run({}, 3, problem="head"), run({}, 0, problem="base")).problem == "head"


@pytest.mark.parametrize(
    ("count", "named"),
    [(1, "0"), (5, "0, 1, 2, 3, 4"), (7, "0, 1, 2, 3, 4 and 2 more")],
)
async def test_remaining_conflict_markers_are_a_regression(
    open_verifier: VerifierFactory, tmp_path: Path, count: int, named: str
) -> None:
    paths = [str(number) for number in range(count)]
    async with open_verifier(dict.fromkeys(paths, MARKED)) as verifier:
        workspace = verifier.workspace
        merge = MergeResult(head="a" * 40, base="b" * 40, commit=workspace.base, conflicts=tuple(paths))
        async with BaselineRuns(workspace, verifier.sandboxes, "head", 60) as runs:
            verdict = await verify_merge(
                merge, BaselineCache(tmp_path), workspace, Patch(base_sha=workspace.base, diff=b""),
                TestSetup(Suites(), verifier.sandboxes, "merge", 60), runs,
            )  # fmt: skip
    assert (verdict.kind, verdict.reason) == (
        *("regressed", f"Git's conflict markers are still in {named}."),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "kind", "reason"),
    [
        (BUG + "\n", "unproven", "All tests that passed on the pull request or on its base branch pass on the merge."),
        (BUG.replace("1", "2"), "regressed", "1 test passed without the patch and failed with it, twice."),
    ],
)  # fmt: skip
async def test_tests_that_passed_before_the_merge_must_pass_after_it(
    open_verifier: VerifierFactory, tmp_path: Path, new: str, kind: str, reason: str
) -> None:
    async with open_verifier({"calc.py": BUG, "test_calc.py": TESTS}) as verifier:
        workspace = verifier.workspace
        merge = MergeResult(head=workspace.base, base=workspace.base, commit=workspace.base, conflicts=())
        patch = await verifier.patch({"calc.py": new})
        async with BaselineRuns(workspace, verifier.sandboxes, "head", 60) as runs:
            verdict = await verify_merge(
                merge, BaselineCache(tmp_path), workspace, patch,
                TestSetup(Suites(all=(PYTEST,), primary=PYTEST), verifier.sandboxes, "merge", 60), runs,
            )  # fmt: skip
    assert (verdict.kind, verdict.reason) == (kind, reason)
