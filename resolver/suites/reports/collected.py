"""What every reader of a report has in common: bounds, names, and the count of what was claimed."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

from resolver.domain import Result
from resolver.suites.testreport import MAX_ID, MAX_MESSAGE, MAX_TESTS, WORST, Report

SEPARATOR = "::"


class Unfit(Exception):
    """The report contradicts itself, or is beyond bounds; the message says how, as the end of a sentence."""


class Lenient(BaseModel):
    """A part of a report: what it has beyond what is read here does not matter."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Collected:
    """Results in the making. `root` is the directory, in the sandbox, in which the runner ran."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/") + "/"
        self._results: dict[str, Result] = {}
        self._messages: dict[str, str] = {}
        self.counts = dict[Result, int](passed=0, failed=0, error=0, skipped=0)

    def add(self, test: str, result: Result, message: str = "") -> None:
        """One outcome; the worst counts where a test has several. Raises Unfit beyond MAX_TESTS."""
        test = test.strip()[:MAX_ID]
        if not test:
            raise Unfit("the test report has a test without a name")
        self.counts[result] += 1
        before = self._results.get(test)
        self._results[test] = min(result, before, key=WORST.index) if before else result
        if len(self._results) > MAX_TESTS:
            raise Unfit(f"the test report holds more than {MAX_TESTS} tests")
        if message and result in ("failed", "error"):
            self._messages[test] = (self._messages.get(test, "") + message.strip() + "\n")[-MAX_MESSAGE:]

    def inside(self, path: str) -> str:
        """The path as the suite's directory has it."""
        path = path.removeprefix("file://").removeprefix(self._root)
        return str(PurePosixPath(path)) if path else ""

    def named(self, path: str, name: str) -> str:
        """The id of a test in a file."""
        path = self.inside(path)
        return f"{path}{SEPARATOR}{name}" if path else name

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def check(self, claimed: Mapping[str, int | None], found: Mapping[str, int]) -> None:
        """Raise Unfit when a total is not that of the tests; None: nothing was claimed."""
        for what, number in found.items():
            if claimed.get(what) not in (None, number):
                raise Unfit(f"the test report claims {claimed[what]} {what} and shows {number}")

    def report(self, output: str | None = None) -> Report:
        return Report(results=self._results, messages=self._messages, output=output)
