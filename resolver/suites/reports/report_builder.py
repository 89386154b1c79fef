"""Builds a report from single results. Applies limits, builds test ids, and checks the totals that a runner
claims.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

from patchwright.resolver.domain import TestStatus
from patchwright.resolver.suites.runner_report import (
    MAX_ID,
    MAX_MESSAGE,
    MAX_TESTS,
    SEVERITY_ORDER,
    RunnerReport,
)

ID_SEPARATOR = "::"


class InvalidReport(Exception):
    """The report contradicts itself or exceeds a limit. The message is a clause that describes the problem."""


class LenientModel(BaseModel):
    """Base class of report schemas; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ReportBuilder:
    """Collects the results of a report. `root` is the directory in the sandbox where the runner ran."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/") + "/"
        self._results: dict[str, TestStatus] = {}
        self._messages: dict[str, str] = {}
        self.counts = dict[TestStatus, int](passed=0, failed=0, error=0, skipped=0)

    def add(self, test: str, result: TestStatus, message: str = "") -> None:
        """Adds the outcome of a test. If a test has several outcomes, the most severe one is kept. Raises
        InvalidReport if there are more than MAX_TESTS tests.
        """
        test = test.strip()[:MAX_ID]
        if not test:
            raise InvalidReport("the test report has a test without a name")
        self.counts[result] += 1
        previous = self._results.get(test)
        self._results[test] = min(result, previous, key=SEVERITY_ORDER.index) if previous else result
        if len(self._results) > MAX_TESTS:
            raise InvalidReport(f"the test report contains more than {MAX_TESTS} tests")
        if message and result in ("failed", "error"):
            self._messages[test] = (self._messages.get(test, "") + message.strip() + "\n")[-MAX_MESSAGE:]

    def relative_path(self, path: str) -> str:
        """Returns the path relative to the suite's directory."""
        path = path.removeprefix("file://").removeprefix(self._root)
        return str(PurePosixPath(path)) if path else ""

    def test_id(self, path: str, name: str) -> str:
        """Returns the id of a test in a file."""
        path = self.relative_path(path)
        return f"{path}{ID_SEPARATOR}{name}" if path else name

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def check_totals(self, claimed: Mapping[str, int | None], actual: Mapping[str, int]) -> None:
        """Raises InvalidReport if a total that the runner claims differs from the number of tests. Totals
        that are None are ignored.
        """
        for name, number in actual.items():
            if claimed.get(name) not in (None, number):
                raise InvalidReport(f"the test report claims {claimed[name]} {name}, but contains {number}")

    def build(self, output: str | None = None) -> RunnerReport:
        return RunnerReport(results=self._results, messages=self._messages, output=output)
