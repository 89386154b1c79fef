"""A way to test a repository: the command, and where the outcomes of its single tests come from."""

import re
from typing import Literal

from runtime.frozen import Frozen

REPORT = "PATCHWRIGHT_REPORT"
"""Variable that names the file where a test command may leave a JUnit XML report."""

SIMPLE = re.compile(r"[^;&|<>()$`\n#]*\bpytest\b[^;&|<>()$`\n#]*")


class Suite(Frozen):
    """How the repository is tested."""

    command: str
    """Shell command, run at the repository root."""
    report: Literal["pytest", "junit", "none"]
    """Where outcomes per test come from: pytest's JUnit report, one that the command writes to
    `$PATCHWRIGHT_REPORT`, or nowhere, so that the exit code alone speaks."""
    why: str
    """One sentence for the log and the pull request: how this command was chosen."""

    @property
    def selects(self) -> bool:
        """Whether single tests can be named at the end of the command."""
        return self.report == "pytest" and SIMPLE.fullmatch(self.command) is not None
