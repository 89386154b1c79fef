"""Runs the hidden tests of an instance on a patch, in a clean sandbox, and grades the result.

As in SWE-bench, only the test files of the hidden tests run, and their content always replaces the patch's own
changes to these files.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from patchwright.evaluation.instances import Instance
from patchwright.resolver.domain import Patch, TestRun, TestStatus
from patchwright.resolver.errors import VerificationUnavailable, WorkspaceError
from patchwright.resolver.git.local_repository import AUTHOR
from patchwright.resolver.git.repository import ABSENT, Workspace
from patchwright.resolver.pipeline.run_start import SETUP_TIMEOUT, select_image
from patchwright.resolver.preparation.added_packages import install_added_packages
from patchwright.resolver.preparation.repo_setup import install_dependencies
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run.repo_config import read_repo_config
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.execution import run_tests
from patchwright.resolver.suites.file_classifier import is_test_file, is_test_related
from patchwright.resolver.suites.suite import Suite
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.sandbox import Sandboxes

SEVERITY: tuple[TestStatus, ...] = ("failed", "error", "skipped", "passed")  # the worst result first
# Django's runner prints `test_add (tests.test_calc.AddTest)`, and from Python 3.11 on the method's name again.
_UNITTEST_NAME = re.compile(r"(?P<test>\w+) \((?P<class>[\w.]+)\)")
_SEPARATORS = re.compile(r"(?:\s>\s|\s|::|#)+")


class Score(FrozenModel):
    """How the hidden tests judge a patch."""

    fail_to_pass: tuple[str, ...] = ()
    """Tests that pass now, as they should."""
    still_failing: tuple[str, ...] = ()
    """Tests that should pass now and do not."""
    regressions: tuple[str, ...] = ()
    """Tests that should still pass and do not."""
    problem: str = ""
    """Why the tests could not run; empty if they ran."""

    @property
    def resolved(self) -> bool:
        """True if all tests pass that should. A test without a result does not pass."""
        return bool(self.fail_to_pass) and not (self.still_failing or self.regressions or self.problem)


class HiddenTestRun(FrozenModel):
    """The results of the hidden tests on one patch."""

    statuses: dict[str, TestStatus] = Field(default_factory=dict)
    """The result of each test. As in SWE-bench, an expected failure counts as passed."""
    seconds: float = 0.0
    problem: str = ""
    output: str = ""
    """End of the output."""

    @property
    def passed(self) -> frozenset[str]:
        return frozenset(test for test, status in self.statuses.items() if status == "passed")


@dataclass(frozen=True)
class HiddenTests:
    """The hidden tests of an instance, ready to run."""

    instance: Instance
    workspace: Workspace
    """The repository at the base commit."""
    sandboxes: Sandboxes
    """Sandboxes with the repository's dependencies."""
    suites: tuple[Suite, ...]
    """The suites that contain the hidden tests."""
    paths: frozenset[str]
    """Files that the test patch changes, and the files that the instance's tests name."""
    name: str
    seconds: int
    """Limit of one test run."""
    setup_problem: str = ""
    """Why dependencies of the base commit could not be installed; empty if they were."""

    @classmethod
    async def prepare(
        cls, instance: Instance, checkout: Path, workspace: Workspace, deps: RunDependencies
    ) -> "HiddenTests":
        """Finds the suites, and installs the dependencies of the base commit. Raises WorkspaceError."""
        config = (await read_repo_config(workspace)).config
        if instance.test_command:
            config = config.model_copy(update={"test_command": instance.test_command, "tests": ()})
        tests = Patch(base_sha=workspace.base, diff=instance.test_patch.encode())
        changes = await workspace.list_changes(tests)
        named = {test.partition("::")[0] for test in (*instance.fail_to_pass, *instance.pass_to_pass)}
        existing = await workspace.get_blob_ids(tuple(named))
        with_tests = workspace.with_base(await workspace.commit(tests, "Hidden tests", author=AUTHOR))
        suites = await find_suites(Workspace(workspace.git_dir, with_tests.base, None), config)
        name = f"{instance.run_id('hidden', 0)}"
        sandboxes, _ = await select_image(suites, deps.settings.language_images, deps.sandboxes)
        sandboxes, prepared, _ = await install_dependencies(
            workspace, config, sandboxes, name=f"{name}-setup", source=str(checkout), timeout=SETUP_TIMEOUT
        )
        # As in the images of SWE-bench, the environment has what the reference fix and its tests need.
        reference = Patch(
            base_sha=workspace.base, diff=f"{instance.gold_patch}{instance.test_patch}".encode()
        )
        sandboxes, _ = await install_added_packages(
            workspace, reference, await workspace.list_changes(reference), sandboxes, name
        )
        paths = frozenset(change.path for change in changes) | existing.keys()
        relevant = [change.path for change in changes if change.mode != ABSENT] or sorted(existing)
        seconds = config.test_timeout or deps.settings.test_timeout
        problem = "" if prepared is None else prepared.problem or " ".join(prepared.warnings)
        affected = suites.select_for_paths(relevant)
        return cls(instance, workspace, sandboxes, affected, paths, name, seconds, problem)

    async def with_tests_of(self, patch: Patch) -> "HiddenTests":
        """Returns the tests that a patch contains, in place of the hidden tests. Raises WorkspaceError."""
        changes = await self.workspace.list_changes(patch)
        tests = frozenset(change.path for change in changes if is_test_related(change.path))
        code = frozenset(change.path for change in changes) - tests
        only_tests = await self.workspace.revert_paths(patch, code)
        instance = self.instance.model_copy(
            update={
                "test_patch": only_tests.diff.decode(errors="surrogateescape"),
                "fail_to_pass": (),
                "pass_to_pass": (),
            }
        )
        return replace(self, instance=instance, paths=tests)

    async def run(self, patch: Patch, role: str) -> HiddenTestRun:
        """Runs the hidden tests on the code of a patch. `role` is part of the sandbox's name."""
        try:
            tested, tests = await self._apply(patch)
            changes = await self.workspace.list_changes(patch) if not patch.is_empty else ()
            sandboxes, _ = await install_added_packages(
                self.workspace, patch, changes, self.sandboxes, f"{self.name}-{role}"
            )
            runs = [
                await run_tests(
                    tested, tests, suite, sandboxes, f"{self.name}-{role}", self.seconds, self._select(suite)
                )
                for suite in self.suites
            ]
        except (VerificationUnavailable, WorkspaceError) as exc:
            return HiddenTestRun(problem=str(exc))
        if not runs:
            return HiddenTestRun(problem="No test command was found.")
        problem = next((run.problem for run in runs if run.problem), None)
        return HiddenTestRun(
            statuses={test: status for run in runs for test, status in _list_statuses(run)},
            seconds=sum(run.seconds for run in runs),
            problem=problem or "",
            output="\n".join(run.output for run in runs),
        )

    async def _apply(self, patch: Patch) -> tuple[Workspace, Patch]:
        """Returns the repository with the code of the patch, and the hidden tests as a patch on top of it."""
        if not patch.is_empty:
            patch = await self.workspace.revert_paths(patch, self.paths)
        commit = await self.workspace.commit(patch, "Change", author=AUTHOR)
        tested = Workspace(self.workspace.git_dir, commit, None)
        return tested, Patch(base_sha=commit, diff=self.instance.test_patch.encode(errors="surrogateescape"))

    def _select(self, suite: Suite) -> tuple[str, ...]:
        """Returns the test files to run. If the hidden tests are only data of other tests, all tests run."""
        if not suite.can_select_files:
            return ()
        tests = (*self.instance.fail_to_pass, *self.instance.pass_to_pass)
        named = {test.partition("::")[0] for test in tests} & self.paths
        files = named or {path for path in self.paths if is_test_file(path)}
        return tuple(sorted(path for path in files if suite.runs_test_file(path)))


def _list_statuses(run: TestRun) -> Iterator[tuple[str, TestStatus]]:
    for test, status in run.results.items():
        is_expected = run.outcomes.get(test) in ("xfailed", "expected failure")
        yield test, "passed" if is_expected else status


def grade(run: HiddenTestRun, fail_to_pass: tuple[str, ...], pass_to_pass: tuple[str, ...]) -> Score:
    """Compares the results with the tests that should pass.

    The rules are those of SWE-bench: a test without a result fails. A skipped test is no regression, but it does not
    show the fix either. Source: swebench 5.0.2, harness/grading.py
    """
    names = {_shorten_file(test): test for test in run.statuses}
    endings = _index_endings(run.statuses)

    def get_status(test: str) -> TestStatus | None:
        if test in run.statuses:
            return run.statuses[test]
        if known := names.get(normalize_test(test)):
            return run.statuses[known]
        return _get_status_of_truncated(test, run.statuses) or endings.get(_split_name(test))

    return Score(
        fail_to_pass=tuple(test for test in fail_to_pass if get_status(test) == "passed"),
        still_failing=tuple(test for test in fail_to_pass if get_status(test) != "passed"),
        regressions=tuple(test for test in pass_to_pass if get_status(test) not in ("passed", "skipped")),
        problem=run.problem,
    )


def normalize_test(test: str) -> str:
    """Converts unittest's name of a test to the form of our test ids, without the directories above its module."""
    if (match := _UNITTEST_NAME.fullmatch(test)) is None:
        return test
    module, _, case = match["class"].removesuffix(f".{match['test']}").rpartition(".")
    return f"{module.rpartition('.')[2]}.py::{case}::{match['test']}"


def _shorten_file(test: str) -> str:
    """Removes the directories of a test's file."""
    file, separator, rest = test.partition("::")
    return f"{file.rpartition('/')[2]}{separator}{rest}"


def _index_endings(statuses: Mapping[str, TestStatus]) -> dict[tuple[str, ...], TestStatus]:
    """Returns the results by the words with which the ids end. Python is left out, because its ids are pytest's.

    In other languages, SWE-bench's parsers name a test without its file, and jest's also without its groups. If several
    tests have this name, the worst result counts. In Go, the result of a test is that of its subtests.
    Source: swebench 5.0.2, harness/log_parsers
    """
    endings: dict[tuple[str, ...], TestStatus] = {}
    for test, status in statuses.items():
        if test.partition("::")[0].endswith(".py"):
            continue
        *before, last = _split_name(test) or ("",)
        levels = last.split("/")
        for depth in range(1, len(levels) + 1):
            words = (*before, "/".join(levels[:depth]))
            for start in range(len(words)):
                known = endings.get(words[start:], status)
                endings[words[start:]] = min(status, known, key=SEVERITY.index)
    return endings


def _split_name(test: str) -> tuple[str, ...]:
    return tuple(word for word in _SEPARATORS.split(test.rstrip(".")) if word)


def _get_status_of_truncated(test: str, statuses: Mapping[str, TestStatus]) -> TestStatus | None:
    """Returns the result of a parametrized test whose id ends within its parameters. SWE-bench cuts ids at spaces.

    If several tests begin like this, they must agree.
    """
    if test.count("[") <= test.count("]"):
        return None
    matching = [status for known, status in statuses.items() if known.startswith(test)]
    return matching[0] if len({status == "passed" for status in matching}) == 1 else None
