"""Verifies a patch. The repository's tests run with and without the patch, in sandboxes that the agent never used.

The patch must not influence its own verification. The base version of the repository's tests runs on the
patch's code. The tests that the patch adds or changes run separately. The test configuration always comes
from the base commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

from patchwright.resolver.domain import Patch, TestRun, Verdict
from patchwright.resolver.git.workspaces import ABSENT, Workspace
from patchwright.resolver.preparation.added_packages import install_added_packages
from patchwright.resolver.preparation.installed_version import find_version_change, install_version
from patchwright.resolver.proof.baseline import BaselineRuns
from patchwright.resolver.proof.canaries import Canary
from patchwright.resolver.proof.collection_errors import find_added_symbols, skip_unrelated_errors
from patchwright.resolver.proof.documentation import mark_documentation
from patchwright.resolver.proof.evidence import Evidence, PatchTests, TestEdits
from patchwright.resolver.proof.nested_checks import require_nested_checks
from patchwright.resolver.proof.patch_parts import PatchParts, split_patch
from patchwright.resolver.proof.plain_environment import require_plain_environment
from patchwright.resolver.proof.python_modules import find_shadowing_modules
from patchwright.resolver.proof.renumbered_tests import find_renumbered_tests
from patchwright.resolver.proof.run_comparison import (
    find_fail_to_pass,
    find_pass_to_fail,
    get_selectors,
    get_test_file,
    has_failed,
)
from patchwright.resolver.proof.runner_config import find_reverted_test_config
from patchwright.resolver.proof.test_helpers import find_test_helpers
from patchwright.resolver.proof.unchanged_tests import restore_known_results
from patchwright.resolver.proof.unusual_files import find_unusual_files
from patchwright.resolver.proof.verdict import accept_version, decide_verdict
from patchwright.resolver.proof.verdict_merge import merge_verdicts
from patchwright.resolver.proof.weakened_tests import find_weakened_tests
from patchwright.resolver.suites.affected_tests import find_affected_tests, find_tests_using
from patchwright.resolver.suites.execution import TestSetup, run_tests, run_tests_with_report
from patchwright.resolver.suites.file_classifier import is_test_file
from patchwright.resolver.suites.reports.runner_report import RunnerReport
from patchwright.resolver.suites.run_problems import require_known_options
from patchwright.resolver.suites.suite import Suite
from patchwright.runtime.sandbox import Sandboxes

MAX_CONFIRMED = 50  # Maximum number of tests that are rerun because they pass only with the patch.

VerdictCallback = Callable[[Verdict], Awaitable[bool]]
"""Called with the verdict on the tests that ran first. If it returns True, that verdict is final and the
other tests are skipped.
"""


async def require_all_tests(verdict: Verdict) -> bool:
    """The default VerdictCallback: it requires that all tests run."""
    return False


async def verify_patch(
    workspace: Workspace,
    patch: Patch,
    setup: TestSetup,
    baseline_runs: BaselineRuns,
    on_first_verdict: VerdictCallback = require_all_tests,
) -> Verdict:
    """Runs the tests and decides the verdict. Raises VerificationUnavailable or WorkspaceError."""
    sandboxes, name = setup.sandboxes, setup.name
    if patch.is_empty:
        return decide_verdict(patch, None)
    changes = await workspace.list_changes(patch)
    affected_suites = setup.suites.select_for_paths(change.path for change in changes)
    reverted_config = await find_reverted_test_config(workspace, patch, changes, affected_suites)
    reverted_config |= await find_shadowing_modules(workspace, changes, affected_suites, sandboxes, name)
    # The repository's tests run with the base version of their helpers.
    helpers = await find_test_helpers(workspace, changes, affected_suites, baseline_runs.get_read_files)
    helpers -= reverted_config
    tests = frozenset(
        change.path
        for change in changes
        if is_test_file(change.path) or any(suite.is_test_file(change.path) for suite in affected_suites)
    )
    patched, packages = await install_added_packages(workspace, patch, changes, sandboxes, name)
    test_edits = TestEdits(
        weakened_tests=await find_weakened_tests(workspace, patch, changes, tests),
        deleted_test_files=tuple(
            change.path for change in changes if change.mode == ABSENT and change.path in tests
        ),
        reverted_test_config=tuple(sorted(reverted_config | helpers)),
        added_packages=packages,
    )
    if not affected_suites:
        return await mark_documentation(decide_verdict(patch, None, test_edits), workspace, changes)
    parts = await split_patch(workspace, patch, changes, reverted_config, helpers | tests)
    versions = await find_version_change(workspace, patch, changes)
    verdicts: list[Verdict] = []
    for number, suite in enumerate(affected_suites, start=1):
        role = name if number == 1 else f"{name}-{number}"
        verification = _SuiteVerification(
            workspace, patch, parts, test_edits, suite, sandboxes, patched, role, setup.seconds, baseline_runs
        )
        if versions is None:
            verdicts.append(await verification.verdict(on_first_verdict))
        else:
            verdicts.append(await verification.verdict_with_version(versions))
        if verdicts[-1].partial:
            break
    return await mark_documentation(merge_verdicts(tuple(verdicts)), workspace, changes)


@dataclass(frozen=True)
class _SuiteVerification:
    """The verification of one patch with one suite."""

    workspace: Workspace
    patch: Patch
    parts: PatchParts
    test_edits: TestEdits
    suite: Suite
    sandboxes: Sandboxes
    patched: Sandboxes
    """Sandboxes for the runs with the patch, which also have the packages that it adds."""
    name: str
    seconds: int
    baseline_runs: BaselineRuns

    async def verdict(self, on_first_verdict: VerdictCallback) -> Verdict:
        """Returns the verdict. If it is known which tests the patch may affect, these tests run first. Then
        all tests run, unless `on_first_verdict` accepts the first verdict.
        """
        own, patch_tests = self, None
        first: Evidence | None = None
        if affected_tests := await self._affected_tests():
            first = await self._collect_evidence(affected_tests)
            if first is not None:
                own, patch_tests = await self._verify_patch_tests(first.before)
                verdict = await own._decide(first, patch_tests)
                if await on_first_verdict(verdict):
                    return verdict
        evidence = await self._collect_evidence((), first)
        assert evidence is not None, "a run of all tests always gives evidence"
        if patch_tests is None:
            own, patch_tests = await self._verify_patch_tests(evidence.before)
        return await own._decide(evidence, patch_tests)

    async def verdict_with_version(self, versions: tuple[str, str]) -> Verdict:
        """Returns the verdict on a patch that changes the version of the project from one to the other. If tests fail
        with it, they run again with the new version in the installed metadata. That the tests then pass is a condition.
        """
        verdict = await self.verdict(require_all_tests)
        if not (failing := frozenset((*verdict.pass_to_fail, *verdict.patch_tests_failing))):
            return verdict
        patched = await install_version(self.workspace, versions, self.patched, self.name)
        if patched is None:
            return verdict
        own = replace(self, patched=patched, name=f"{self.name}-version")
        again = await own.verdict(require_all_tests)
        return accept_version(verdict, again, failing, versions)

    async def _decide(self, evidence: Evidence, patch_tests: PatchTests | None) -> Verdict:
        verdict = decide_verdict(self.patch, replace(evidence, patch_tests=patch_tests), self.test_edits)
        verdict = await require_plain_environment(verdict, self.suite, self._run_plain)
        with_tests = self.parts.with_tests
        verdict = await require_nested_checks(self.workspace, with_tests, self.suite, verdict, self._run)
        unusual_files = await find_unusual_files(
            self.workspace, with_tests, self.parts.code_changes, self.suite, verdict, self._run
        )
        return verdict.model_copy(update={"unusual_files": unusual_files})

    async def _run_plain(self, role: str, suite: Suite, is_patched: bool) -> TestRun:
        patch, sandboxes = (self.parts.with_tests, self.patched) if is_patched else (None, self.sandboxes)
        return await run_tests(self.workspace, patch, suite, sandboxes, f"{self.name}-{role}", self.seconds)

    async def _affected_tests(self) -> tuple[str, ...]:
        if not self.suite.can_select_files or not self.parts.code_changes:
            return ()
        paths = (change.path for change in self.parts.test_changes)
        files = frozenset(filter(self.suite.is_test_file, paths))
        return await find_affected_tests(self.workspace, self.parts.code_changes, files, self.suite)

    async def _collect_evidence(
        self, only: tuple[str, ...], first: Evidence | None = None
    ) -> Evidence | None:
        """Runs the repository's own tests. If `only` names files, runs only the tests in these files. Tests that were
        repeated for the evidence `first` are not repeated again.

        Returns None if the files in `only` yield no test results.
        """
        role = "first" if only else "after"
        before = await self._run_at_base(only)
        after = before
        if self.parts.code_changes:
            canary = self._create_canary((*only, *map(get_test_file, before.results)))
            after, _ = await self._run_with_canary(role, self.parts.code_only, only, canary)
        if only and (before.problem or after.problem):
            return None
        evidence = Evidence(
            before=before, after=after, changes_code=bool(self.parts.code_changes), partial=bool(only)
        )
        return await self._confirm(evidence, role, only, first)

    async def _run_at_base(self, only: tuple[str, ...]) -> TestRun:
        if not only or self.baseline_runs.is_done(self.suite):
            run = await self.baseline_runs.start(self.suite)
            if not only or run.problem:
                return run
            results = {test: result for test, result in run.results.items() if get_test_file(test) in only}
            return run.model_copy(update={"results": results})
        return await self._run("first-base", None, only)

    async def _confirm(
        self, evidence: Evidence, role: str, only: tuple[str, ...], first: Evidence | None
    ) -> Evidence:
        """Repeats the tests whose results the patch changes, with and without the patch, in new sandboxes, except if
        they were all repeated for the evidence `first`. If these tests alone do not show the same changes, repeats
        them together with the others.

        If the suite cannot select single tests, the run without the patch is not repeated.
        """
        before, after = evidence.before, evidence.after
        if after.problem or (not after.results and after.exit_code != 0):
            canary = self._create_canary(map(get_test_file, before.results))
            after_rerun, _ = await self._run_with_canary(f"{role}-again", self.parts.code_only, (), canary)
            full_patch = await self._run_full_patch(role, before, ())
            return replace(evidence, after_rerun=after_rerun, full_patch=full_patch)
        suspects = find_pass_to_fail(before, after)
        candidates = find_fail_to_pass(before, after)[:MAX_CONFIRMED]
        differing, is_unclear = (*suspects, *candidates), False
        if differing and self.suite.can_select_tests:
            runs = first.reruns_of(differing) if first else None
            if runs is None:
                selected = get_selectors(differing, before), get_selectors(differing, after)
                runs = await self._repeat(role, *selected)
            if is_unclear := not {*find_pass_to_fail(*runs), *find_fail_to_pass(*runs)}.issuperset(differing):
                runs = await self._repeat(f"{role}-all", only, only)
            evidence = replace(evidence, before_rerun=runs[0], after_rerun=runs[1])
        elif suspects:
            evidence = replace(evidence, after_rerun=await self._run(f"{role}-again", self.parts.code_only))
        has_reverted_config = bool(self.test_edits.reverted_test_config) and not evidence.partial
        if suspects or has_reverted_config:
            to_run = () if has_reverted_config else only if is_unclear else get_selectors(suspects, after)
            evidence = replace(evidence, full_patch=await self._run_full_patch(role, before, to_run))
        return evidence

    async def _run_full_patch(self, role: str, before: TestRun, only: tuple[str, ...]) -> TestRun | None:
        """Runs the tests with the whole patch. If the patch changes only code, returns None, because the
        tests have then already run with the whole patch. Runs all tests if the tests in `only` cannot run, for example
        because the patch deletes some of them.
        """
        if not self.parts.test_changes and not self.test_edits.reverted_test_config:
            return None
        canary = self._create_canary(map(get_test_file, before.results))
        run, _ = await self._run_with_canary(f"{role}-delivered", self.patch, only, canary)
        if run.problem and only:
            run, _ = await self._run_with_canary(f"{role}-delivered", self.patch, (), canary)
        return run

    async def _repeat(
        self, role: str, before: tuple[str, ...], after: tuple[str, ...]
    ) -> tuple[TestRun, TestRun]:
        """Runs these tests without and with the patch."""
        run_before = self._run(f"{role}-base-again", None, before)
        return await asyncio.gather(run_before, self._run(f"{role}-again", self.parts.code_only, after))

    async def _verify_patch_tests(self, before: TestRun) -> tuple[Self, PatchTests | None]:
        """Runs the tests that the patch changes, adds or deletes. If they fail without the patch's test configuration,
        runs them with it. Returns the verification whose `parts` these runs used.
        """

        def succeeds(tests: PatchTests) -> bool:
            failed_tests = tests.after.failed_tests
            return not tests.after.problem and all(has_failed(before, test) for test in failed_tests)

        patch_tests, alternative = await self._run_patch_tests(before), self.parts.with_config
        if patch_tests is None or alternative is None or succeeds(patch_tests):
            return self, patch_tests
        own = replace(self, parts=alternative, name=f"{self.name}-config")
        repeated = await own._run_patch_tests(before)
        return (own, repeated) if repeated and succeeds(repeated) else (self, patch_tests)

    async def _run_patch_tests(self, before: TestRun) -> PatchTests | None:
        """Runs the tests that the patch changes, adds or deletes. Returns None if there are none."""
        if not self.parts.test_changes:
            return None
        changed = {
            change.path: change for change in self.parts.test_changes if self.suite.is_test_file(change.path)
        }
        files = frozenset(path for path in changed if self.suite.runs_test_file(path))
        existing_files = tuple(sorted(path for path in files if changed[path].mode != ABSENT))
        if not files:
            existing_files = await find_tests_using(self.workspace, self.parts.test_changes, self.suite)
            files = frozenset(existing_files)
        has_data = len(changed) < len(self.parts.test_changes)  # If no test mentions it, any test may use it.
        files_only = self.suite.can_select_files and bool(files or not has_data)
        if files_only and not existing_files:
            empty = before.model_copy(update={"results": {}, "exit_code": 0, "output": "", "problem": None})
            return PatchTests(files=files, files_only=True, after=empty) if files else None
        only = existing_files if files_only else ()
        if not files_only:  # Tests that the patch does not change have to keep their results in all files.
            before = await self._run_at_base(())
            existing_files = existing_files or tuple(dict.fromkeys(map(get_test_file, before.results)))
        # The runner may not collect a new file of the patch, nor a canary next to it.
        collected = sorted(map(get_test_file, before.results), key=lambda file: file not in existing_files)
        canary = self._create_canary((*collected, *existing_files))
        after = await self._run_isolated("tests", self.parts.with_tests, only, canary)
        renumbered = await find_renumbered_tests(self.workspace, self.patch, before, after)
        patch_tests = PatchTests(files=files, files_only=files_only, after=after, renumbered=renumbered)
        if after.problem:
            return patch_tests
        if after.failed_tests:
            rerun = await self._run("tests-again", self.parts.with_tests, only)
            patch_tests = replace(patch_tests, after_rerun=rerun)
        if self.parts.code_changes and (after.passed_count or after.exit_code == 0):
            new_tests = frozenset(test for test in after.results if test not in before.results)
            run = await self._run_isolated("tests-at-base", self.parts.tests_only, only, canary, new_tests)
            at_base = await restore_known_results(self.workspace, self.patch, run, before, only)
            patch_tests = replace(patch_tests, before=at_base)
            fails_as_a_whole = not at_base.results and at_base.exit_code  # no individual tests are reported
            if (find_fail_to_pass(at_base, after) or fails_as_a_whole) and not at_base.problem:
                # The tests are selected by file: a test that cannot be collected at base has no id there.
                patch_tests = replace(
                    patch_tests,
                    before_rerun=await self._run("tests-at-base-again", self.parts.tests_only, only),
                )
        return patch_tests

    async def _run_isolated(
        self,
        role: str,
        patch: Patch,
        only: tuple[str, ...],
        canary: Canary | None,
        new_tests: frozenset[str] | None = None,
    ) -> TestRun:
        """Runs the patch's tests separately from the repository's own tests. If `only` names files, the
        results of tests in other files are ignored.

        `new_tests` is set only if the patch's tests run on the code at base. It contains the tests that the patch adds.
        """
        run, report = await self._run_with_canary(role, patch, only, canary)
        if new_tests is not None:
            added = await find_added_symbols(self.workspace, self.patch, self.parts.code_changes)
            run = skip_unrelated_errors(run, report, added, new_tests)
        results = {
            test: result for test, result in run.results.items() if not only or get_test_file(test) in only
        }
        return run.model_copy(update={"results": results})

    def _create_canary(self, files: Iterable[str]) -> Canary | None:
        """Creates a canary next to the first of these files that can have one."""
        canaries = (Canary.create_for(file, self.suite.runner) for file in files if file)
        return next((canary for canary in canaries if canary is not None), None)

    async def _run_with_canary(
        self, role: str, patch: Patch, only: tuple[str, ...], canary: Canary | None
    ) -> tuple[TestRun, RunnerReport]:
        """Runs the tests together with canary tests. If the canary tests have wrong results, the run has a
        problem, except if they also have wrong results on the untouched base commit.
        """
        if canary is None:
            return await self._run_with_report(role, patch, only)
        run, report = await self._run_with_report(
            role, canary.add_to(patch), (*only, canary.path) if only else ()
        )
        checked = canary.check_run(run)
        if checked.problem and not run.problem:
            at_base = await self._run_canary_at_base(role, only, canary)
            if canary.check_run(at_base).problem:  # for example, if the suite does not collect the file
                return canary.remove_from(run), report
        return checked, report

    async def _run_canary_at_base(self, role: str, only: tuple[str, ...], canary: Canary) -> TestRun:
        """Runs the canary tests on the untouched base commit, after the same test files, because a file can break
        those after it. What the patch adds is left out, as it could make the canary tests fail.
        """
        existing = frozenset(await self.workspace.list_files() if only else ())
        files = tuple(file for file in dict.fromkeys(map(get_test_file, only)) if file in existing)
        untouched = canary.add_to(Patch(base_sha=self.patch.base_sha, diff=b""))
        selected = (*files, canary.path) if only else ()
        return (await self._run_with_report(f"{role}-canary", untouched, selected, self.sandboxes))[0]

    async def _run_with_report(
        self, role: str, patch: Patch | None, only: tuple[str, ...], sandboxes: Sandboxes | None = None
    ) -> tuple[TestRun, RunnerReport]:
        sandboxes = sandboxes or (self.sandboxes if patch is None else self.patched)
        run, report = await run_tests_with_report(
            self.workspace, patch, self.suite, sandboxes, f"{self.name}-{role}", self.seconds, only
        )
        if run.ignored_options:  # else there is no need to wait for the baseline
            run = require_known_options(await self.baseline_runs.start(self.suite), run)
        return run, report

    async def _run(self, role: str, patch: Patch | None, only: tuple[str, ...] = ()) -> TestRun:
        run, _ = await self._run_with_report(role, patch, only)
        return run
