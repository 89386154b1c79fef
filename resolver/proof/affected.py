"""The tests that a change may affect, so that they can be run first: by names alone, nothing is executed."""

import re
from pathlib import PurePosixPath

from resolver.git.plumbing import GitFailed, run_git
from resolver.proof.files import is_test_file
from resolver.suites.suite import Suite
from resolver.workspace import Change, Workspace

MOST = 40  # test files that are run first
SHARE = 0.5  # of all test files; more than that, and everything is run at once
COMMON = frozenset(
    {"__init__", "__main__", "index", "main", "mod", "lib", "utils", "util", "helpers", "types"}
)
"""Stems that say nothing about what a test imports; their directory's name is looked for instead."""


async def affected(
    workspace: Workspace, product: tuple[Change, ...], brought: frozenset[str], suite: Suite
) -> tuple[str, ...]:
    """Test files at base, the likeliest first; empty when there are too many, or none.

    `product` are the changes outside the tests, `brought` the test files that the patch touches.
    """
    tests = {path for path in await workspace.files() if is_test_file(path) and suite.is_over(path)}
    names = {name for change in product for name in _names(change.path)}
    if not tests or not names:
        return ()
    called = {path for path in tests if _subject(path) in names}
    ranked = [*sorted(brought & tests), *sorted(called), *await mentions(workspace, tests, names)]
    if not ranked:
        places = {PurePosixPath(change.path).parent for change in product}
        ranked = sorted(path for path in tests if PurePosixPath(path).parent in places)
    found = tuple(dict.fromkeys(ranked))[:MOST]
    return found if len(found) <= SHARE * len(tests) else ()


async def mentions(workspace: Workspace, tests: set[str], names: set[str]) -> list[str]:
    """Those of the test files at base in which one of the names stands as a word, sorted."""
    words = [argument for name in sorted(names)[:50] for argument in ("-e", name)]
    try:
        listed = await run_git(
            *("grep", "-l", "-z", "-w", "-F", *words, workspace.base), git_dir=workspace.git_dir
        )
    except GitFailed:  # nothing found, or a tree too large to be searched in time
        return []
    paths = (row.partition(":")[2] for row in listed.decode(errors="backslashreplace").split("\0"))
    return sorted(tests.intersection(paths))


def _names(path: str) -> tuple[str, ...]:
    """By which names a test would import or call what is in the file."""
    stem = PurePosixPath(path).name.partition(".")[0]
    if stem in COMMON:
        stem = PurePosixPath(path).parent.name
    return (stem,) if len(stem) > 1 else ()


def _subject(test: str) -> str:
    """What a test file is about, by its own name."""
    stem = PurePosixPath(test).name.partition(".")[0]
    return re.sub(r"^test_|^Test(?=[A-Z])|[_-](test|tests|spec)$|(?<=[a-z])(Tests?|IT)$", "", stem)
