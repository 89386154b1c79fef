"""A test report becomes results. Hostile code ran where it was written, so nothing in it is trusted."""

from typing import Any
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser
from pydantic import Field

from resolver.domain import Result
from runtime.frozen import Frozen

MAX_REPORT = 20_000_000  # bytes
MAX_TESTS = 200_000
MAX_ID = 2_000  # characters
MAX_MESSAGE = 8_000  # characters; the end of a traceback names the exception

WORST: tuple[Result, ...] = ("failed", "error", "passed", "skipped")
_OUTCOMES: dict[str, Result] = {"failure": "failed", "error": "error", "skipped": "skipped"}


class Report(Frozen):
    """What a test runner wrote down."""

    results: dict[str, Result] = Field(default_factory=dict)
    """Outcome per test. An id is what pytest prints (`tests/test_x.py::test_y[1]`) where the report tells the
    file, else `classname::name`. A test file that could not be collected is an error under its path alone."""
    messages: dict[str, str] = Field(default_factory=dict)
    """What a failure or error said, by the same ids; its end, at most MAX_MESSAGE characters."""
    problem: str | None = None
    """Why this is no report, in one sentence; else None."""
    output: str | None = None
    """What the tests printed, where the runner wraps it for its report; else None."""


def parse_junit(content: bytes) -> Report:
    """The results in a JUnit XML report; one that cannot be right has a problem and no results."""
    if len(content) > MAX_REPORT:
        return Report(problem=f"the test report is larger than {MAX_REPORT // 1_000_000} MB")
    reader = _Reader()
    parser = DefusedXMLParser(target=reader, forbid_dtd=True)
    try:
        parser.feed(content)
        parser.close()
    except DefusedXmlException as exc:
        return Report(problem=f"the test report uses what a report does not need ({type(exc).__name__})")
    except (ParseError, ValueError, LookupError) as exc:
        return Report(problem=f"the test report is not XML that can be read ({exc})")
    except _Unfit as exc:
        return Report(problem=str(exc))
    if not reader.suites:
        return Report(problem="the test report holds no test suite")
    return Report(results=reader.results, messages=reader.messages)


class _Unfit(Exception):
    """The report contradicts itself or is beyond bounds; the message says how."""


class _Suite:
    """Counts of one `testsuite` element."""

    def __init__(self, attributes: dict[str, str]) -> None:
        self.claimed = {
            key: int(value)
            for key, value in attributes.items()
            if key in ("tests", "failures", "errors") and value.isdigit() and len(value) < 10
        }
        self.ids: set[str] = set()
        self.cases = self.failures = self.errors = 0
        self.nested = False

    def check(self) -> None:
        """Raise _Unfit when the totals are not those of the tests; a suite of suites may count either way."""
        if self.nested:
            return
        found = {"failures": self.failures, "errors": self.errors}
        for key, number in found.items():
            if self.claimed.get(key, number) != number:
                raise _Unfit(f"the test report claims {self.claimed[key]} {key} and shows {number}")
        tests = self.claimed.get("tests", self.cases)
        # A test that fails and then errs in its teardown is two elements, and one or two tests.
        if not len(self.ids) <= tests <= self.cases:
            raise _Unfit(f"the test report claims {tests} tests and shows {self.cases}")


class _Reader:
    """Target of the XML parser: keeps the results, not the tree, so that memory follows the tests alone."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}
        self.messages: dict[str, str] = {}
        self.suites = 0
        self._open: list[_Suite] = []
        self._case: str | None = None
        self._outcomes: list[Result] = []
        self._text: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _local(tag)
        if name == "testsuite":
            self.suites += 1
            if self._open:
                self._open[-1].nested = True
            self._open.append(_Suite(attributes))
        elif name == "testcase":
            self._case, self._outcomes = _test_id(attributes), []
        elif name in _OUTCOMES and self._case is not None:
            self._outcomes.append(_OUTCOMES[name])
            self._text = [attributes.get("message", "")[:MAX_MESSAGE], "\n"]

    def data(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def end(self, tag: str) -> None:
        name = _local(tag)
        if name == "testsuite" and self._open:
            self._open.pop().check()
        elif name == "testcase" and self._case is not None:
            self._close_case(self._case)
            self._case = None
        elif name in _OUTCOMES and self._text is not None and self._case is not None:
            if _OUTCOMES[name] != "skipped":
                told = self.messages.get(self._case, "") + "".join(self._text).strip() + "\n"
                self.messages[self._case] = told[-MAX_MESSAGE:]
            self._text = None

    def close(self) -> Any:
        return None

    def _close_case(self, test: str) -> None:
        outcomes: list[Result] = self._outcomes or ["passed"]
        if test in self.results:
            outcomes = [*outcomes, self.results[test]]
        self.results[test] = min(outcomes, key=WORST.index)
        if len(self.results) > MAX_TESTS:
            raise _Unfit(f"the test report holds more than {MAX_TESTS} tests")
        if self._open:
            suite = self._open[-1]
            suite.ids.add(test)
            suite.cases += 1
            suite.failures += self._outcomes.count("failed")
            suite.errors += self._outcomes.count("error")


def _test_id(attributes: dict[str, str]) -> str:
    """pytest's own id where the report has the file (its family `xunit1`), else `classname::name`."""
    file, classname, name = (attributes.get(key, "") for key in ("file", "classname", "name"))
    module = file.removesuffix(".py").replace("/", ".")
    if file.endswith(".py"):
        if not classname and name in (module, file):
            return file[:MAX_ID]
        if classname == module:
            return f"{file}::{name}"[:MAX_ID]
        if classname.startswith(f"{module}."):
            inner = classname.removeprefix(f"{module}.").replace(".", "::")
            return f"{file}::{inner}::{name}"[:MAX_ID]
    return (f"{classname}::{name}" if classname else name)[:MAX_ID]


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
