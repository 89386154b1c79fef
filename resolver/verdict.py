"""From test runs to a verdict: pure, and the only place where one is decided."""

from resolver.domain import Patch, Result, SuiteRun, Verdict

BAD: tuple[Result, ...] = ("failed", "error")
NOTHING_COLLECTED = 5  # pytest's exit code


def judge(
    patch: Patch,
    before: SuiteRun | None,
    after: SuiteRun | None,
    again: SuiteRun | None = None,
    new_at_base: SuiteRun | None = None,
) -> Verdict:
    """The verdict as `Verdict` defines it.

    `before` is the suite at base and `after` with the patch; None: the repository has no suite. `again` is a
    second run with the patch, of at least the tests that newly failed; None when none did. `new_at_base` is
    the base code under the tests as the patch has them, with what does not count as a failure there marked
    skipped; None when the patch touches no test.
    """
    if patch.empty:
        return Verdict(kind="empty", reason="The run ended without a change to the code.")
    if before is None or after is None:
        return Verdict(
            kind="untested", reason="The repository has no tests that were found, and none are configured."
        )
    if before.problem or after.problem:
        return _without_comparison(before, after, again)
    if before.results or after.results:
        return _by_tests(before, after, again or after, new_at_base or before)
    return _by_exit_code(before, after, again or after, new_at_base or before)


def result_of(run: SuiteRun, test: str) -> Result | None:
    """How a test did, or its file when that could not even be collected; None: it was not there."""
    return run.results.get(test) or run.results.get(test.partition("::")[0])


def failures(before: SuiteRun, after: SuiteRun) -> tuple[str, ...]:
    """The tests that passed before and fail after, in order of their names."""
    passed = (test for test, result in before.results.items() if result == "passed")
    return tuple(sorted(test for test in passed if result_of(after, test) in BAD))


def _by_tests(before: SuiteRun, after: SuiteRun, again: SuiteRun, reference: SuiteRun) -> Verdict:
    suspects = failures(before, after)
    # What a second run does not show to differ, such as one that had a problem, clears nobody.
    flaky = tuple(test for test in suspects if result_of(again, test) in ("passed", "skipped"))
    newly_failing = tuple(test for test in suspects if test not in flaky)
    missing = sorted(
        test
        for test, result in before.results.items()
        if result == "passed" and result_of(after, test) in (None, "skipped")
    )
    newly_passing = sorted(
        test
        for test, result in after.results.items()
        if result == "passed" and result_of(reference, test) in BAD
    )
    if newly_failing:
        kind, reason = (
            "regressed",
            f"{_tests(newly_failing)} passed without the patch and failed with it, twice.",
        )
    elif missing:
        kind, reason = "unproven", f"{_tests(missing)} passed without the patch and did not run with it."
    elif newly_passing:
        kind, reason = (
            "fixed",
            f"{_tests(newly_passing)} failed without the patch and passed with it; none broke.",
        )
    else:
        kind, reason = (
            "unproven",
            "No test that failed without the patch passes with it, so none shows the mend.",
        )
    return Verdict(
        kind=kind,
        newly_passing=tuple(newly_passing),
        newly_failing=newly_failing,
        flaky=flaky,
        missing=tuple(missing),
        reason=reason,
        before=before,
        after=after,
    )


def _by_exit_code(before: SuiteRun, after: SuiteRun, again: SuiteRun, reference: SuiteRun) -> Verdict:
    """The verdict on a command that reports no single tests."""
    ok = before.exit_code == 0, after.exit_code == 0
    if ok == (True, False):
        if again.exit_code == 0:
            kind, reason = (
                "unproven",
                "The test command failed once and passed once with the patch: it is flaky.",
            )
        else:
            kind, reason = "regressed", "The test command passed without the patch and failed with it, twice."
    elif ok == (False, True) and reference.exit_code != 0 and not reference.problem:
        kind, reason = "fixed", "The test command failed without the patch and passed with it, as a whole."
    elif ok == (False, True):
        kind, reason = (
            "unproven",
            "The patch's own tests pass without the rest of it, so they do not show the mend.",
        )
    elif ok == (True, True):
        kind, reason = (
            "unproven",
            "The test command passed without the patch and with it, and names no single tests.",
        )
    else:
        kind, reason = (
            "unproven",
            "The test command failed without the patch and with it, and names no single tests.",
        )
    return Verdict(kind=kind, reason=reason, before=before, after=after)


def _without_comparison(before: SuiteRun, after: SuiteRun, again: SuiteRun | None) -> Verdict:
    """The verdict when at least one side is no test run."""
    if before.problem and after.problem:
        kind, reason = (
            "untested",
            f"The tests could not be run, with the patch or without it: {before.problem}.",
        )
    elif before.problem:
        kind, reason = "unproven", f"The tests ran with the patch but not without it: {before.problem}."
    elif again and again.problem and after.exit_code not in (0, NOTHING_COLLECTED):
        kind, reason = (
            "regressed",
            f"The tests ran without the patch but not with it, twice: {after.problem}.",
        )
    else:
        kind, reason = "unproven", f"The tests ran without the patch but not with it: {after.problem}."
    return Verdict(kind=kind, reason=reason, before=before, after=after)


def _tests(names: tuple[str, ...] | list[str]) -> str:
    return "1 test" if len(names) == 1 else f"{len(names)} tests"
