"""Run unittest as `python -m unittest` does, and write a line of JSON for each test, and then how many there were.

The first argument names the report, the others are unittest's own; after `--patchwright-only` follow the only
tests to run: ids as written here, or files. Runs in the sandbox under whatever Python the repository has (3.8
and later), so it knows nothing but the standard library.
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

HERE = os.path.realpath(os.getcwd())
WORST = ("failed", "error", "passed", "skipped")


def place(test: Any) -> tuple[str, str]:
    """The file and the name of a test, as pytest has them; no name: the file could not be imported."""
    if type(test).__module__ == "unittest.loader":
        return module_file(test._testMethodName), ""
    if not isinstance(test, unittest.TestCase):
        return "", str(test)  # a fixture of a class or module: `setUpClass (tests.test_a.TestA)`
    try:
        file = os.path.relpath(os.path.realpath(inspect.getfile(type(test))), HERE)
    except (TypeError, OSError):
        file = type(test).__module__.replace(".", "/") + ".py"
    case = type(test).__qualname__.replace(".", "::")
    return file, f"{case}::{getattr(test, '_testMethodName', 'run')}"


def module_file(module: str) -> str:
    relative = module.replace(".", "/") + ".py"
    for base in sys.path:
        path = os.path.realpath(os.path.join(base, relative))
        if path.startswith(HERE + os.sep) and os.path.exists(path):
            return os.path.relpath(path, HERE)
    return relative


class Result(unittest.TextTestResult):
    """Also keeps the outcome of each test."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.outcomes: dict[tuple[str, str], str] = {}
        self.said: dict[tuple[str, str], str] = {}

    def note(self, test: Any, outcome: str, error: Any = None) -> None:
        test = getattr(test, "test_case", test)  # a subtest counts for its test
        key = place(test)
        self.outcomes[key] = min(outcome, self.outcomes.get(key, outcome), key=WORST.index)
        if error:
            self.said[key] = self.said.get(key, "") + "".join(traceback.format_exception(*error))

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.note(test, "passed")

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.note(test, "error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.note(test, "failed", err)

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.note(test, "skipped")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.note(test, "failed")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed" if issubclass(err[0], test.failureException) else "error", err)

    def lines(self) -> list[str]:
        lines = [
            json.dumps(
                {"file": key[0], "name": key[1], "result": outcome, "message": self.said.get(key, "")[-8000:]}
            )
            for key, outcome in self.outcomes.items()
        ]
        return [*lines, json.dumps({"tests": len(lines)})]


class Runner(unittest.TextTestRunner):
    """Runs the tests that are wanted, and writes the report."""

    report = ""
    only: frozenset[str] = frozenset()

    def run(self, test: Any) -> Any:
        result: Any = super().run(self.chosen(test) if self.only else test)
        with open(self.report, "w", encoding="utf-8") as report:
            report.write("\n".join(result.lines()) + "\n")
        return result

    def chosen(self, tests: Any) -> unittest.TestSuite:
        kept = unittest.TestSuite()
        for each in tests:
            if isinstance(each, unittest.TestSuite):
                kept.addTest(self.chosen(each))
            elif not self.only.isdisjoint((place(each)[0], "::".join(place(each)))):
                kept.addTest(each)
        return kept

    def _makeResult(self) -> Result:
        return Result(self.stream, self.descriptions, self.verbosity)


def main(report: str, *arguments: str) -> None:
    sys.path[0] = os.getcwd()
    Runner.report = report
    if "--patchwright-only" in arguments:
        cut = arguments.index("--patchwright-only")
        arguments, Runner.only = arguments[:cut], frozenset(arguments[cut + 1 :])
    unittest.main(module=None, argv=["python -m unittest", *arguments], testRunner=Runner)


if __name__ == "__main__":
    main(*sys.argv[1:])
