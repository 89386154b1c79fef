"""Decides the verdict on a patch from the test runs of one suite."""

from dataclasses import dataclass

from patchwright.resolver.domain import Patch, TestRun, TestStatus, Verdict, VerdictKind
from patchwright.resolver.text.filters import list_names, list_tests

FAILED_STATUSES: tuple[TestStatus, ...] = ("failed", "error")
NOTHING_COLLECTED = 5  # Exit code of pytest if it collected no tests.


@dataclass(frozen=True)
class PatchTests:
    """Runs of the tests that a patch changes or adds. These runs use the patch's version of the tests."""

    files: frozenset[str]
    """Test files that the patch changes, adds or deletes."""
    files_only: bool
    """True if only `files` were run; False if all tests were run."""
    after: TestRun
    """The run with the whole patch, except its changes to the test configuration."""
    after_rerun: TestRun | None = None
    """A second run that includes at least the tests that failed in `after`; None if no test failed."""
    before: TestRun | None = None
    """The run on the code at base; None if it is not needed. Tests with errors are marked as skipped,
    except if the error shows that code from the patch is missing at base.
    """
    before_rerun: TestRun | None = None
    """A second run at base. It includes at least the tests that failed at base and pass with the patch. None
    if there are no such tests.
    """

    def covers(self, test: str) -> bool:
        """Returns True if the test was selected for these runs, even if the test no longer exists."""
        return not self.files_only or get_test_file(test) in self.files


@dataclass(frozen=True)
class Evidence:
    """The test runs that the verdict on one suite is based on."""

    before: TestRun
    """The run of the repository's own tests at base."""
    after: TestRun
    """The run of the repository's own tests on the patch's code. It uses the base version of these tests."""
    before_rerun: TestRun | None = None
    """A second run at base. It includes the tests that pass only at base, and at most MAX_CONFIRMED tests
    that pass only with the patch. None if no result differs or if a second run is impossible.
    """
    after_rerun: TestRun | None = None
    """A second run with the patch. It includes the tests of `before_rerun`, or all tests if single tests
    cannot be selected.
    """
    full_patch: TestRun | None = None
    """The run with the whole patch, including its tests and test configuration. It includes at least the
    tests that passed in `before` and fail in `after`. None if this run is not needed, for example because the
    patch changes only code.
    """
    patch_tests: PatchTests | None = None
    changes_code: bool = True
    """True if the patch changes more than tests and their configuration."""
    partial: bool = False
    """True if only the tests that the patch may affect were run."""


@dataclass(frozen=True)
class TestEdits:
    """Changes of a patch to tests, according to its diff."""

    __test__ = False  # Tells pytest that this is no test class.

    weakened_tests: tuple[str, ...] = ()
    deleted_test_files: tuple[str, ...] = ()
    reverted_test_config: tuple[str, ...] = ()


NO_TEST_EDITS = TestEdits()


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
    )
    if evidence is None:
        return verdict
    before, after = evidence.before, evidence.after
    if before.problem or after.problem:
        kind, reason = _explain_missing_run(evidence)
    elif before.results or after.results:
        verdict = _compare_tests(verdict, evidence)
        kind, reason = _kind_and_reason(verdict, evidence)
    else:
        kind, reason = _compare_exit_codes(evidence, verdict.reverted_test_config)
    runs = {"before": before, "after": _merge_patch_tests(evidence), "partial": evidence.partial}
    return _downgrade_if_tests_edited(verdict.model_copy(update={"kind": kind, "reason": reason, **runs}))


def get_test_file(test: str) -> str:
    """Returns the file of a test id that starts with a file name."""
    return test.partition("::")[0]


def get_test_status(run: TestRun, test: str) -> TestStatus | None:
    """Returns the result of a test. If its file could not be collected, returns the result of the file.
    Returns None if the test and its file have no result.
    """
    return run.results.get(test) or run.results.get(get_test_file(test))


def find_pass_to_fail(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Returns the tests that passed before and fail after, sorted by name."""
    passed = (
        test for test, result in before.results.items() if result == "passed" and test not in before.flaky
    )
    return tuple(sorted(test for test in passed if get_test_status(after, test) in FAILED_STATUSES))


def find_fail_to_pass(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Returns the tests that failed before and pass after, sorted by name."""
    passes = (
        test for test, result in after.results.items() if result == "passed" and test not in before.flaky
    )
    return tuple(sorted(test for test in passes if get_test_status(before, test) in FAILED_STATUSES))


def _compare_tests(verdict: Verdict, evidence: Evidence) -> Verdict:
    """Adds the differences between the runs to the verdict."""
    before, after, after_rerun = evidence.before, evidence.after, evidence.after_rerun or evidence.after
    suspects, candidates = find_pass_to_fail(before, after), find_fail_to_pass(before, after)
    before_rerun = evidence.before_rerun or before
    # A test counts as flaky only if its second run shows no difference. A second run with a problem proves
    # nothing.
    flaky = {test for test in suspects if get_test_status(after_rerun, test) in ("passed", "skipped")}
    flaky |= {test for test in suspects if get_test_status(before_rerun, test) in FAILED_STATUSES}
    flaky |= {
        test for test in candidates if get_test_status(after_rerun, test) in (*FAILED_STATUSES, "skipped")
    }
    flaky |= {test for test in candidates if get_test_status(before_rerun, test) == "passed"}
    failing = [test for test in suspects if test not in flaky]
    full_patch = evidence.full_patch
    modified = [
        test
        for test in failing
        if full_patch is not None and get_test_status(full_patch, test) not in FAILED_STATUSES
    ]
    pass_to_fail = [test for test in failing if test not in modified]
    fail_to_pass = [test for test in candidates if test not in flaky]
    missing = [] if evidence.partial else _missing_tests(evidence, modified)
    patch_tests_failing: tuple[str, ...] = ()
    new_tests_at_base: dict[str, TestStatus] = {}
    if (patch_tests := evidence.patch_tests) is not None:
        patch_tests_failing, patch_fail_to_pass, patch_flaky = _compare_patch_tests(before, patch_tests)
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
            "new_tests_at_base": new_tests_at_base,
            "patch_tests_failing": patch_tests_failing,
        }
    )


def _kind_and_reason(verdict: Verdict, evidence: Evidence) -> tuple[VerdictKind, str]:
    """Returns the kind of verdict and its reason. If several kinds apply, the worst one counts."""
    if verdict.pass_to_fail:
        failing = f"{_format_tests(verdict.pass_to_fail)} passed without the patch and failed with it, twice."
        return "regressed", failing
    if modified := verdict.modified_tests_failing:
        count = f"{len(modified)} existing test{' expects' if len(modified) == 1 else 's expect'}"
        return "unproven", f"The patch changes what {count}: {list_tests(modified)}."
    if verdict.missing:
        change = f"{_format_tests(verdict.missing)} that passed before {_explain_missing(verdict, evidence)}"
        return "unproven", f"{'Tests show the fix, but ' * bool(verdict.fail_to_pass)}{change}."
    if verdict.patch_tests_failing:
        return (
            "unproven",
            f"{_format_tests(verdict.patch_tests_failing)} from the patch failed with it, twice.",
        )
    if evidence.patch_tests and evidence.patch_tests.after.problem:
        problem = evidence.patch_tests.after.problem
        return "unproven", f"The tests from the patch could not be run: {problem}."
    if verdict.fail_to_pass:
        fixed = (
            f"{_format_tests(verdict.fail_to_pass)} failed without the patch and passed with it; none broke."
        )
        return "fixed", fixed
    return "unproven", _reason_unproven(evidence, verdict.reverted_test_config)


def _reason_unproven(evidence: Evidence, reverted_config: tuple[str, ...]) -> str:
    """Returns a sentence that explains why no test shows the fix."""
    before, patch_tests = evidence.before, evidence.patch_tests
    if not evidence.changes_code and reverted_config:
        files = list_names(reverted_config, 1)
        return f"The tests were run without the change to {files}, which can affect how tests run."
    if not evidence.changes_code:
        return "The patch changes only tests, so no test can show that the code is fixed."
    new = patch_tests.after.results.keys() - before.results.keys() if patch_tests else ()
    if (
        patch_tests
        and patch_tests.before
        and any(patch_tests.before.results.get(test) == "passed" for test in new)
    ):
        return "The patch's own tests also pass without the rest of the patch, so they do not show the fix."
    if before.failed_count and not before.passed_count and not evidence.after.passed_count:
        cause = "they may need something that the sandbox lacks, such as a network or a service"
        return f"All tests fail without the patch and with it: {cause}."
    return "No test changed from failing to passing with the patch, so no test shows the fix."


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
            and get_test_status(patch_tests.after, test) in not_run
        )
    )


def _compare_patch_tests(
    before: TestRun, patch_tests: PatchTests
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns three groups of the patch's own tests: the tests that fail with the patch, the tests that show
    the fix, and the flaky tests.
    """
    rerun = patch_tests.after_rerun or patch_tests.after
    ignored = {test for test, result in before.results.items() if result in FAILED_STATUSES} | set(
        before.flaky
    )
    failed = [
        test
        for test, result in patch_tests.after.results.items()
        if result in FAILED_STATUSES and test not in ignored
    ]
    flaky = {test for test in failed if get_test_status(rerun, test) in ("passed", "skipped")}
    fixing: tuple[str, ...] = ()
    if patch_tests.before is not None and not patch_tests.before.problem and not patch_tests.after.problem:
        repository_failures = _repository_failures(before, patch_tests)
        fixing = tuple(
            test
            for test in find_fail_to_pass(patch_tests.before, patch_tests.after)
            if test not in repository_failures
        )
        before_rerun = patch_tests.before_rerun or patch_tests.before
        flaky |= {test for test in fixing if get_test_status(before_rerun, test) == "passed"}
        flaky |= {test for test in fixing if get_test_status(rerun, test) in FAILED_STATUSES}
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
    return after.model_copy(update={"results": {**repository_results, **patch_results}, "output": output})


def _repository_failures(before: TestRun, patch_tests: PatchTests) -> frozenset[str]:
    """Returns the repository's own tests that fail at base. In runs of the patch's tests, the results of
    these old tests are ignored, because code in the patch's tests could make them pass.
    """
    return frozenset(
        test
        for test, result in before.results.items()
        if result in FAILED_STATUSES and "::" in test and get_test_file(test) not in patch_tests.files
    )


def _compare_exit_codes(evidence: Evidence, reverted_config: tuple[str, ...]) -> tuple[VerdictKind, str]:
    """Decides the kind of verdict if the test command reports no individual tests."""
    before, after = evidence.before, evidence.after
    ok = before.exit_code == 0, after.exit_code == 0
    if ok == (True, False):
        if (evidence.after_rerun or after).exit_code == 0:
            return "unproven", "The test command failed once and passed once with the patch: it is flaky."
        if evidence.full_patch and evidence.full_patch.exit_code == 0:
            reason = "The test command fails with the old tests on the patch's code, and passes with the patch's tests."
            return "unproven", reason
        return "regressed", "The test command passed without the patch and failed with it, twice."
    if ok == (False, True) and before.flaky:
        return "unproven", "The test command failed once and passed once without the patch: it is flaky."
    if evidence.patch_tests and evidence.patch_tests.after.exit_code != 0 and ok[1]:
        return "unproven", "The test command failed with the tests from the patch."
    if ok == (False, True):
        return "fixed", "As a whole, the test command failed without the patch and passed with it."
    if not evidence.changes_code:
        return "unproven", _reason_unproven(evidence, reverted_config)
    same = "passed" if ok[0] else "failed"
    return (
        "unproven",
        f"The test command {same} without the patch and with it, and reports no individual tests.",
    )


def _explain_missing_run(evidence: Evidence) -> tuple[VerdictKind, str]:
    """Decides the kind of verdict if the tests could not be run, either with the patch or without it."""
    before, after, after_rerun = evidence.before, evidence.after, evidence.after_rerun
    if before.problem and after.problem:
        return "untested", f"The tests could not be run, with the patch or without it: {before.problem}."
    if before.problem:
        return "unproven", f"The tests ran with the patch but not without it: {before.problem}."
    if after_rerun and after_rerun.problem and after.exit_code not in (0, NOTHING_COLLECTED):
        if evidence.full_patch and not evidence.full_patch.problem:
            return "unproven", f"With the patch, only its own tests ran, not the old tests: {after.problem}."
        return (
            "regressed",
            f"The tests ran without the patch, but two attempts to run them with it failed: {after.problem}.",
        )
    return "unproven", f"The tests ran without the patch but not with it: {after.problem}."


def _downgrade_if_tests_edited(verdict: Verdict) -> Verdict:
    """Changes the verdict `fixed` to `unproven` if the patch weakens tests or changes their configuration. A
    person then has to check the patch.
    """
    if verdict.kind != "fixed":
        return verdict
    if verdict.weakened_tests or verdict.deleted_test_files:
        example = (
            verdict.weakened_tests[0]
            if verdict.weakened_tests
            else f"The patch deletes {verdict.deleted_test_files[0]}."
        )
        reason = f"Tests show the fix, but the patch also weakens the tests: {example}"
    elif verdict.reverted_test_config:
        changes = list_names(verdict.reverted_test_config, 1)
        reason = f"Tests show the fix, but the patch also changes {changes}, which can affect how tests run."
    else:
        return verdict
    return verdict.model_copy(update={"kind": "unproven", "reason": reason})


def _explain_missing(verdict: Verdict, evidence: Evidence) -> str:
    results = _merge_patch_tests(evidence).results
    skipped = all(results.get(test) == "skipped" for test in verdict.missing)
    verb = "skipped now" if skipped else "not run now"
    return f"{'is' if len(verdict.missing) == 1 else 'are'} {verb}: {list_tests(verdict.missing)}"


def _format_tests(names: tuple[str, ...] | list[str]) -> str:
    return "1 test" if len(names) == 1 else f"{len(names)} tests"
