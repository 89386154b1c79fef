"""Takes defences of the verification out, to show that a trick works without them.

Each function is named after the defence that it removes. A case names these functions.
"""

import re
from typing import Any

from pytest import MonkeyPatch

from patchwright.resolver.domain import TestRun
from patchwright.resolver.proof import patch_parts, runner_config, verdict, verification
from patchwright.resolver.proof.canaries import Canary
from patchwright.resolver.proof.evidence import PatchTests
from patchwright.resolver.security import patch_policy
from patchwright.resolver.suites.suite import Suite


def test_config_from_base(monkeypatch: MonkeyPatch) -> None:
    """The patch's test configuration is used, and nobody is told."""

    async def find_none(*_: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(verification, "find_reverted_test_config", find_none)
    monkeypatch.setattr(patch_policy, "is_runner_config", lambda path: False)


def canaries(monkeypatch: MonkeyPatch) -> None:
    """No canary test checks the report."""
    monkeypatch.setattr(Canary, "check_run", lambda self, run: run)


def review_notes(monkeypatch: MonkeyPatch) -> None:
    """Nobody reads the added lines for words that can deceive test runs."""

    async def find_none(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(patch_policy, "find_review_notes", find_none)


def special_cases(monkeypatch: MonkeyPatch) -> None:
    """Code that may satisfy only the tests is not searched for."""

    async def find_none(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(patch_policy, "find_special_cases", find_none)


def sensitive_files(monkeypatch: MonkeyPatch) -> None:
    """The pull request does not name files that act outside of the tests."""
    monkeypatch.setattr(patch_policy, "find_file_kind", lambda path: None)


def plain_environment(monkeypatch: MonkeyPatch) -> None:
    """The tests that show a fix do not run again in a plain environment."""

    async def keep(verdict: object, *_: object) -> object:
        return verdict

    monkeypatch.setattr(verification, "require_plain_environment", keep)


def nested_checks(monkeypatch: MonkeyPatch) -> None:
    """Checks in callbacks of a test need not run."""

    async def keep(_: object, __: object, ___: object, verdict: object, *____: object) -> object:
        return verdict

    monkeypatch.setattr(verification, "require_nested_checks", keep)


def unusual_files(monkeypatch: MonkeyPatch) -> None:
    """The pull request does not name the unusual files without which the tests do not show the fix."""

    async def find_none(*_: object) -> tuple[str, ...]:
        return ()

    monkeypatch.setattr(verification, "find_unusual_files", find_none)


def plugin_modules(monkeypatch: MonkeyPatch) -> None:
    """The patch's version of a plugin that the configuration names is used."""

    async def find_none(*_: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(runner_config, "find_plugin_modules", find_none)


def shadowing_modules(monkeypatch: MonkeyPatch) -> None:
    """A new module may replace one of Python, of the test runner, or of the environment."""

    async def find_none(*_: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(verification, "find_shadowing_modules", find_none)
    monkeypatch.setattr(runner_config, "is_shadowing_runner", lambda path, directory="": False)
    monkeypatch.setattr(runner_config, "RUNNER_PACKAGES", re.compile("(?!)"))


def test_helpers(monkeypatch: MonkeyPatch) -> None:
    """Only paths tell which files belong to the tests."""

    async def find_none(*_: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(verification, "find_test_helpers", find_none)


def tests_from_base(monkeypatch: MonkeyPatch) -> None:
    """The patch's version of the repository's tests decides."""

    async def find_none(*_: object) -> tuple[str, ...]:
        return ()

    monkeypatch.setattr(patch_parts, "is_test_related", lambda path: False)
    monkeypatch.setattr(verification, "is_test_file", lambda path: False)
    monkeypatch.setattr(Suite, "is_test_file", lambda self, path: False)
    monkeypatch.setattr(verification, "find_weakened_tests", find_none)


def skipped_tests_do_not_pass(monkeypatch: MonkeyPatch) -> None:
    """A skipped test counts as one that passed."""
    run_tests = verification.run_tests_with_report

    async def count_skipped(*arguments: Any) -> Any:
        run, report = await run_tests(*arguments)
        results = {test: "passed" if kind == "skipped" else kind for test, kind in run.results.items()}
        return run.model_copy(update={"results": results}), report

    monkeypatch.setattr(verification, "run_tests_with_report", count_skipped)


def rewritten_tests_are_no_evidence(monkeypatch: MonkeyPatch) -> None:
    """A test that failed before counts as evidence in whatever version the patch gives it."""
    compare = verdict._compare_patch_tests

    def forget_failures(before: TestRun, patch_tests: PatchTests, replaced: frozenset[str]) -> Any:
        passed = {test: result for test, result in before.results.items() if result == "passed"}
        return compare(before.model_copy(update={"results": passed}), patch_tests, frozenset())

    monkeypatch.setattr(verdict, "_compare_patch_tests", forget_failures)
    monkeypatch.setattr(verdict, "_replaced_failing_tests", lambda *_: [])


def known_results_at_base(monkeypatch: MonkeyPatch) -> None:
    """A test that did not run on the code at base counts as failed there, even if it is known to pass."""

    async def keep(_workspace: object, _patch: object, at_base: TestRun, *_: object) -> TestRun:
        return at_base

    monkeypatch.setattr(verification, "restore_known_results", keep)


def repetition_beside_others(monkeypatch: MonkeyPatch) -> None:
    """Tests with another result than before run again alone, but never beside the others."""
    repeat = verification._SuiteVerification._repeat
    repeated: dict[str, Any] = {}

    async def keep_first(self: Any, role: str, *selected: Any) -> Any:
        if role not in repeated:
            repeated[role] = repeated[f"{role}-all"] = await repeat(self, role, *selected)
        return repeated[role]

    monkeypatch.setattr(verification._SuiteVerification, "_repeat", keep_first)
