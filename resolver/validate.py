"""The proof: the repository's own tests, before and after, in sandboxes that the agent never touched.

What judges never comes from the patch: the repository's tests are run as they are at base on the patch's code, the
patch's tests apart from them, and what decides how tests run is taken from base in both.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from resolver.domain import Patch, SuiteRun, Verdict
from resolver.proof.affected import affected, mentions
from resolver.proof.baseline import Bases
from resolver.proof.canaries import Canary
from resolver.proof.files import decides_how_tests_run, is_about_tests, is_test_file
from resolver.proof.infrastructure import set_aside
from resolver.proof.missing_feature import added, with_missing
from resolver.proof.weakened import weakened
from resolver.suites.run import run_suite, run_with_report
from resolver.suites.suite import Suite, Suites
from resolver.verdict import (
    Brought,
    Evidence,
    Touched,
    broken,
    file_of,
    judge,
    mended,
    merged,
)
from resolver.workspace import ABSENT, Change, Workspace
from runtime.sandbox import Sandboxes

CONFIRMED = 50  # of the tests that a patch mends are run a second time, with it and without

Heard = Callable[[Verdict], Awaitable[bool]]
"""Hears the verdict on the tests that were run first; True: that is enough, the rest need not be run."""


async def nobody(verdict: Verdict) -> bool:
    """Hears the first verdict, and wants the whole one."""
    return False


async def prove(
    workspace: Workspace,
    patch: Patch,
    suites: Suites,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    bases: Bases,
    heard: Heard = nobody,
) -> Verdict:
    """The verdict on a patch. Raises ProofUnavailable, WorkspaceError."""
    if patch.empty:
        return judge(patch, None)
    changes = await workspace.changes(patch)
    concerned = suites.of(change.path for change in changes)
    aside = await set_aside(workspace, patch, changes, concerned)
    touched = Touched(
        weakened=await weakened(workspace, patch, changes),
        deleted=tuple(
            change.path for change in changes if change.mode == ABSENT and is_test_file(change.path)
        ),
        set_aside=tuple(sorted(aside)),
    )
    if not concerned:
        return judge(patch, None, touched)
    parts = await _parts(workspace, patch, changes, aside)
    verdicts: list[Verdict] = []
    for number, suite in enumerate(concerned, start=1):
        role = name if number == 1 else f"{name}-{number}"
        trial = _Trial(workspace, patch, parts, touched, suite, sandboxes, role, seconds, bases)
        verdicts.append(await trial.verdict(heard))
        if verdicts[-1].partial:
            break
    return merged(tuple(verdicts))


@dataclass(frozen=True)
class _Parts:
    """A patch, taken apart."""

    code: Patch
    """Without tests and without what decides how they run."""
    judged: Patch
    """With its tests, and how tests run as at base."""
    tests: Patch
    """Its tests alone, and what belongs to them."""
    product: tuple[Change, ...]
    """The changes in `code`."""
    about_tests: tuple[Change, ...]
    """Those in `tests`."""


async def _parts(
    workspace: Workspace, patch: Patch, changes: tuple[Change, ...], aside: frozenset[str]
) -> _Parts:
    rest = tuple(change for change in changes if change.path not in aside)
    # A manifest that is not set aside says nothing new of tests: it is the product's.
    tests = tuple(each for each in rest if is_about_tests(each.path) and not decides_how_tests_run(each.path))
    tested = frozenset(change.path for change in tests)
    product = tuple(change for change in rest if change.path not in tested)
    code = frozenset(change.path for change in product)

    async def without(paths: frozenset[str]) -> Patch:
        return await workspace.without(patch, paths) if paths else patch

    return _Parts(
        code=await without(aside | tested),
        judged=await without(aside),
        tests=await without(aside | code),
        product=product,
        about_tests=tests,
    )


@dataclass(frozen=True)
class _Trial:
    """One suite's say about one patch."""

    workspace: Workspace
    patch: Patch
    parts: _Parts
    touched: Touched
    suite: Suite
    sandboxes: Sandboxes
    name: str
    seconds: int
    bases: Bases

    async def verdict(self, heard: Heard) -> Verdict:
        """On the tests that the change may affect first, where those can be told; then on all."""
        brought: Brought | None = None
        if first := await self._first():
            evidence = await self._evidence(first)
            if evidence is not None:
                brought = await self._brought(evidence.before)
                verdict = judge(self.patch, replace(evidence, brought=brought), self.touched)
                if await heard(verdict):
                    return verdict
        evidence = await self._evidence(())
        assert evidence is not None, "only the first of several runs may be left out"
        if brought is None:
            brought = await self._brought(evidence.before)
        return judge(self.patch, replace(evidence, brought=brought), self.touched)

    async def _first(self) -> tuple[str, ...]:
        if not self.suite.selects_files or not self.parts.product:
            return ()
        files = frozenset(change.path for change in self.parts.about_tests if is_test_file(change.path))
        return await affected(self.workspace, self.parts.product, files, self.suite)

    async def _evidence(self, only: tuple[str, ...]) -> Evidence | None:
        """What the repository's own tests show, all of them or those in the files `only`.

        None: these files alone are no test run.
        """
        role = "first" if only else "after"
        before = await self._at_base(only)
        after = before
        if self.parts.product:
            after = await self._run(role, self.parts.code, only)
        if only and (before.problem or after.problem):
            return None
        evidence = Evidence(before=before, after=after, product=bool(self.parts.product), partial=bool(only))
        return await self._confirmed(evidence, role)

    async def _at_base(self, only: tuple[str, ...]) -> SuiteRun:
        if not only or self.bases.is_known(self.suite):
            run = await self.bases.begin(self.suite)
            if not only or run.problem:
                return run
            kept = {test: result for test, result in run.results.items() if file_of(test) in only}
            return run.model_copy(update={"results": kept})
        return await self._run("first-base", None, only)

    async def _confirmed(self, evidence: Evidence, role: str) -> Evidence:
        """What differs is run again on both sides, in new sandboxes."""
        before, after = evidence.before, evidence.after
        if after.problem or (not after.results and after.exit_code != 0):
            again = await self._run(f"{role}-again", self.parts.code)
            return replace(evidence, again=again, delivered=await self._delivered(role, ()))
        suspects, candidates = broken(before, after), mended(before, after)[:CONFIRMED]
        differ = (*suspects, *candidates)
        if differ and self.suite.selects:
            again, before_again = await asyncio.gather(
                self._again(f"{role}-again", self.parts.code, _named(differ, after)),
                self._again(f"{role}-base-again", None, _named(differ, before)),
            )
            evidence = replace(evidence, again=again, before_again=before_again)
        elif suspects:
            evidence = replace(evidence, again=await self._run(f"{role}-again", self.parts.code))
        aside = bool(self.touched.set_aside) and not evidence.partial
        if suspects or aside:
            evidence = replace(evidence, delivered=await self._delivered(role, () if aside else suspects))
        return evidence

    async def _delivered(self, role: str, only: tuple[str, ...]) -> SuiteRun | None:
        """The patch whole; None: it is nothing but code, which was run already."""
        if not self.parts.about_tests and not self.touched.set_aside:
            return None
        return await self._run(f"{role}-delivered", self.patch, only)

    async def _again(self, role: str, patch: Patch | None, only: tuple[str, ...]) -> SuiteRun:
        again = await self._run(role, patch, only)
        if again.problem:  # not every runner finds a test by the id that it reported
            return await self._run(role, patch)
        return again

    async def _brought(self, before: SuiteRun) -> Brought | None:
        """What the tests show that the patch changes, adds or deletes; None: it does nothing of that."""
        if not self.parts.about_tests:
            return None
        changed = {change.path: change for change in self.parts.about_tests if is_test_file(change.path)}
        files = frozenset(path for path in changed if self.suite.is_over(path))
        there = tuple(sorted(path for path in files if changed[path].mode != ABSENT))
        if not files:
            there = await self._using(self.parts.about_tests)
            files = frozenset(there)
        alone = self.suite.selects_files
        if alone and not there:
            nothing = before.model_copy(update={"results": {}, "exit_code": 0, "output": "", "problem": None})
            return Brought(files=files, alone=True, after=nothing) if files else None
        only = there if alone else ()
        canary = Canary.beside(there[0]) if alone and self.suite.report == "pytest" else None
        after = await self._apart("tests", self.parts.judged, only, canary)
        found = Brought(files=files, alone=alone, after=after)
        if after.problem:
            return found
        if after.failing:
            failing = after.failing if alone else ()
            found = replace(found, again=await self._again("tests-again", self.parts.judged, failing))
        if self.parts.product and after.passed:
            new = frozenset(test for test in after.results if test not in before.results)
            at_base = await self._apart("tests-at-base", self.parts.tests, only, canary, at_base=new)
            found = replace(found, before=at_base)
            shown = mended(at_base, after)[:CONFIRMED]
            if shown and not at_base.problem:
                # By files: a test that could not be collected there has no name there.
                found = replace(
                    found, before_again=await self._run("tests-at-base-again", self.parts.tests, only)
                )
        return found

    async def _using(self, data: tuple[Change, ...]) -> tuple[str, ...]:
        """Test files at base that name one of these files, which are no tests themselves."""
        if not self.suite.selects_files:
            return ()
        tests = {
            path for path in await self.workspace.files() if is_test_file(path) and self.suite.is_over(path)
        }
        names = {change.path.rpartition("/")[2].partition(".")[0] for change in data}
        return tuple(await mentions(self.workspace, tests, {name for name in names if len(name) > 1}))

    async def _apart(
        self,
        role: str,
        patch: Patch,
        only: tuple[str, ...],
        canary: Canary | None,
        at_base: frozenset[str] | None = None,
    ) -> SuiteRun:
        """The patch's tests, run apart from the repository's own; nothing that they say of others counts.

        `at_base`: on the base code, and these are the tests that were not there.
        """
        if canary is not None:
            patch, only = canary.added_to(patch), (*only, canary.path)
        run, report = await run_with_report(
            self.workspace, patch, self.suite, self.sandboxes, f"{self.name}-{role}", self.seconds, only
        )
        if canary is not None:
            run = canary.checked(run)
        if at_base is not None:
            run = with_missing(
                run, report, await added(self.workspace, self.patch, self.parts.product), at_base
            )
        results = {test: result for test, result in run.results.items() if not only or file_of(test) in only}
        return run.model_copy(update={"results": results})

    async def _run(self, role: str, patch: Patch | None, only: tuple[str, ...] = ()) -> SuiteRun:
        return await run_suite(
            self.workspace, patch, self.suite, self.sandboxes, f"{self.name}-{role}", self.seconds, only
        )


def _named(tests: tuple[str, ...], run: SuiteRun) -> tuple[str, ...]:
    """These tests as they can be asked for: one that could not be collected then by its file."""
    return tuple(dict.fromkeys(test if test in run.results else file_of(test) for test in tests))
