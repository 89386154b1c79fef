"""The proof of a merge: what passed on the pull request's head, or on its base branch, has to pass on both together."""

from functools import partial

from resolver.domain import Patch, SuiteRun, Verdict
from resolver.git.merging import Merge, unresolved
from resolver.proof.baseline import Baselines, Bases
from resolver.suites.run import run_suite
from resolver.suites.suite import Suites
from resolver.validate import Heard, nobody
from resolver.verdict import Evidence, broken, judge
from resolver.workspace import Workspace
from runtime.sandbox import Sandboxes


async def prove_merge(
    merge: Merge,
    remembered: Baselines,
    workspace: Workspace,
    patch: Patch,
    suites: Suites,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    head: Bases,
    _heard: Heard = nobody,
) -> Verdict:
    """The verdict on a merge, `workspace` at its commit, with what was done to it by hand as the patch.

    `head` are the suites on the pull request's head. The repository's likely suite is run. Raises
    ProofUnavailable, WorkspaceError.
    """
    if left := await unresolved(workspace, patch, merge):
        named = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        return Verdict(kind="regressed", reason=f"Git's conflict markers are still in {named}.")
    # Never empty: two histories become one, whether or not a line had to be written for it.
    change = Patch(base=merge.into, diff=merge.commit.encode())
    if (suite := suites.likely) is None:
        return judge(change, None)
    async with Bases(workspace.at_commit(merge.of), sandboxes, f"{name}-of", seconds, remembered) as base:
        before = either(await head.begin(suite), await base.begin(suite))
    run = partial(run_suite, workspace, patch, suite, sandboxes)
    after = await run(f"{name}-after", seconds)
    again = None
    if broken(before, after) or after.problem or (not after.results and after.exit_code != 0):
        again = await run(f"{name}-again", seconds)
    verdict = judge(change, Evidence(before, after, again=again))
    if verdict.kind == "unproven" and not verdict.missing and not before.problem and not after.problem:
        passed = "Whatever passed on the pull request or on its base branch passes on the merge of the two."
        verdict = verdict.model_copy(update={"reason": passed})
    return verdict


def either(head: SuiteRun, base: SuiteRun) -> SuiteRun:
    """Both runs as one: a test passed before, where it passed on either side."""
    passed = {
        test: "passed" for run in (base, head) for test, result in run.results.items() if result == "passed"
    }
    return head.model_copy(
        update={
            "results": base.results | head.results | passed,
            "exit_code": 0 if 0 in (head.exit_code, base.exit_code) else head.exit_code,
            "flaky": tuple(sorted({*head.flaky, *base.flaky})),
            "seconds": head.seconds + base.seconds,
            "problem": head.problem or base.problem,
        }
    )
