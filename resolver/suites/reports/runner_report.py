"""Parses JUnit XML reports into test results. Nothing in a report is trusted, because untrusted code can
write to it.
"""

from collections.abc import Callable
from typing import Any, Self
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser
from pydantic import Field

from patchwright.resolver.run_results import RunnerOutcome, TestStatus
from patchwright.runtime.frozen_model import FrozenModel

MAX_REPORT_BYTES = 20_000_000  # maximum bytes of a report
MAX_TESTS = 200_000
FILE_SEPARATOR = b"\0"  # between two reports; XML cannot contain this character
MAX_ID = 2_000  # characters
MAX_MESSAGE = 8_000  # characters; the end of a traceback names the exception

SEVERITY_ORDER: tuple[TestStatus, ...] = ("failed", "error", "passed", "skipped")
_JUNIT_RESULTS: dict[str, TestStatus] = {"failure": "failed", "error": "error", "skipped": "skipped"}


class RunnerReport(FrozenModel):
    """The parsed report of a test runner."""

    results: dict[str, TestStatus] = Field(default_factory=dict)
    """Outcome of each test, by test id.

    If the report names the file of a test, the id has pytest's form, such as `tests/test_x.py::test_y[1]`.
    Otherwise, the id is `classname::name`. A test file that could not be collected has the outcome "error",
    and its id is only the path.
    """
    messages: dict[str, str] = Field(default_factory=dict)
    """Message of each failure or error, by test id. Only the last MAX_MESSAGE characters of a message are kept.
    """
    outcomes: dict[str, RunnerOutcome] = Field(default_factory=dict)
    """The runner's own name for a result, by test id, if it is more specific."""
    retries: dict[str, int] = Field(default_factory=dict)
    """How often the runner repeated a test, by test id. Tests that ran once are left out."""
    unfinished_files: tuple[str, ...] = ()
    """Test files whose process ended before their last test, for example because it was killed. The outcome of
    each of these files is "error".
    """
    problem: str | None = None
    """One sentence that says why the report is invalid; None if it is valid."""
    output: str | None = None
    """The tests' output; None if the report does not contain it."""
    read_files: tuple[str, ...] = ()
    """The files of the repository that were read during a run at the base commit. Empty for other runs, and if
    the file system does not record when a file is read.
    """

    def rename_tests(self, rename: Callable[[str], str]) -> Self:
        """Returns the report with other test ids and file paths."""
        return self._map_tests(lambda tests: {rename(test): value for test, value in tests.items()})

    def filter_tests(self, is_included: Callable[[str], bool]) -> Self:
        """Returns the report with only some of its tests and files."""
        return self._map_tests(
            lambda tests: {test: value for test, value in tests.items() if is_included(test)}
        )

    def _map_tests(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Self:
        return self.model_copy(
            update={
                "results": change(self.results),
                "messages": change(self.messages),
                "outcomes": change(self.outcomes),
                "retries": change(self.retries),
                "unfinished_files": tuple(change(dict.fromkeys(self.unfinished_files))),
            }
        )

    def merge(self, other: Self) -> Self:
        """Returns a report with the tests of both reports. If a test is in both, the other report counts."""
        return self.model_copy(
            update={
                "results": self.results | other.results,
                "messages": self.messages | other.messages,
                "outcomes": self.outcomes | other.outcomes,
                "retries": self.retries | other.retries,
                "unfinished_files": self.unfinished_files + other.unfinished_files,
            }
        )


def parse_junit(content: bytes, root: str = "") -> RunnerReport:
    """Returns the results in a JUnit XML report. An invalid report yields a problem and no results."""
    if len(content) > MAX_REPORT_BYTES:
        return RunnerReport(problem=f"the test report is larger than {MAX_REPORT_BYTES // 1_000_000} MB")
    reader = _JUnitTarget()
    parser = DefusedXMLParser(target=reader, forbid_dtd=True)
    try:
        parser.feed(content)
        parser.close()
    except DefusedXmlException as exc:
        return RunnerReport(
            problem=f"the test report uses XML features that reports do not need ({type(exc).__name__})"
        )
    except (ParseError, ValueError, LookupError) as exc:
        return RunnerReport(problem=f"the test report is not valid XML ({exc})")
    except _InvalidJUnitReport as exc:
        return RunnerReport(problem=str(exc))
    if not reader.suites:
        return RunnerReport(problem="the test report contains no test suite")
    return RunnerReport(
        results=reader.results,
        messages=reader.messages,
        outcomes={
            test: outcome
            for test, outcome in reader.outcomes.items()
            if reader.results[test] == ("passed" if outcome == "xpassed" else "skipped")
        },
        retries=reader.retries,
    )


def parse_junit_files(content: bytes, root: str) -> RunnerReport:
    """Returns the merged results of all files. If a test is in several files, its most severe result counts: code
    under test could write another file. If a file has a problem, returns only the first problem.
    """
    merged = RunnerReport()
    for part in content.split(FILE_SEPARATOR):
        if not part.strip():
            continue
        report = parse_junit(part, root)
        if report.problem:
            return report
        known = merged.results
        worse = {
            test: min(result, known[test], key=SEVERITY_ORDER.index)
            for test, result in report.results.items()
            if test in known
        }
        merged = merged.merge(report)
        merged = merged.model_copy(update={"results": merged.results | worse})
        if len(merged.results) > MAX_TESTS:
            return RunnerReport(problem=f"the test report contains more than {MAX_TESTS} tests")
    if not merged.results:
        return RunnerReport(problem="the command wrote no test report")
    return merged


class _InvalidJUnitReport(Exception):
    """The report contradicts itself or exceeds a limit. The message describes the problem."""


class _SuiteCounts:
    """Counts of one `testsuite` element."""

    def __init__(self, attributes: dict[str, str]) -> None:
        self.claimed = {
            key: int(value)
            for key, value in attributes.items()
            if key in ("tests", "failures", "errors") and value.isdigit() and len(value) < 10
        }
        self.ids: set[str] = set()
        self.failures = self.errors = 0
        self.nested = False

    def check(self) -> None:
        """Raises _InvalidJUnitReport if the totals do not match the tests. The totals of suites that contain
        other suites are not checked, because runners count them differently.
        """
        if self.nested:
            return
        actual = {"failures": self.failures, "errors": self.errors}
        for key, number in actual.items():
            if self.claimed.get(key, number) != number:
                raise _InvalidJUnitReport(
                    f"the test report claims {self.claimed[key]} {key}, but contains {number}"
                )
        tests = self.claimed.get("tests", len(self.ids))
        # A total may be larger than the number of tests, because pytest also counts each subtest. It may be
        # smaller than the number of elements: a test that fails and whose teardown has an error has two.
        if tests < len(self.ids):
            raise _InvalidJUnitReport(f"the test report claims {tests} tests, but contains {len(self.ids)}")


class _JUnitTarget:
    """Receives the elements from the XML parser. It stores only results and no tree, so its memory depends
    only on the number of tests.
    """

    def __init__(self) -> None:
        self.results: dict[str, TestStatus] = {}
        self.messages: dict[str, str] = {}
        self.outcomes: dict[str, RunnerOutcome] = {}
        self.retries: dict[str, int] = {}
        self.suites = 0
        self._open: list[_SuiteCounts] = []
        self._case: str | None = None
        self._outcomes: list[TestStatus] = []
        self._text: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _local_name(tag)
        if name == "testsuite":
            self.suites += 1
            if self._open:
                self._open[-1].nested = True
            self._open.append(_SuiteCounts(attributes))
        elif name == "testcase":
            self._case, self._outcomes = _test_id(attributes), []
        elif name in _JUNIT_RESULTS and self._case is not None:
            self._outcomes.append(_JUNIT_RESULTS[name])
            self._text = [attributes.get("message", "")[:MAX_MESSAGE], "\n"]
            if attributes.get("type") == "pytest.xfail":
                self.outcomes[self._case] = "xfailed"
        elif name == "property" and self._case is not None:
            self._read_property(self._case, attributes.get("name"), attributes.get("value", ""))

    def _read_property(self, test: str, name: str | None, value: str) -> None:
        """Reads the properties that Patchwright's pytest plugin adds to a test."""
        if (name, value) == ("patchwright_outcome", "xpassed"):
            self.outcomes[test] = "xpassed"
        elif name == "patchwright_retries" and value.isdecimal() and len(value) < 4:
            self.retries[test] = int(value)

    def data(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def end(self, tag: str) -> None:
        name = _local_name(tag)
        if name == "testsuite" and self._open:
            self._open.pop().check()
        elif name == "testcase" and self._case is not None:
            self._close_case(self._case)
            self._case = None
        elif name in _JUNIT_RESULTS and self._text is not None and self._case is not None:
            if _JUNIT_RESULTS[name] != "skipped":
                message = self.messages.get(self._case, "") + "".join(self._text).strip() + "\n"
                self.messages[self._case] = message[-MAX_MESSAGE:]
            self._text = None

    def close(self) -> Any:
        return None

    def _close_case(self, test: str) -> None:
        outcomes: list[TestStatus] = self._outcomes or ["passed"]
        if test in self.results:
            outcomes = [*outcomes, self.results[test]]
        self.results[test] = min(outcomes, key=SEVERITY_ORDER.index)
        if len(self.results) > MAX_TESTS:
            raise _InvalidJUnitReport(f"the test report contains more than {MAX_TESTS} tests")
        if self._open:
            suite = self._open[-1]
            suite.ids.add(test)
            suite.failures += self._outcomes.count("failed")
            suite.errors += self._outcomes.count("error")


def _test_id(attributes: dict[str, str]) -> str:
    """Returns the id of a test from the attributes of its element in the report.

    If the attributes contain the test's file, Python or not, and pytest named the class after it, the id has pytest's
    form, such as `tests/test_a.py::test_b`. Otherwise, the id is `classname::name`.
    """
    file, classname, name = (attributes.get(key, "") for key in ("file", "classname", "name"))
    module = file.removesuffix(".py").replace("/", ".")
    if file.endswith(".py") and not classname and name in (module, file):
        return file[:MAX_ID]
    if file and f"{classname}.".startswith(f"{module}."):
        classes = classname.removeprefix(module).replace(".", "::")
        return f"{file}{classes}::{name}"[:MAX_ID]
    return (f"{classname}::{name}" if classname else name)[:MAX_ID]


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]
