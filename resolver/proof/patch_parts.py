"""Splits a patch into its code and its tests."""

from dataclasses import dataclass

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import FileChange, Workspace
from patchwright.resolver.suites.file_classifier import is_runner_config, is_test_related


@dataclass(frozen=True)
class PatchParts:
    """The parts of a patch, split so that its code and its tests can run separately."""

    code_only: Patch
    """The patch without its changes to tests and test configuration."""
    with_tests: Patch
    """The patch with its changes to tests, but without its changes to the test configuration."""
    tests_only: Patch
    """Only the patch's tests and the data that they use."""
    code_changes: tuple[FileChange, ...]
    """The changes in `code_only`."""
    test_changes: tuple[FileChange, ...]
    """The changes in `tests_only`."""


async def split_patch(
    workspace: Workspace,
    patch: Patch,
    changes: tuple[FileChange, ...],
    excluded: frozenset[str],
    helpers: frozenset[str],
) -> PatchParts:
    """Splits the patch. The parts lack the paths in `excluded`. The paths in `helpers` belong to its tests."""
    rest = tuple(change for change in changes if change.path not in excluded)
    # A package manifest in `rest` counts as product code, because its change does not affect how tests run.
    tests = tuple(
        change
        for change in rest
        if change.path in helpers or (is_test_related(change.path) and not is_runner_config(change.path))
    )
    test_paths = frozenset(change.path for change in tests)
    code_changes = tuple(change for change in rest if change.path not in test_paths)
    code_paths = frozenset(change.path for change in code_changes)

    async def without(paths: frozenset[str]) -> Patch:
        return await workspace.revert_paths(patch, paths) if paths else patch

    return PatchParts(
        code_only=await without(excluded | test_paths),
        with_tests=await without(excluded),
        tests_only=await without(excluded | code_paths),
        code_changes=code_changes,
        test_changes=tests,
    )
