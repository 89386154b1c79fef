"""Adds two canary tests to a patch's tests. One must pass, and the other must fail. If the
test report says anything else, it is forged.

Code that ends the test process early and writes its own report does not know the names of the canaries. Code
that makes every test pass also makes the failing canary pass. A test whose code changes only its own outcome
is not detected; see docs/security.md.
"""

import re
import secrets
from pathlib import PurePosixPath
from typing import Self

from patchwright.resolver.domain import Patch, TestRun, TestStatus
from patchwright.resolver.git.new_file import add_file
from patchwright.runtime.frozen_model import FrozenModel

_TEST_SOURCE = """\
def test_{good}():
    assert True


def test_{bad}():
    assert False, "this canary test of Patchwright fails on purpose"
"""
# Matches the last line of pytest's output, such as `=== 1 failed, 2 passed in 0.03s ===`. With the option
# `-q`, pytest omits the equals signs.
_SUMMARY_LINE = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s\b.*$", re.MULTILINE)


class Canary(FrozenModel):
    """A test file with two canary tests. Their names are random, so that untrusted code cannot know them in
    advance.
    """

    path: str
    passing_name: str
    failing_name: str

    @classmethod
    def create_for(cls, test: str) -> Self:
        """Creates a canary in the directory of a test file, so that the canary runs in the same way as that
        file.
        """
        token, passing_name, failing_name = (secrets.token_hex(8) for _ in range(3))
        return cls(
            path=str(PurePosixPath(test).with_name(f"test_{token}.py")),
            passing_name=passing_name,
            failing_name=failing_name,
        )

    def add_to(self, patch: Patch) -> Patch:
        text = _TEST_SOURCE.format(good=self.passing_name, bad=self.failing_name)
        return add_file(patch, self.path, text)

    def check_run(self, run: TestRun) -> TestRun:
        """Returns the run without the results of the canary tests.

        If a canary test had an unexpected result, the returned run has no results, and `problem` says why.
        """
        if run.problem:
            return run
        expected: dict[str, TestStatus] = {
            f"{self.path}::test_{self.passing_name}": "passed",
            f"{self.path}::test_{self.failing_name}": "failed",
        }
        results = {test: result for test, result in run.results.items() if test not in expected}
        if any(run.results.get(test) != result for test, result in expected.items()):
            problem = "the report is wrong about the two canary tests that were added"
            return run.model_copy(update={"results": {}, "problem": problem})
        failed = sum(result == "failed" for result in run.results.values())
        if (printed := _count_printed_failures(run.output)) is not None and printed != failed:
            problem = f"the report shows {failed} failures, but the runner printed {printed}"
            return run.model_copy(update={"results": {}, "problem": problem})
        return run.model_copy(update={"results": results})


def _count_printed_failures(output: str) -> int | None:
    """Returns the number of failures in pytest's printed summary, or None if there is no summary."""
    if not (lines := _SUMMARY_LINE.findall(output)):
        return None
    counts = {outcome: int(number) for number, outcome in re.findall(r"(\d+) (\w+)", lines[-1])}
    return counts.get("failed", 0)
