"""Decides the verdict on a patch from the test runs of one suite."""

from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import Patch, TestRun, TestStatus, Verdict, VerdictKind
from patchwright.resolver.proof import verdict_reasons
from patchwright.resolver.proof.condition_finder import find_conditions
from patchwright.resolver.proof.evidence import NO_TEST_EDITS, Evidence, PatchTests, TestEdits
from patchwright.resolver.proof.run_comparison import (
    FAILED_STATUSES,
    find_fail_to_pass,
    find_pass_to_fail,
    get_test_file,
    get_test_function,
    get_test_status,
    has_failed,
)
from patchwright.resolver.rendering.filters import inline_code, list_tests


def decide_verdict(patch: Patch, evidence: Evidence | None, test_edits: TestEdits = NO_TEST_EDITS) -> Verdict:
    """Decides the verdict as `Verdict` defines it. `evidence` is None if the repository has no test suite."""
    if patch.is_empty:
        return Verdict(kind="empty", reason="The run ended without a change to the code.")
    verdict = Verdict(
        kind="untested",
        reason="No tests were found in the repository, and none are configured.",
        weakened_tests=test_edits.weakened_tests,
        deleted_test_files=test_edits.deleted_test_files,
        reverted_test_config=test_edits.reverted_test_config,
        added_packages=test_edits.added_packages,
    )
    if evidence is not None:
        verdict = _compare_runs(verdict, evidence)
    return apply_conditions(verdict.model_copy(update={"conditions": find_conditions(verdict, patch.diff)}))


def apply_conditions(verdict: Verdict) -> Verdict:
    """Changes the verdict `fixed` to `conditional` if it has conditions. Other kinds stay as they are."""
    if verdict.kind not in ("fixed", "conditional") or not verdict.conditions:
        return verdict
    return verdict.model_copy(update={"kind": "conditional", "reason": verdict_reasons.explain_fix(verdict)})


def accept_version(
    verdict: Verdict, again: Verdict, failing: frozenset[str], versions: tuple[str, str]
) -> Verdict:
    """Returns the verdict `again`, for which the project's new version was in the installed metadata, if fewer tests
    fail there. Only tests that also show the fix without it count. `failing` are the tests that failed without it.
    """
    passing = tuple(sorted(failing.difference(again.pass_to_fail, again.patch_tests_failing)))
    if not passing:
        return verdict
    old, new = map(inline_code, versions)
    passes, fails = ("passes", "it fails") if len(passing) == 1 else ("pass", "they fail")
    sentence = f"{list_tests(passing)} {passes} with {new} as the installed version; with {old}, {fails}."
    condition = Condition(kind="installed_version", sentence=sentence, tests=passing)
    shown = tuple(test for test in again.fail_to_pass if test in verdict.fail_to_pass)
    update: dict[str, object] = {"fail_to_pass": shown, "conditions": (*again.conditions, condition)}
    if again.kind in ("fixed", "conditional") and not shown:
        reason = (
            f"The tests that fail without the patch pass only with {versions[1]} as the installed version."
        )
        update |= {"kind": "unproven", "reason": reason}
    return apply_conditions(again.model_copy(update=update))


def _compare_runs(verdict: Verdict, evidence: Evidence) -> Verdict:
    """Adds the runs, their differences, the kind and the reason to the verdict."""
    before, after = evidence.before, evidence.after
    runs = {"before": before, "after": _merge_patch_tests(evidence), "partial": evidence.partial}
    verdict = verdict.model_copy(update=runs)
    if before.problem or after.problem:
        kind, reason = verdict_reasons.explain_missing_run(evidence)
    elif before.results or after.results:
        verdict = _compare_tests(verdict, evidence)
        kind, reason = _kind_and_reason(verdict, evidence)
    else:
        verdict, kind, reason = _compare_exit_codes(verdict, evidence)
    return verdict.model_copy(update={"kind": kind, "reason": reason})


def _compare_tests(verdict: Verdict, evidence: Evidence) -> Verdict:
    """Adds the differences between the runs to the verdict."""
    before, after, after_rerun = evidence.before, evidence.after, evidence.after_rerun or evidence.after
    suspects, candidates = find_pass_to_fail(before, after), find_fail_to_pass(before, after)
    before_rerun = evidence.before_rerun or before
    # A test counts as flaky only if its second run shows no difference. A second run with a problem proves
    # nothing.
    flaky = {test for test in suspects if get_test_status(after_rerun, test) in ("passed", "skipped")}
    flaky |= {test for test in suspects if has_failed(before_rerun, test)}
    flaky |= {
        test for test in candidates if get_test_status(after_rerun, test) in (*FAILED_STATUSES, "skipped")
    }
    flaky |= {test for test in candidates if get_test_status(before_rerun, test) == "passed"}
    failing = [test for test in suspects if test not in flaky]
    modified = [test for test in failing if _is_modified(test, evidence)]
    pass_to_fail = [test for test in failing if test not in modified]
    fail_to_pass = [test for test in candidates if test not in flaky]
    missing = [] if evidence.partial else _missing_tests(evidence, modified)
    patch_tests_failing: tuple[str, ...] = ()
    new_tests_at_base: dict[str, TestStatus] = {}
    replaced: list[str] = []
    if (patch_tests := evidence.patch_tests) is not None:
        if not evidence.partial:
            replaced = _replaced_failing_tests(evidence, patch_tests)
        patch_tests_failing, patch_fail_to_pass, patch_flaky = _compare_patch_tests(
            before, patch_tests, frozenset(map(get_test_function, replaced))
        )
        flaky |= set(patch_flaky)
        fail_to_pass = sorted({*fail_to_pass, *patch_fail_to_pass} - flaky - set(patch_tests_failing))
        new_tests_at_base = _new_tests_at_base(before, patch_tests)
    return verdict.model_copy(
        update={
            "fail_to_pass": tuple(fail_to_pass),
            "pass_to_fail": tuple(pass_to_fail),
            "flaky": tuple(sorted(flaky | set(before.flaky))),
            "missing": tuple(missing),
            "modified_tests_failing": tuple(modified),
            "replaced_failing_tests": tuple(replaced),
            "new_tests_at_base": new_tests_at_base,
            "patch_tests_failing": patch_tests_failing,
        }
    )


def _kind_and_reason(verdict: Verdict, evidence: Evidence) -> tuple[VerdictKind, str]:
    """Returns the kind of verdict and its reason, without regard to the conditions. If several kinds apply,
    the worst one counts.
    """
    patch_tests = evidence.patch_tests
    if verdict.pass_to_fail:
        return "regressed", verdict_reasons.explain_regression(verdict)
    if verdict.patch_tests_failing:
        return "unproven", verdict_reasons.explain_failing_patch_tests(verdict)
    if patch_tests and patch_tests.after.problem:
        return "unproven", f"The tests from the patch could not be run: {patch_tests.after.problem}."
    if verdict.fail_to_pass:
        return "fixed", verdict_reasons.explain_fix(verdict)
    runs = (evidence.before, evidence.after, *((patch_tests.after,) if patch_tests else ()))
    if not any(run.has_run_tests for run in runs):
        return "untested", verdict_reasons.explain_unloaded_tests(evidence.before)
    return "unproven", verdict_reasons.explain_missing_evidence(verdict, evidence)


def _is_modified(test: str, evidence: Evidence) -> bool:
    """Returns True if the patch changes or deletes a test whose base version fails with the patch. The test then does
    not fail in the run with the whole patch. A test that is absent from this run counts only if its file ran or
    belongs to the patch. Otherwise, the runner may have stopped before it.
    """
    run = evidence.full_patch
    if run is None or run.problem or has_failed(run, test):
        return False
    file = get_test_file(test)
    changed_files = evidence.patch_tests.files if evidence.patch_tests else frozenset()
    return (
        get_test_status(run, test) is not None
        or file == test  # the runner does not name the files of its tests
        or file in changed_files
        or file in map(get_test_file, run.results)
    )


def _missing_tests(evidence: Evidence, modified: list[str]) -> list[str]:
    """Returns the tests that passed at base, but are skipped or do not run with the patch."""
    not_run, patch_tests = ("skipped", None), evidence.patch_tests
    return sorted(
        test
        for test, result in evidence.before.results.items()
        if result == "passed" and test not in evidence.before.flaky and test not in modified
        if get_test_status(evidence.after, test) in not_run
        or (
            patch_tests
            and not patch_tests.after.problem
            and patch_tests.covers(test)
            and test not in patch_tests.renumbered
            and get_test_status(patch_tests.after, test) in not_run
        )
    )


def _replaced_failing_tests(evidence: Evidence, patch_tests: PatchTests) -> list[str]:
    """Returns the tests that fail in the base version with and without the patch, and that the patch makes
    pass or disappear by changing the tests.
    """
    before, after, changed = evidence.before, evidence.after, patch_tests.after
    if changed.problem:
        return []
    still_failing = [
        test
        for test, result in before.results.items()
        if result in FAILED_STATUSES and test not in before.flaky and has_failed(after, test)
    ]
    return sorted(
        test
        for test in still_failing
        if get_test_status(changed, test) == "passed"
        or (get_test_file(test) in patch_tests.files and not has_failed(changed, test))
    )


def _compare_patch_tests(
    before: TestRun, patch_tests: PatchTests, replaced_functions: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns three groups of the patch's own tests: the tests that fail with the patch, the tests that show
    the fix, and the flaky tests.

    A test that failed or was flaky at base belongs to no group: it shows the fix only if its base version passes
    with the patch. Otherwise, a patch could rewrite the failing test instead of fixing the code. The same applies
    to a test function whose failing parameters the patch replaces (`replaced_functions`).
    """
    rerun = patch_tests.after_rerun or patch_tests.after
    failed = [
        test
        for test, result in patch_tests.after.results.items()
        if result in FAILED_STATUSES
        and before.results.get(test) not in FAILED_STATUSES
        and test not in before.flaky
    ]
    flaky = {test for test in failed if get_test_status(rerun, test) in ("passed", "skipped")}
    fixing: tuple[str, ...] = ()
    if patch_tests.before is not None and not patch_tests.before.problem and not patch_tests.after.problem:
        fixing = tuple(
            test
            for test in find_fail_to_pass(patch_tests.before, patch_tests.after)
            if not has_failed(before, test) and test not in before.flaky
            if get_test_function(test) not in replaced_functions
        )
        before_rerun = patch_tests.before_rerun or patch_tests.before
        flaky |= {test for test in fixing if get_test_status(before_rerun, test) == "passed"}
        flaky |= {test for test in fixing if has_failed(rerun, test)}
    return (
        tuple(sorted(test for test in failed if test not in flaky)),
        tuple(test for test in fixing if test not in flaky),
        tuple(sorted(flaky)),
    )


def _new_tests_at_base(before: TestRun, patch_tests: PatchTests) -> dict[str, TestStatus]:
    """Returns the results of the patch's new and changed tests on the code at base. The repository's own
    tests that failed at base are left out.
    """
    if patch_tests.before is None or patch_tests.before.problem or patch_tests.after.problem:
        return {}
    results = {
        test: (get_test_status(before, test), get_test_status(patch_tests.before, test))
        for test in patch_tests.after.results
    }
    return {
        test: at_base
        for test, (own_result, at_base) in results.items()
        if at_base and at_base != own_result and own_result not in FAILED_STATUSES
    }


def _merge_patch_tests(evidence: Evidence) -> TestRun:
    """Returns the test run with the patch. For each test that the patch changes, it contains the result of the
    patch's version of the test.
    """
    after, patch_tests = evidence.after, evidence.patch_tests
    if patch_tests is None or patch_tests.after.problem or after.problem:
        return after
    repository_results = {
        test: result for test, result in after.results.items() if get_test_file(test) not in patch_tests.files
    }
    if not after.results:
        return after
    output = (
        after.output
        if find_pass_to_fail(evidence.before, after) or not patch_tests.after.failed_count
        else patch_tests.after.output
    )
    failing = _repository_failures(evidence.before, patch_tests)
    patch_results = {
        test: result for test, result in patch_tests.after.results.items() if test not in failing
    }
    outcomes = {test: outcome for test, outcome in after.outcomes.items() if test not in patch_results}
    return after.model_copy(
        update={
            "results": repository_results | patch_results,
            "outcomes": outcomes | patch_tests.after.outcomes,
            "output": output,
            # Otherwise, the exit code would tell of tests that fail only in their old version.
            "exit_code": patch_tests.after.exit_code if after.failed_tests else after.exit_code,
        }
    )


def _repository_failures(before: TestRun, patch_tests: PatchTests) -> frozenset[str]:
    """Returns the repository's own tests that fail at base. In runs of the patch's tests, the results of
    these old tests are ignored, because code in the patch's tests could make them pass.
    """
    return frozenset(
        test
        for test, result in before.results.items()
        if result in FAILED_STATUSES and "::" in test and get_test_file(test) not in patch_tests.files
    )


def _compare_exit_codes(verdict: Verdict, evidence: Evidence) -> tuple[Verdict, VerdictKind, str]:
    """Decides the kind of verdict if the test command reports no individual tests. In the lists of the verdict,
    the command then stands for its tests.
    """
    before, after, patch_tests = evidence.before, evidence.after, evidence.patch_tests
    ok = before.exit_code == 0, after.exit_code == 0
    if ok == (True, False):
        if (evidence.after_rerun or after).exit_code == 0:
            return (
                verdict,
                "unproven",
                "The test command failed once and passed once with the patch: it is flaky.",
            )
        if evidence.full_patch and evidence.full_patch.exit_code == 0:
            verdict = verdict.model_copy(update={"modified_tests_failing": (after.command,)})
            reason = "The test command fails with the old tests on the patch's code, and passes with the patch's tests."
            return verdict, "unproven", reason
        return verdict, "regressed", "The test command passed without the patch and failed with it, twice."
    if ok == (False, True) and before.flaky:
        return (
            verdict,
            "unproven",
            "The test command failed once and passed once without the patch: it is flaky.",
        )
    if patch_tests and patch_tests.after.exit_code != 0 and ok[1]:
        return verdict, "unproven", "The test command failed with the tests from the patch."
    if ok == (False, True):
        return verdict, "fixed", verdict_reasons.explain_fix(verdict)
    if not evidence.changes_code:
        return verdict, "unproven", verdict_reasons.explain_unchanged_code(verdict)
    if patch_tests and not patch_tests.files_only and patch_tests.after.exit_code == 0 and not ok[1]:
        verdict = verdict.model_copy(update={"replaced_failing_tests": (after.command,)})
        reason = "The test command still fails with the old tests, and passes only with the patch's tests."
        return verdict, "unproven", reason
    if ok == (True, True) and patch_tests and _fails_only_at_base(patch_tests):
        verdict = verdict.model_copy(update={"new_tests_at_base": {after.command: "failed"}})
        return verdict, "fixed", verdict_reasons.explain_fix(verdict)
    same = "passed" if ok[0] else "failed"
    reason = f"The test command {same} without the patch and with it, and reports no individual tests."
    return verdict, "unproven", reason


def _fails_only_at_base(patch_tests: PatchTests) -> bool:
    """Returns True if the command with the patch's tests fails twice on the base code, and passes with the patch."""
    runs = (patch_tests.after, patch_tests.before, patch_tests.before_rerun)
    exit_codes = [run.exit_code if run and not run.problem else None for run in runs]
    return exit_codes[0] == 0 and all(code not in (0, None) for code in exit_codes[1:])
