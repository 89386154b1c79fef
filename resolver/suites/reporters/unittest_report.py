"""Runs unittest like `python -m unittest`. Writes a JSON line for each test, and a final line with the number
of tests.

The first argument is the path of the report. The other arguments are those of unittest. The arguments after
`--patchwright-only` select tests: each is a file, or an id in the form that the report uses. The module runs
in the sandbox with the repository's Python (3.8 or later), so it uses only the standard library.
"""
# ruff: noqa: N802 (the names are unittest's)

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
import unittest
from typing import Any

ROOT = os.path.realpath(os.getcwd())
SEVERITY_ORDER = ("failed", "error", "passed", "skipped")


def locate_test(test: Any) -> tuple[str, str]:
    """Returns the file and the name of a test in pytest's form. The name is empty if the file could not be
    imported.
    """
    if type(test).__module__ == "unittest.loader":
        return module_file(test._testMethodName), ""
    if not isinstance(test, unittest.TestCase):
        # A fixture of a class or module: `setUpClass (tests.test_a.TestA)`.
        return "", str(test)
    try:
        file = os.path.relpath(os.path.realpath(inspect.getfile(type(test))), ROOT)
    except (TypeError, OSError):
        file = type(test).__module__.replace(".", "/") + ".py"
    case = type(test).__qualname__.replace(".", "::")
    return file, f"{case}::{getattr(test, '_testMethodName', 'run')}"


def module_file(module: str) -> str:
    relative = module.replace(".", "/") + ".py"
    for base in sys.path:
        path = os.path.realpath(os.path.join(base, relative))
        if path.startswith(ROOT + os.sep) and os.path.exists(path):
            return os.path.relpath(path, ROOT)
    return relative


class ReportingResult(unittest.TextTestResult):
    """A test result that also records the result of each test."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.results: dict[tuple[str, str], str] = {}
        self.outcomes: dict[tuple[str, str], str] = {}
        self.messages: dict[tuple[str, str], str] = {}

    def record(self, test: Any, result: str, error: Any = None, outcome: str | None = None) -> None:
        test = getattr(test, "test_case", test)  # the result of a subtest counts for its test
        key = locate_test(test)
        self.results[key] = min(result, self.results.get(key, result), key=SEVERITY_ORDER.index)
        if outcome:
            self.outcomes[key] = outcome
        if error:
            self.messages[key] = self.messages.get(key, "") + "".join(traceback.format_exception(*error))

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.record(test, "passed")

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.record_exception(test, err)

    def record_exception(self, test: Any, err: Any) -> None:
        """Records an unexpected exception. As with pytest, it is the failure of a test that could be loaded."""
        is_loaded = isinstance(test, unittest.TestCase) and type(test).__module__ != "unittest.loader"
        self.record(test, "failed" if is_loaded else "error", err, outcome="error" if is_loaded else None)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.record(test, "failed", err)

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.record(test, "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.record(test, "skipped", outcome="expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.record(test, "failed", outcome="unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            if issubclass(err[0], test.failureException):
                self.record(test, "failed", err)
            else:
                self.record_exception(test, err)

    def report_lines(self) -> list[str]:
        lines = [
            json.dumps(
                {
                    "file": key[0],
                    "name": key[1],
                    "result": result,
                    "message": self.messages.get(key, "")[-8000:],
                    "outcome": self.outcomes.get(key),
                }
            )
            for key, result in self.results.items()
        ]
        return [*lines, json.dumps({"tests": len(lines)})]


class ReportingRunner(unittest.TextTestRunner):
    """Runs the selected tests and writes the report."""

    report_path = ""
    selected: frozenset[str] = frozenset()

    def run(self, test: Any) -> Any:
        self.failfast = False
        result: Any = super().run(self.select(test) if self.selected else test)
        with open(self.report_path, "w", encoding="utf-8") as report:
            report.write("\n".join(result.report_lines()) + "\n")
        return result

    def select(self, tests: Any) -> unittest.TestSuite:
        selected_suite = unittest.TestSuite()
        for test in tests:
            if isinstance(test, unittest.TestSuite):
                selected_suite.addTest(self.select(test))
            elif not self.selected.isdisjoint((locate_test(test)[0], "::".join(locate_test(test)))):
                selected_suite.addTest(test)
        return selected_suite

    def _makeResult(self) -> ReportingResult:
        return ReportingResult(self.stream, self.descriptions, self.verbosity)


def main(report: str, *arguments: str) -> None:
    sys.path[0] = os.getcwd()
    ReportingRunner.report_path = report
    if "--patchwright-only" in arguments:
        index = arguments.index("--patchwright-only")
        arguments, ReportingRunner.selected = arguments[:index], frozenset(arguments[index + 1 :])
    unittest.main(module=None, argv=["python -m unittest", *arguments], testRunner=ReportingRunner)


if __name__ == "__main__":
    main(*sys.argv[1:])
