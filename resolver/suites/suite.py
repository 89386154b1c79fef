"""A way to test a repository: the command, where it is run, and where the outcomes of its single tests come from."""

import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath

from resolver.suites.command import selects
from resolver.suites.kind import Kind, Language
from runtime.frozen import Frozen


class Suite(Frozen):
    """One way to test the repository, or a part of it."""

    command: str
    """Shell command, run in `directory`."""
    report: Kind
    """The runner that gives the outcomes."""
    why: str
    """One sentence for the log and the pull request: how this command was chosen."""
    directory: str = ""
    """Below the repository's root, such as `packages/a`; its tests' ids begin with it. Empty: the root."""
    suffixes: tuple[str, ...] = ()
    """The names' endings of the files that these tests are about, such as `.py`. Empty: all."""
    language: Language | None = None
    """None: nothing tells."""

    @property
    def typed(self) -> str:
        """The command as it is typed at the repository's root."""
        return at_root(self.directory, self.command)

    @property
    def selects(self) -> bool:
        """Whether single tests, or test files, can be named."""
        return selects(self.command, self.report)

    @property
    def selects_files(self) -> bool:
        """Whether test files can be named, and each test's id begins with its file."""
        return self.selects and self.report not in ("go", "cargo", "maven")

    def own(self, test: str) -> str:
        """The test's id, or its file's path, as the runner in `directory` knows it."""
        return test.removeprefix(f"{self.directory}/") if self.directory else test

    def shown(self, test: str) -> str:
        """The runner's id of a test, or path of its file, as the repository knows it."""
        return f"{self.directory}/{test}" if self.directory else test

    def is_over(self, path: str) -> bool:
        """Whether the path lies in the suite's part of the repository."""
        return not self.directory or path.startswith(f"{self.directory}/")


def at_root(directory: str, command: str) -> str:
    return f"cd {shlex.quote(directory)} && {command}" if directory else command


class Suites(Frozen):
    """Every way that was found to test a repository."""

    all: tuple[Suite, ...] = ()
    """The root's first."""
    likely: Suite | None = None
    """What is run at base while the agent works; None: there are no tests."""

    def of(self, changed: Iterable[str]) -> tuple[Suite, ...]:
        """The suites of the nearest manifests of these files, in order of `all`; the likely one where none is."""
        wanted = [self._of(path) for path in changed] or [self.likely]
        return tuple(suite for suite in self.all if suite in wanted)

    def _of(self, path: str) -> Suite | None:
        near = [suite for suite in self.all if suite.is_over(path)]
        if not near:
            return self.likely
        nearest = max(len(suite.directory) for suite in near)
        near = [suite for suite in near if len(suite.directory) == nearest]
        suffix = PurePosixPath(path).suffix
        speaking = [suite for suite in near if suffix in suite.suffixes or not suite.suffixes]
        candidates = speaking or near
        return self.likely if self.likely in candidates else candidates[0]
