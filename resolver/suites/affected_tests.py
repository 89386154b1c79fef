"""Selects the tests that a change may affect, so that these tests run first. The module only compares names
and executes nothing.
"""

import re
from pathlib import PurePosixPath

from patchwright.resolver.git.git_process import GitFailed, run_git
from patchwright.resolver.git.workspaces import FileChange, Workspace
from patchwright.resolver.suites.suite import Suite

MAX_TEST_FILES = 40  # maximum number of test files that run first
MAX_SHARE = 0.5  # maximum share of all test files; if more are affected, no tests run first
COMMON_STEMS = frozenset(
    {"__init__", "__main__", "index", "main", "mod", "lib", "utils", "util", "helpers", "types"}
)
"""Common file names (without suffix). Tests seldom import a file by such a name. The name of the file's
directory is therefore looked up in the tests instead.
"""


async def find_affected_tests(
    workspace: Workspace, code_changes: tuple[FileChange, ...], patch_tests: frozenset[str], suite: Suite
) -> tuple[str, ...]:
    """Returns the test files at the base commit that the change may affect, the most likely first. Returns no
    files if too many may be affected.

    `code_changes` are the changes outside the tests. `patch_tests` are the test files that the patch changes.
    """
    tests = set(filter(suite.runs_test_file, await workspace.list_files()))
    names = {name for change in code_changes for name in _import_names(change.path)}
    if not tests or not names:
        return ()
    by_name = {path for path in tests if _subject_stem(path) in names}
    ranked = [*sorted(patch_tests & tests), *sorted(by_name), *await find_mentions(workspace, tests, names)]
    if not ranked:
        directories = {PurePosixPath(change.path).parent for change in code_changes}
        ranked = sorted(path for path in tests if PurePosixPath(path).parent in directories)
    affected = tuple(dict.fromkeys(ranked))[:MAX_TEST_FILES]
    return affected if len(affected) <= MAX_SHARE * len(tests) else ()


async def find_tests_using(
    workspace: Workspace, data: tuple[FileChange, ...], suite: Suite
) -> tuple[str, ...]:
    """Returns the test files at base that mention one of these data files."""
    if not suite.can_select_files:
        return ()
    tests = set(filter(suite.runs_test_file, await workspace.list_files()))
    names = {change.path.rpartition("/")[2].partition(".")[0] for change in data}
    return tuple(await find_mentions(workspace, tests, {name for name in names if len(name) > 1}))


async def find_mentions(workspace: Workspace, tests: set[str], names: set[str]) -> list[str]:
    """Returns the test files at the base commit that contain at least one of the names as a whole word. The
    result is sorted.
    """
    arguments = [argument for name in sorted(names)[:50] for argument in ("-e", name)]
    try:
        output = await run_git(
            *("grep", "-l", "-z", "-w", "-F", *arguments, workspace.base), git_dir=workspace.git_dir
        )
    except GitFailed:  # nothing was found, or the search timed out
        return []
    paths = (row.partition(":")[2] for row in output.decode(errors="backslashreplace").split("\0"))
    return sorted(tests.intersection(paths))


def _import_names(path: str) -> tuple[str, ...]:
    """Returns the names that a test would use to import or call the code in this file."""
    stem = PurePosixPath(path).name.partition(".")[0]
    if stem in COMMON_STEMS:
        stem = PurePosixPath(path).parent.name
    return (stem,) if len(stem) > 1 else ()


def _subject_stem(test: str) -> str:
    """Returns the name (without suffix) of the code file that a test file probably tests. For example,
    `test_parser.py` yields `parser`.
    """
    stem = PurePosixPath(test).name.partition(".")[0]
    return re.sub(r"^test_|^Test(?=[A-Z])|[_-](test|tests|spec)$|(?<=[a-z])(Tests?|IT)$", "", stem)
