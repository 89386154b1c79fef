"""Tests of ours among those that a patch brings: one must be seen to pass and one to fail, else the report lies.

Whoever ends the process early with a report of his own, or makes everything pass, does not know their names or
turns the one that fails. Whoever changes the outcome of his own test alone is not found out: docs/security.md.
"""

import re
import secrets
from pathlib import PurePosixPath
from typing import Self

from resolver.domain import Patch, Result, SuiteRun
from runtime.frozen import Frozen

_TEXT = """\
def test_{good}():
    assert True


def test_{bad}():
    assert False, "this test of Patchwright's is there to fail"
"""
_NEW_FILE = """\
diff --git a/{path} b/{path}
new file mode 100644
--- /dev/null
+++ b/{path}
@@ -0,0 +1,{lines} @@
{text}"""
# pytest's last line, such as `=== 1 failed, 2 passed in 0.03s ===`; without the signs when it is told to be quiet.
_SUMMARY = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s\b.*$", re.MULTILINE)


class Canary(Frozen):
    """A file of two tests, under names that nobody can know beforehand."""

    path: str
    good: str
    bad: str

    @classmethod
    def beside(cls, test: str) -> Self:
        """One in the directory of a test file, so that it is run as that one is."""
        mark, good, bad = (secrets.token_hex(8) for _ in range(3))
        return cls(path=str(PurePosixPath(test).with_name(f"test_{mark}.py")), good=good, bad=bad)

    def added_to(self, patch: Patch) -> Patch:
        text = _TEXT.format(good=self.good, bad=self.bad)
        lines = text.splitlines(keepends=True)
        diff = _NEW_FILE.format(path=self.path, lines=len(lines), text="".join(f"+{line}" for line in lines))
        before = patch.diff if not patch.diff or patch.diff.endswith(b"\n") else patch.diff + b"\n"
        return patch.model_copy(update={"diff": before + diff.encode()})

    def checked(self, run: SuiteRun) -> SuiteRun:
        """The run without the canary; one that does not tell the truth about it has a problem and no results."""
        if run.problem:
            return run
        expected: dict[str, Result] = {
            f"{self.path}::test_{self.good}": "passed",
            f"{self.path}::test_{self.bad}": "failed",
        }
        results = {test: result for test, result in run.results.items() if test not in expected}
        if any(run.results.get(test) != result for test, result in expected.items()):
            problem = "the report does not tell the truth about two tests that were put beside them"
            return run.model_copy(update={"results": {}, "problem": problem})
        failed = sum(result == "failed" for result in run.results.values())
        if (printed := _printed_failures(run.output)) is not None and printed != failed:
            problem = f"the report shows {failed} failures and the runner printed {printed}"
            return run.model_copy(update={"results": {}, "problem": problem})
        return run.model_copy(update={"results": results})


def _printed_failures(output: str) -> int | None:
    """How many tests failed by what pytest printed last; None: it printed no such line."""
    if not (lines := _SUMMARY.findall(output)):
        return None
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", lines[-1])}
    return counts.get("failed", 0)
