"""Builds a report from single results. Applies limits, builds test ids, and checks the totals that a runner
claims.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

from patchwright.resolver.run_results import RunnerOutcome, TestStatus
from patchwright.resolver.suites.reports.runner_report import (
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
        self._outcomes: dict[str, RunnerOutcome] = {}
        self._retries: dict[str, int] = {}
        self._unfinished_files: dict[str, None] = {}
        self.counts = dict[TestStatus, int](passed=0, failed=0, error=0, skipped=0)

    def add(
        self,
        test: str,
        result: TestStatus,
        message: str = "",
        outcome: RunnerOutcome | None = None,
        retries: int = 0,
    ) -> None:
        """Adds the outcome of a test. If a test has several outcomes, the most severe one is kept. Raises
        InvalidReport if there are more than MAX_TESTS tests.

        `outcome` is the runner's own name for the result, if it is more specific.
        """
        test = test.strip()[:MAX_ID]
        if not test:
            raise InvalidReport("the test report has a test without a name")
        self.counts[result] += 1
        previous = self._results.get(test)
        if previous is None or SEVERITY_ORDER.index(result) < SEVERITY_ORDER.index(previous):
            self._results[test] = result
            self._outcomes.pop(test, None)
            if outcome is not None:
                self._outcomes[test] = outcome
        if retries > 0:
            self._retries[test] = self._retries.get(test, 0) + retries
        if len(self._results) > MAX_TESTS:
            raise InvalidReport(f"the test report contains more than {MAX_TESTS} tests")
        if message and result in ("failed", "error"):
            self._messages[test] = (self._messages.get(test, "") + message.strip() + "\n")[-MAX_MESSAGE:]

    def add_unfinished_file(self, path: str, message: str = "") -> None:
        """Adds a test file whose process ended before its last test."""
        file = self.relative_path(path)
        self.add(file, "error", message)
        self._unfinished_files[file] = None

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
        return RunnerReport(
            results=self._results,
            messages=self._messages,
            outcomes=self._outcomes,
            retries=self._retries,
            unfinished_files=tuple(self._unfinished_files),
            output=output,
        )
