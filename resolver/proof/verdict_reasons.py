"""The reasons of a verdict: one sentence that says why the verdict has its kind and not a better one."""

from patchwright.resolver.conditions import summarize_conditions
from patchwright.resolver.domain import TestRun, Verdict, VerdictKind
from patchwright.resolver.proof.evidence import Evidence, PatchTests
from patchwright.resolver.rendering.filters import list_names, list_tests
from patchwright.resolver.runner_names import NOTHING_COLLECTED
from patchwright.resolver.suites.missing_modules import INSTALL_ADVICE, find_missing_modules


def explain_regression(verdict: Verdict) -> str:
    return f"{count_tests(verdict.pass_to_fail)} passed without the patch and failed with it, twice."


def explain_failing_patch_tests(verdict: Verdict) -> str:
    tests = verdict.patch_tests_failing
    return f"{count_tests(tests)} from the patch failed with it, twice: {list_tests(tests)}."


def explain_fix(verdict: Verdict) -> str:
    """Says that tests show the fix, and what the verdict's conditions are."""
    how = "With the patch's tests" if verdict.new_tests_at_base else "As a whole"
    fixed = (
        f"{count_tests(verdict.fail_to_pass)} failed without the patch and passed with it"
        if verdict.fail_to_pass
        else f"{how}, the test command failed without the patch and passed with it"
    )
    if verdict.conditions:
        return f"{fixed}, and the patch also {summarize_conditions(verdict.conditions)}."
    return f"{fixed}; none broke." if verdict.fail_to_pass else f"{fixed}."


def explain_missing_evidence(verdict: Verdict, evidence: Evidence) -> str:
    """Says why no test shows the fix."""
    if not evidence.changes_code:
        return explain_unchanged_code(verdict)
    if replaced := verdict.replaced_failing_tests:
        original = "version" if len(replaced) == 1 else "versions"
        return (
            f"The original {original} of {list_tests(replaced)} still fail{'s' * (len(replaced) == 1)} with the patch, "
            "and no other test shows the fix."
        )
    if modified := verdict.modified_tests_failing:
        count = f"{len(modified)} existing {'test expects' if len(modified) == 1 else 'tests expect'}"
        return f"No test shows the fix, and the patch changes what {count}: {list_tests(modified)}."
    if verdict.missing:
        return f"No test shows the fix, and {_explain_missing_tests(verdict)}."
    before, patch_tests = evidence.before, evidence.patch_tests
    if patch_tests and _passes_without_patch(before, patch_tests):
        return "The tests of this change also pass without the rest of it, so they do not show the fix."
    if before.failed_count and not before.passed_count and not evidence.after.passed_count:
        cause = "they may need something that the sandbox lacks, such as a network or a service"
        return f"All tests fail without the patch and with it: {cause}."
    return "No test fails without the patch and passes with it, so no test shows the fix."


def explain_unloaded_tests(before: TestRun) -> str:
    """Says why no test ran, if the runner could not load any test file."""
    reason = "No test file could be loaded, with the patch or without it"
    if modules := find_missing_modules(before.output):
        return f"{reason}: {modules[-1].description} is not installed in the sandbox; {INSTALL_ADVICE}."
    return f"{reason}."


def explain_unchanged_code(verdict: Verdict) -> str:
    """Says why a patch without product code cannot be shown to fix anything."""
    if verdict.reverted_test_config:
        files = list_names(verdict.reverted_test_config, 1)
        return f"The tests were run without the change to {files}, which can affect how tests run."
    return "The patch changes only tests, so no test can show that the code is fixed."


def explain_documentation(*, has_tests: bool, is_partial: bool) -> str:
    """Says that a patch changes only documentation. `is_partial` means that only some tests ran."""
    if not has_tests:
        return "The patch changes only documentation, so there is nothing to test."
    tests = "the tests that it may affect" if is_partial else "all tests"
    return f"The patch changes only documentation, and {tests} still pass."


def explain_missing_run(evidence: Evidence) -> tuple[VerdictKind, str]:
    """Decides the kind of verdict if the tests could not be run, either with the patch or without it."""
    before, after, after_rerun = evidence.before, evidence.after, evidence.after_rerun
    if before.problem and after.problem:
        if before.problem == after.problem:
            return "untested", f"The tests could not be run, with the patch or without it: {before.problem}."
        return (
            "untested",
            f"The tests could not be run without the patch ({before.problem}) or with it ({after.problem}).",
        )
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


def count_tests(names: tuple[str, ...]) -> str:
    """Counts tests in words: "1 test", "3 tests"."""
    return "1 test" if len(names) == 1 else f"{len(names)} tests"


def _passes_without_patch(before: TestRun, patch_tests: PatchTests) -> bool:
    """Returns True if a test that the patch adds also passes on the code at base."""
    new_tests = patch_tests.after.results.keys() - before.results.keys()
    at_base = patch_tests.before.results if patch_tests.before else {}
    return any(at_base.get(test) == "passed" for test in new_tests)


def _explain_missing_tests(verdict: Verdict) -> str:
    results = verdict.after.results if verdict.after else {}
    skipped = all(results.get(test) == "skipped" for test in verdict.missing)
    verb = "skipped now" if skipped else "not run now"
    return (
        f"{count_tests(verdict.missing)} that passed before {'is' if len(verdict.missing) == 1 else 'are'} {verb}: "
        f"{list_tests(verdict.missing)}"
    )
