"""Adds two canary tests to a test run. One must pass, and the other must fail. If the
test report says anything else, it is forged.

Code that ends the test process early and writes its own report does not know the names of the canaries. Code
that makes every test pass also makes the failing canary pass, and so does code that replaces an assertion with
one that accepts everything. A test whose code changes only its own outcome is not detected; see docs/security.md.
"""

import re
import secrets
from pathlib import Path, PurePosixPath
from typing import Self

from patchwright.resolver.domain import Patch, TestRun, TestStatus
from patchwright.resolver.git.new_file import add_file
from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.missing_modules import find_missing_modules
from patchwright.runtime.frozen_model import FrozenModel

_CHECKS: dict[RunnerName, str] = {
    "pytest": "python_checks",
    "unittest": "python_checks",
    "mocha": "node_checks",
    "node": "node_checks",
    "jest": "expect_checks",
    "vitest": "expect_checks",
}
"""The checks that a runner's canary tests use. The runners of tap, tape and other languages are not supported."""
CANARY_SOURCES = {
    runner: "".join(
        (Path(__file__).with_name("canary_tests") / f"{name}.txt").read_text() for name in (checks, runner)
    )
    for runner, checks in _CHECKS.items()
}
"""The test files, by runner. `$good` is the test that must pass, and `$bad` the test that must fail."""
# The part of a JavaScript test file's name that makes a runner collect the file, such as `.test.js`
_SCRIPT_SUFFIX = re.compile(r"(?:[-_.](?:test|spec))?\.[cm]?[jt]sx?$")
# Matches the last line of pytest's output, such as `=== 1 failed, 2 passed in 0.03s ===`. With the option
# `-q`, pytest omits the equals signs.
_SUMMARY_LINE = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s\b.*$", re.MULTILINE)
# Matches a line that names a failed subtest, which pytest counts as a failure of its own.
_SUBTEST_LINE = re.compile(r"^SUBFAIL(?:ED)?\b", re.MULTILINE)


class Canary(FrozenModel):
    """A test file with two canary tests. Their names are random, so that untrusted code cannot know them in advance."""

    path: str
    text: str
    passing_test: str
    """Id of the test that must pass."""
    failing_test: str
    """Id of the test that must fail."""

    @classmethod
    def create_for(cls, file: str, runner: RunnerName) -> Self | None:
        """Creates a canary next to a test file, so that the canary runs in the same way as that file. Returns
        None if the runner does not support canaries.
        """
        token, good, bad = (secrets.token_hex(8) for _ in range(3))
        name = name_sibling(PurePosixPath(file).name, token)
        if runner not in CANARY_SOURCES or name is None:
            return None
        path = str(PurePosixPath(file).with_name(name))
        group = {"pytest": f"{path}::test_", "unittest": f"{path}::TestCanary::test_"}.get(
            runner, f"{path}::"
        )
        return cls(
            path=path,
            text=CANARY_SOURCES[runner].replace("$good", good).replace("$bad", bad),
            passing_test=f"{group}{good}",
            failing_test=f"{group}{bad}",
        )

    def add_to(self, patch: Patch) -> Patch:
        return add_file(patch, self.path, self.text)

    def check_run(self, run: TestRun) -> TestRun:
        """Returns the run without the results of the canary tests.

        If a canary test had an unexpected result, the returned run has no results, and `problem` says why.
        """
        if run.problem:
            return run
        expected: dict[str, TestStatus] = {self.passing_test: "passed", self.failing_test: "failed"}
        if any(run.results.get(test) != result for test, result in expected.items()):
            problem = "the report is wrong about the two canary tests that were added"
            modules = find_missing_modules(run.output)
            if modules and run.results.get(self.path) == "error":
                problem = (
                    f"test files cannot be loaded: {modules[-1].description} is not installed in the sandbox"
                )
            return run.model_copy(update={"results": {}, "problem": problem})
        failed = sum(result == "failed" for result in run.results.values())
        printed = _count_printed_failures(run.output)
        # Only the last summary counts, because the code under test can print such lines, too.
        failed_subtests = len(_SUBTEST_LINE.findall(run.output.rpartition("short test summary info")[2]))
        if printed is not None and not printed - failed_subtests <= failed <= printed:
            problem = f"the report shows {failed} failures, but the runner printed {printed}"
            return run.model_copy(update={"results": {}, "problem": problem})
        return self.remove_from(run)

    def remove_from(self, run: TestRun) -> TestRun:
        """Returns the run as it would be without the canary tests."""

        def is_own(test: str) -> bool:
            return test.partition("::")[0] == self.path

        results = {test: result for test, result in run.results.items() if not is_own(test)}
        outcomes = {test: outcome for test, outcome in run.outcomes.items() if not is_own(test)}
        has_failures = any(result in ("failed", "error") for result in results.values())
        exit_code = 0 if run.exit_code == 1 and results and not has_failures else run.exit_code
        output = self._remove_from_output(run.output)
        return run.model_copy(
            update={"results": results, "outcomes": outcomes, "exit_code": exit_code, "output": output}
        )

    def _remove_from_output(self, output: str) -> str:
        """Removes the two tests from what pytest prints, because they would confuse a reader."""
        name = re.escape(self.failing_test.rpartition("::")[2])
        flags = re.MULTILINE | re.DOTALL
        output = re.sub(rf"^_+ {name} _+\n.*?(?=^_+ .* _+$|^=+ )", "", output, flags=flags)
        output = re.sub(
            rf"^FAILED {re.escape(self.path)}\b.*?(?=^(?:FAILED|ERROR|SUBFAIL\w*) |^=+ |\Z)",
            "",
            output,
            flags=flags,
        )
        output = "".join(line for line in output.splitlines(keepends=True) if self.path not in line)
        output = re.sub(
            r"^=+ (?:FAILURES|short test summary info) =+\n(?==+ )", "", output, flags=re.MULTILINE
        )
        output = re.sub(
            r"(?<=^collected )\d+(?= items?)", lambda n: str(int(n[0]) - 2), output, flags=re.MULTILINE
        )
        return _SUMMARY_LINE.sub(
            lambda line: re.sub(r"(\d+) (failed|passed)(, )?", _take_one, line[0]), output
        )


def _take_one(count: re.Match[str]) -> str:
    """Reduces a count in pytest's summary by one, and removes it if nothing is left."""
    left = int(count[1]) - 1
    return f"{left} {count[2]}{count[3] or ''}" if left else ""


def name_sibling(name: str, token: str) -> str | None:
    """Returns a file name that a runner collects if it collects `name`, or None if the language has no canaries.
    Runners run the file last: some of them stop at the first failure, and tests before it may change the runner.
    """
    if name.endswith(".py"):
        return f"zz{token}_test.py" if name.endswith("_test.py") else f"test_zz{token}.py"
    if suffix := _SCRIPT_SUFFIX.search(name):
        prefix = "test-" if name.startswith("test-") else ""
        return f"{prefix}zz{token}{suffix[0]}"
    return None


def _count_printed_failures(output: str) -> int | None:
    """Returns the number of failures in pytest's printed summary, or None if there is no summary."""
    if not (lines := _SUMMARY_LINE.findall(output)):
        return None
    counts = {outcome: int(number) for number, outcome in re.findall(r"(\d+) (\w+)", lines[-1])}
    return counts.get("failed", 0)
