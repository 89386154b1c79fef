"""Verifies a merge. Each test that passed on the pull request's head or on its base branch must pass on the
merge commit.
"""

from functools import partial

from patchwright.resolver.domain import Patch, TestRun, Verdict
from patchwright.resolver.git.merge import MergeResult, find_unresolved
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.proof.baseline import BaselineCache, BaselineRuns
from patchwright.resolver.proof.evidence import Evidence
from patchwright.resolver.proof.run_comparison import find_pass_to_fail
from patchwright.resolver.proof.verdict import decide_verdict
from patchwright.resolver.suites.execution import TestSetup, run_tests


async def verify_merge(
    merge: MergeResult,
    cache: BaselineCache,
    workspace: Workspace,
    patch: Patch,
    setup: TestSetup,
    head_runs: BaselineRuns,
) -> Verdict:
    """Returns the verdict on a merge. The base of `workspace` is the merge commit. `patch` contains the
    agent's changes to that commit.

    `head_runs` are the test runs on the pull request's head. Only the repository's primary suite runs. Raises
    VerificationUnavailable or WorkspaceError.
    """
    if unresolved := await find_unresolved(workspace, patch, merge):
        paths = ", ".join(unresolved[:5]) + (
            f" and {len(unresolved) - 5} more" if len(unresolved) > 5 else ""
        )
        return Verdict(kind="regressed", reason=f"Git's conflict markers are still in {paths}.")
    # The diff must not be empty: `decide_verdict` would treat an empty diff as no change, but a merge is a
    # change.
    change = Patch(base_sha=merge.head, diff=merge.commit.encode())
    if (suite := setup.suites.primary) is None:
        return decide_verdict(change, None)
    sandboxes, name, timeout = setup.sandboxes, setup.name, setup.seconds
    async with BaselineRuns(workspace.with_base(merge.base), sandboxes, f"{name}-of", timeout, cache) as base:
        before = combine_runs(await head_runs.start(suite), await base.start(suite))
    run = partial(run_tests, workspace, patch, suite, sandboxes)
    after = await run(f"{name}-after", timeout)
    rerun = None
    if find_pass_to_fail(before, after) or after.problem or (not after.results and after.exit_code != 0):
        rerun = await run(f"{name}-again", timeout)
    verdict = decide_verdict(change, Evidence(before, after, after_rerun=rerun))
    if verdict.kind == "unproven" and not verdict.missing and not before.problem and not after.problem:
        reason = "All tests that passed on the pull request or on its base branch pass on the merge."
        verdict = verdict.model_copy(update={"reason": reason})
    return verdict


def combine_runs(head: TestRun, base: TestRun) -> TestRun:
    """Merges two test runs into one. In the result, a test passed if it passed in at least one of the runs."""
    passed = {
        test: "passed" for run in (base, head) for test, result in run.results.items() if result == "passed"
    }
    return head.model_copy(
        update={
            "results": base.results | head.results | passed,
            "outcomes": {
                test: outcome
                for test, outcome in (base.outcomes | head.outcomes).items()
                if test not in passed
            },
            "exit_code": 0 if 0 in (head.exit_code, base.exit_code) else head.exit_code,
            "flaky": tuple(sorted({*head.flaky, *base.flaky})),
            "seconds": head.seconds + base.seconds,
            "problem": head.problem or base.problem,
        }
    )
