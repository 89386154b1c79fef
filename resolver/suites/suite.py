"""A test suite: a command, its directory, and the runner that reports each test."""

import re
import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath

from patchwright.resolver.runner_names import Language, RunnerName
from patchwright.resolver.suites.command_options import can_select_tests
from patchwright.resolver.suites.file_classifier import is_test_file
from patchwright.runtime.frozen_model import FrozenModel

# Test files that no runner for Python runs. pytest stops if it has to run a file that it cannot collect.
_OTHER_LANGUAGES = re.compile(r".*\.(?:cc?|cpp|go|h|java|m?js|rb|rs|sh|tsx?)")
_IGNORE_OPTION = re.compile(r"\s--ignore[=\s]\s*(\S+)")


class Suite(FrozenModel):
    """One way to test the repository, or a project in it."""

    command: str
    """Shell command that runs in `directory`."""
    runner: RunnerName
    """The runner that reports the outcomes."""
    command_reason: str
    """How this command was chosen, in one sentence for the log and the pull request."""
    directory: str = ""
    """Path of the suite's directory from the repository's root, such as `packages/a`. An empty string means
    the root. The ids of the suite's tests begin with this path.
    """
    suffixes: tuple[str, ...] = ()
    """Suffixes of the source files that these tests cover, such as `.py`. If there are no suffixes, the tests
    cover all files.
    """
    language: Language | None = None
    """Language of the tests; None if it is unknown."""

    @property
    def root_command(self) -> str:
        """The command as a person would enter it in the repository's root directory."""
        return command_from_root(self.directory, self.command)

    @property
    def can_select_tests(self) -> bool:
        """True if single tests or test files can be selected."""
        return can_select_tests(self.command, self.runner)

    @property
    def can_select_files(self) -> bool:
        """True if test files can be selected and each test id begins with its file."""
        return self.can_select_tests and self.runner not in ("go", "cargo", "maven")

    def to_local_id(self, test: str) -> str:
        """Converts a test id or file path to the form that the runner in `directory` uses."""
        return test.removeprefix(f"{self.directory}/") if self.directory else test

    def to_repository_id(self, test: str) -> str:
        """Makes one of the runner's test ids or file paths relative to the repository root."""
        return f"{self.directory}/{test}" if self.directory else test

    def contains_path(self, path: str) -> bool:
        """Returns True if the path is below the suite's directory."""
        return not self.directory or path.startswith(f"{self.directory}/")

    def is_test_file(self, path: str) -> bool:
        """Returns True if the file contains tests according to its path, or because the command names it."""
        can_name = self.runner in ("pytest", "unittest") and "doctest" not in self.command
        words = (
            re.split(r"[\s'\";&|]+(?:\./)?", self.command) if can_name and self.contains_path(path) else ()
        )
        return is_test_file(path) or (path.endswith(".py") and self.to_local_id(path) in words)

    def runs_test_file(self, path: str) -> bool:
        """Returns True if the suite's command may run this test file. pytest ignores a file that its option `--ignore`
        names, unless the command also names the file itself, as a restricted command does.
        """
        is_foreign = self.runner in ("pytest", "unittest") and _OTHER_LANGUAGES.fullmatch(path)
        if is_foreign or not self.contains_path(path) or not self.is_test_file(path):
            return False
        ignored = _IGNORE_OPTION.findall(self.command) if self.runner == "pytest" else []
        ignored_paths = [PurePosixPath(each.strip("'\"")) for each in ignored]
        return not any(PurePosixPath(self.to_local_id(path)).is_relative_to(each) for each in ignored_paths)


def command_from_root(directory: str, command: str) -> str:
    return f"cd {shlex.quote(directory)} && {command}" if directory else command


class Suites(FrozenModel):
    """All test suites that were found in a repository."""

    all: tuple[Suite, ...] = ()
    """All suites. The suites of the root directory come first."""
    primary: Suite | None = None
    """The suite that runs at the base commit while the agent works; None if there are no tests."""

    def select_for_paths(self, changed: Iterable[str]) -> tuple[Suite, ...]:
        """Returns the suites nearest to these files, in the same order as in the field `all`. If there are no
        files, returns the primary suite.
        """
        nearest = [self._nearest_suite(path) for path in changed] or [self.primary]
        return tuple(suite for suite in self.all if suite in nearest)

    def _nearest_suite(self, path: str) -> Suite | None:
        containing = [suite for suite in self.all if suite.contains_path(path)]
        if not containing:
            return self.primary
        nearest = max(len(suite.directory) for suite in containing)
        containing = [suite for suite in containing if len(suite.directory) == nearest]
        suffix = PurePosixPath(path).suffix
        matching = [suite for suite in containing if suffix in suite.suffixes or not suite.suffixes]
        candidates = matching or containing
        return self.primary if self.primary in candidates else candidates[0]
