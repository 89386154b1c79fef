"""The results of a test run: an outcome for each test, and counts in the words of the test runner."""

from collections import Counter
from typing import ClassVar, Literal

from pydantic import Field

from patchwright.runtime.frozen_model import FrozenModel

TestStatus = Literal["passed", "failed", "error", "skipped"]
RunnerOutcome = Literal[
    "error", "unexpected success", "xpassed", "xfailed", "expected failure", "todo", "pending"
]
"""Outcomes for which test runners have their own name. `TestStatus` has no such value."""
_OUTCOME_ORDER: tuple[TestStatus | RunnerOutcome, ...] = (
    "failed",
    "error",
    "unexpected success",
    "passed",
    "xpassed",
    "xfailed",
    "expected failure",
    "skipped",
    "todo",
    "pending",
)


class TestRun(FrozenModel):
    """The results of one run of a test command."""

    __test__: ClassVar[bool] = False  # Tells pytest that this is not a test class.

    command: str
    """The command as a person would enter it in the repository's root directory."""
    command_reason: str = ""
    """Why this command was chosen, in one sentence; empty in logs of older versions."""
    results: dict[str, TestStatus]
    """Result of each test by test id. If the runner writes no report, it is empty and only `exit_code` counts."""
    outcomes: dict[str, RunnerOutcome] = Field(default_factory=dict)
    """The runner's own name for a result, by test id, if it is more specific. For example, `results` contains
    `skipped` for an expected failure, and pytest calls it `xfailed`.
    """
    retries: dict[str, int] = Field(default_factory=dict)
    """How often the runner repeated a test, by test id. Tests that ran once are left out."""
    exit_code: int | None
    """The exit code of the command; None if the command was killed at its time limit."""
    seconds: float
    output: str
    """End of the output, truncated and with secrets masked."""
    flaky: tuple[str, ...] = ()
    """Tests that failed and then passed on the same code. Their results do not count."""
    ignored_options: tuple[str, ...] = ()
    """Options of the runner that were left out, because the plugins that define them are not installed."""
    problem: str | None = None
    """Why there is no result, such as a missing runner or an unreadable report; None if there is a result."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of tests for each outcome, as the runner names it. The worst outcome comes first."""
        counts = Counter(self.outcomes.get(test, result) for test, result in self.results.items())
        return {outcome: counts[outcome] for outcome in _OUTCOME_ORDER if counts[outcome]}

    @property
    def retry_count(self) -> int:
        """How often the runner repeated a test, in total."""
        return sum(number for test, number in self.retries.items() if test in self.results)

    @property
    def has_run_tests(self) -> bool:
        """True if at least one test ran. False if the command reports no tests, or could not load their files."""
        return any(result != "error" or "::" in test for test, result in self.results.items())

    @property
    def unexplained_exit_code(self) -> int | None:
        """The exit code if the command failed although no test failed, for example because of a coverage limit.
        None in all other cases.
        """
        has_explanation = self.problem or not self.results or self.failed_tests
        return None if has_explanation or not self.exit_code else self.exit_code

    @property
    def passed_count(self) -> int:
        return sum(result == "passed" for result in self.results.values())

    @property
    def failed_count(self) -> int:
        return len(self.failed_tests)

    @property
    def failed_tests(self) -> tuple[str, ...]:
        """Names of the tests that failed."""
        return tuple(test for test, result in self.results.items() if result in ("failed", "error"))
