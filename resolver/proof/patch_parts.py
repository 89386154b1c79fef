"""Splits a patch, so that its code, its tests and its test configuration can run separately."""

from dataclasses import dataclass, replace

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import FileChange, Workspace
from patchwright.resolver.suites.file_classifier import SHADOWING_FILES, is_runner_config, is_test_related
from patchwright.resolver.suites.product_files import find_product_files


@dataclass(frozen=True)
class PatchParts:
    """The parts of a patch."""

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
    with_config: "PatchParts | None" = None
    """The same parts, in which the test configuration belongs to the tests. None if the patch does not change it, or
    replaces parts of a language or test runner.
    """


async def split_patch(
    workspace: Workspace,
    patch: Patch,
    changes: tuple[FileChange, ...],
    excluded: frozenset[str],
    helpers: frozenset[str],
) -> PatchParts:
    """Splits a patch. `excluded` are the paths of its test configuration, and `helpers` those that only tests use."""
    product = await find_product_files(workspace, changes)
    rest = tuple(change for change in changes if change.path not in excluded)
    # A package manifest in `rest` counts as product code, because its change does not affect how tests run.
    tests = tuple(
        change
        for change in rest
        if change.path in helpers
        or (is_test_related(change.path) and not is_runner_config(change.path) and change.path not in product)
    )
    test_paths = frozenset(change.path for change in tests)
    code_changes = tuple(change for change in rest if change.path not in test_paths)
    code_paths = frozenset(change.path for change in code_changes)

    async def without(paths: frozenset[str]) -> Patch:
        return await workspace.revert_paths(patch, paths) if paths else patch

    code_only = await without(excluded | test_paths)
    parts = PatchParts(
        code_only, await without(excluded), await without(excluded | code_paths), code_changes, tests
    )
    is_usual = all(is_runner_config(path) and not SHADOWING_FILES.search(path) for path in excluded)
    if not excluded or not is_usual:
        return parts
    with_config = PatchParts(code_only, patch, await without(code_paths), code_changes, tests)
    return replace(parts, with_config=with_config)
