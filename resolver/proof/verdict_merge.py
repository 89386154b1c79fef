"""Merges the verdicts of several test suites on one patch."""

from collections.abc import Iterable, Sequence
from itertools import chain

from patchwright.resolver.domain import TestRun, Verdict, VerdictKind
from patchwright.resolver.proof.verdict import apply_conditions

MAX_OUTPUT = 20_000  # Maximum characters of the merged output of several suites.


def merge_verdicts(verdicts: tuple[Verdict, ...]) -> Verdict:
    """Merges the verdicts of several suites on one patch.

    The most severe kind of verdict counts. From most to least severe, the kinds are `regressed`, `untested`,
    `unproven`, `conditional`, `fixed` and `empty`. There are three exceptions:

    - A mix of `untested` and less severe verdicts gives `unproven`.
    - If one suite shows the fix, other suites are ignored if they only lack such a test (`unproven`).
    - The conditions of all suites are merged, so `fixed` becomes `conditional` if any suite has a condition.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    kinds = {verdict.kind for verdict in verdicts}
    shows_fix = bool(kinds & {"fixed", "conditional"})
    deciding = next(
        verdict
        for kind in ("regressed", "untested", "unproven", "conditional", "fixed", "empty")
        for verdict in verdicts
        if verdict.kind == kind and not (kind == "unproven" and shows_fix and not _blocks_fixed(verdict))
    )
    kind: VerdictKind = deciding.kind
    if kind == "untested" and len(kinds) > 1:
        kind = "unproven"
    merged = Verdict(
        kind=kind,
        fail_to_pass=_union(verdict.fail_to_pass for verdict in verdicts),
        pass_to_fail=_union(verdict.pass_to_fail for verdict in verdicts),
        flaky=_union(verdict.flaky for verdict in verdicts),
        missing=_union(verdict.missing for verdict in verdicts),
        modified_tests_failing=_union(verdict.modified_tests_failing for verdict in verdicts),
        replaced_failing_tests=_union(verdict.replaced_failing_tests for verdict in verdicts),
        new_tests_at_base={
            test: result for verdict in verdicts for test, result in verdict.new_tests_at_base.items()
        },
        patch_tests_failing=_union(verdict.patch_tests_failing for verdict in verdicts),
        weakened_tests=verdicts[0].weakened_tests,
        deleted_test_files=verdicts[0].deleted_test_files,
        reverted_test_config=verdicts[0].reverted_test_config,
        added_packages=verdicts[0].added_packages,
        unusual_files=_union(verdict.unusual_files for verdict in verdicts),
        environment_dependent=_union(verdict.environment_dependent for verdict in verdicts),
        partial=any(verdict.partial for verdict in verdicts),
        conditions=tuple(dict.fromkeys(chain.from_iterable(verdict.conditions for verdict in verdicts))),
        reason=deciding.reason,
        before=_merge_runs([verdict.before for verdict in verdicts]),
        after=_merge_runs([verdict.after for verdict in verdicts]),
    )
    return apply_conditions(merged)


def _blocks_fixed(verdict: Verdict) -> bool:
    """Returns True if an `unproven` suite prevents the merged verdicts `fixed` and `conditional`. Returns False if
    the suite only lacks a test that shows the fix.
    """
    runs = verdict.before, verdict.after
    wrong_tests = verdict.patch_tests_failing or verdict.environment_dependent
    return bool(wrong_tests) or any(run is None or run.problem for run in runs)


def _union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _merge_runs(runs: Sequence[TestRun | None]) -> TestRun | None:
    """Merges the runs of several suites into one run. No test id occurs in more than one suite."""
    present = [run for run in runs if run is not None]
    if len(present) < 2:
        return present[0] if present else None
    worst = next((run for run in present if run.problem), None) or next(
        (run for run in present if run.exit_code), present[0]
    )
    return TestRun(
        command="; ".join(run.command for run in present),
        command_reason=" ".join(dict.fromkeys(run.command_reason for run in present)),
        results={test: result for run in present for test, result in run.results.items()},
        outcomes={test: outcome for run in present for test, outcome in run.outcomes.items()},
        retries={test: number for run in present for test, number in run.retries.items()},
        ignored_options=_union(run.ignored_options for run in present),
        exit_code=worst.exit_code,
        seconds=sum(run.seconds for run in present),
        output="\n".join(f"$ {run.command}\n{run.output[-MAX_OUTPUT // len(present) :]}" for run in present),
        flaky=_union(run.flaky for run in present),
        problem=worst.problem,
    )
