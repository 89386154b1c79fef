"""The test runs of one suite that a verdict is based on."""

from dataclasses import dataclass

from patchwright.resolver.domain import TestRun
from patchwright.resolver.proof.run_comparison import get_test_file


@dataclass(frozen=True)
class PatchTests:
    """Runs of the tests that a patch changes or adds. These runs use the patch's version of the tests."""

    files: frozenset[str]
    """Test files that the patch changes, adds or deletes."""
    files_only: bool
    """True if only `files` were run; False if all tests were run."""
    after: TestRun
    """The run with the whole patch, except its changes to the test configuration."""
    after_rerun: TestRun | None = None
    """A second run that includes at least the tests that failed in `after`; None if no test failed."""
    before: TestRun | None = None
    """The run on the code at base; None if it is not needed. Tests with errors are marked as skipped,
    except if the error shows that code from the patch is missing at base.
    """
    before_rerun: TestRun | None = None
    """A second run at base. It includes at least the tests that failed at base and pass with the patch. None
    if there are no such tests.
    """

    renumbered: frozenset[str] = frozenset()
    """Tests of the base version that have another id in `after`, because the patch adds parameters."""

    def covers(self, test: str) -> bool:
        """Returns True if the test was selected for these runs, even if the test no longer exists."""
        return not self.files_only or get_test_file(test) in self.files


@dataclass(frozen=True)
class Evidence:
    """The test runs that the verdict on one suite is based on."""

    before: TestRun
    """The run of the repository's own tests at base."""
    after: TestRun
    """The run of the repository's own tests on the patch's code. It uses the base version of these tests."""
    before_rerun: TestRun | None = None
    """A second run at base. It includes the tests that pass only at base, and at most MAX_CONFIRMED tests
    that pass only with the patch. None if no result differs or if a second run is impossible.
    """
    after_rerun: TestRun | None = None
    """A second run with the patch. It includes the tests of `before_rerun`, or all tests if single tests
    cannot be selected.
    """
    full_patch: TestRun | None = None
    """The run with the whole patch, including its tests and test configuration. It includes at least the
    tests that passed in `before` and fail in `after`. None if this run is not needed, for example because the
    patch changes only code.
    """
    patch_tests: PatchTests | None = None
    changes_code: bool = True
    """True if the patch changes more than tests and their configuration."""
    partial: bool = False
    """True if only the tests that the patch may affect were run."""

    def reruns_of(self, tests: tuple[str, ...]) -> tuple[TestRun, TestRun] | None:
        """Returns the second runs at base and with the patch. Returns None if one of them lacks a result of these
        tests.
        """
        before, after = self.before_rerun, self.after_rerun
        if before is None or after is None or before.problem or after.problem:
            return None
        return (before, after) if before.results.keys() & after.results.keys() >= {*tests} else None


@dataclass(frozen=True)
class TestEdits:
    """Changes of a patch to tests and to what they need, according to its diff."""

    __test__ = False  # Tells pytest that this is no test class.

    weakened_tests: tuple[str, ...] = ()
    deleted_test_files: tuple[str, ...] = ()
    reverted_test_config: tuple[str, ...] = ()
    added_packages: tuple[str, ...] = ()


NO_TEST_EDITS = TestEdits()
