"""Finds changed files that are part of the product although a directory such as `test` or `spec` contains them.

Examples are `shop/test/client.py`, and a package that offers helpers for the tests of other projects. Such a file is
one that modules of the product import at the base commit, directly or through other files of its directory. The
search compares texts and executes nothing. Files that are named like tests are never found.
"""

import re
from pathlib import PurePosixPath

from patchwright.resolver.git.workspaces import FileChange, Workspace
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import (
    TEST_FILE_NAMES,
    is_runner_config,
    is_test_directory,
    is_test_related,
)

SUFFIXES = (".py", ".pyi", ".pyx", ".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".rb")
PROJECT_FILES = frozenset({"package.json", "pyproject.toml", "setup.py", "setup.cfg", "Gemfile", "Rakefile"})
MAX_FILES_READ = 100  # files of the product, and files of the directory, that are read
MAX_FILE_BYTES = 500_000
MAX_IMPORT = 1_000  # characters; without a limit, a generated file with very long lines would take too long


async def find_product_files(workspace: Workspace, changes: tuple[FileChange, ...]) -> frozenset[str]:
    """Returns the changed files in directories of tests that belong to the product. A new file belongs to the product
    if a file of its directory does, and if it replaces no other module.
    """
    candidates: dict[str, set[str]] = {}
    for change in changes:
        if _is_helper(change.path) and (directory := _find_test_directory(change.path)):
            candidates.setdefault(directory, set()).add(change.path)
    files = frozenset(await workspace.list_files() if candidates else ())
    found = set[str]()
    for directory, paths in candidates.items():
        imported = await _find_imported_files(workspace, files, directory)
        stems = {_get_stem(path) for path in files}
        found |= {path for path in paths if path in imported or (imported and _get_stem(path) not in stems)}
    return frozenset(found)


def _is_helper(path: str) -> bool:
    """Returns True if the file is code that only its directory makes a part of the tests."""
    is_named_test = TEST_FILE_NAMES.fullmatch(PurePosixPath(path).name) is not None
    return (
        path.endswith(SUFFIXES) and not is_named_test and not is_runner_config(path) and is_test_related(path)
    )


def _find_test_directory(path: str) -> str | None:
    """Returns the outermost directory of tests that contains the file, or None if it is at the root."""
    parts = PurePosixPath(path).parts[:-1]
    index = next((index for index, part in enumerate(parts) if is_test_directory(part)), 0)
    return "/".join(parts[: index + 1]) if index else None


async def _find_imported_files(workspace: Workspace, files: frozenset[str], directory: str) -> set[str]:
    """Returns the files of a directory that modules next to it import, and what these files import from there."""
    parent, _, name = directory.rpartition("/")
    if any(f"{parent}/{file}" in files for file in PROJECT_FILES):
        return set()  # The modules next to the tests may be scripts that run them.
    neighbors = {path for path in files if path.startswith(f"{parent}/") and path.endswith(SUFFIXES)}
    importers = {path for path in neighbors if not is_test_related(path)}
    helpers = {path for path in neighbors if path.startswith(f"{directory}/") and _is_helper(path)}
    queue = (await find_mentions(workspace, importers, {name}))[:MAX_FILES_READ]
    found = set[str]()
    while queue and len(found) < MAX_FILES_READ:
        importer = queue.pop()
        text = await workspace.read(importer, MAX_FILE_BYTES) or ""
        new = {path for path in helpers - found if _imports(text, path, directory, importer)}
        found |= new
        queue += new
    return found


def _imports(text: str, path: str, directory: str, importer: str) -> bool:
    """Returns True if the text of a module imports a file in the directory."""
    is_inside = importer.startswith(f"{directory}/")
    parts = _get_stem(path).removeprefix(directory.rpartition("/")[0]).strip("/").split("/")
    last = re.escape(parts[-1])
    package = re.escape(PurePosixPath(_get_stem(path)).parent.name)
    before = "[\"'./]" if importer.endswith(".rb") else "[./]"  # In Ruby, the path begins below `lib`.
    steps = "[./]".join(map(re.escape, parts))
    patterns = [
        rf"\b(?:import|from|require\w*|load)\b[^\n]{{0,{MAX_IMPORT}}}{before}{steps}(?!\w)",
        rf"\bfrom\s+(?:{r'[.]+|' * (is_inside or len(parts) == 1)}[\w.]*\b{package})\s+import\s"
        rf"(?:\s*\([^)]{{0,{MAX_IMPORT}}}|[^\n(]{{0,{MAX_IMPORT}}})\b{last}\b",
    ]
    if is_inside:
        patterns.append(rf"\bfrom\s+\.+(?:\w+\.)*{last}(?!\w)|[\"']\.{{1,2}}/(?:[\w.-]+/)*{last}(?!\w)")
    return any(re.search(pattern, text) for pattern in patterns)


def _get_stem(path: str) -> str:
    """Returns the path without the suffix, or that of the directory if it is the directory's own module."""
    stem = path.rpartition("/")[0] + "/" + PurePosixPath(path).name.partition(".")[0]
    return re.sub(r"/(?:__init__|index)$", "", stem)
