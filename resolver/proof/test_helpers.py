"""Finds changed files that belong to the tests although their paths do not say so, such as `testutils/checks.py` or
`fixtures/rates.json`.

Such a file was read during the run at the base commit, and no code of the product mentions it. A new top-level
module of the product can look the same. So a module counts only if it contains words of tests, or if the manifests
name other modules as the product.
"""

import re
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import NamedTuple

from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.proof.runner_config import find_link_targets
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import (
    TEST_DIRECTORIES,
    is_runner_config,
    is_test_file,
    is_test_related,
)
from patchwright.resolver.suites.suite import Suite

CODE_SUFFIXES = (".py", ".pyi", ".pyx", ".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx")
MANIFESTS = re.compile(r"(.*/)?(pyproject\.toml|setup\.(py|cfg)|package\.json)")
# Matches the parts of a manifest that configure tools or exclude files. A name in them is no part of the product.
TOOL_TABLES = re.compile(
    r"^\[[^\]\n]*(?:pytest|tox|testenv|coverage|mypy|ruff|flake8|isort|pylint)[^\n]*\n(?:(?!\[[A-Za-z]).*\n?)*"
    r"|\bexclude\s*=\s*[\[(][^\])]*",
    re.MULTILINE,
)
TEST_WORDS = re.compile(
    r"\b(assert\w*|AssertionError|pytest|unittest|mock\w*|hypothesis|doctest|fixtures?|chai|sinon|expect)\b"
)
LIBRARIES = re.compile(r"\b(pytest|unittest|hypothesis|doctest|chai|sinon)\b")
MAX_FILES_READ = 200
MAX_FILE_BYTES = 500_000


async def find_test_helpers(
    workspace: Workspace,
    changes: tuple[FileChange, ...],
    suites: tuple[Suite, ...],
    get_read_files: Callable[[Suite], Awaitable[frozenset[str]]],
) -> frozenset[str]:
    """Returns the changed paths that only the tests of these suites use.

    `get_read_files` returns the files that a suite's run at the base commit read, or no files if they are unknown. It
    is called only if the repository's texts do not show that all changed files are part of the product.
    """
    found = [await _find_suite_helpers(workspace, changes, suite, get_read_files) for suite in suites]
    linked = await find_link_targets(workspace, changes, _is_test_link)
    return frozenset[str]().union(linked, *found)


def _is_test_link(link: str) -> bool:
    return is_test_file(link) or PurePosixPath(link).name in TEST_DIRECTORIES


async def _find_suite_helpers(
    workspace: Workspace,
    changes: tuple[FileChange, ...],
    suite: Suite,
    get_read_files: Callable[[Suite], Awaitable[frozenset[str]]],
) -> frozenset[str]:
    is_new = {
        change.path: change.old_mode == ABSENT
        for change in changes
        if suite.contains_path(change.path)
        if not is_test_related(change.path) and not is_runner_config(change.path)
    }
    if not is_new:
        return frozenset()
    repository = _Repository(workspace, suite, await workspace.list_files())
    units = {repository.get_unit(path) for path in is_new}
    helpers = {unit for unit in units if await repository.is_test_helper(unit)}
    found = {path for path in is_new if repository.get_unit(path) in helpers}
    if not found:
        return frozenset()
    read_files = await get_read_files(suite)
    # A new file counts, too: a new `checks/__init__.py` would replace `checks.py`.
    return frozenset(path for path in found if is_new[path] or not read_files or path in read_files)


class _References(NamedTuple):
    """Where a unit is mentioned, outside of the unit itself."""

    in_tests: bool
    in_product: bool
    in_manifest: bool
    """True if a manifest names the unit, except in the configuration of tools."""


class _Repository:
    """The files of a repository at the base commit, grouped into units. A unit is a top-level module or directory."""

    def __init__(self, workspace: Workspace, suite: Suite, files: tuple[str, ...]) -> None:
        self._workspace = workspace
        self._suite = suite
        self._units: dict[str, set[str]] = {}
        for path in files:
            if suite.contains_path(path) and not is_test_related(path):
                self._units.setdefault(self.get_unit(path), set()).add(path)
        self._helpers: dict[str, bool] = {}
        """The units that have been classified. A unit counts as part of the product while it is being classified."""
        self._texts = {path for path in files if path.endswith(CODE_SUFFIXES) or MANIFESTS.fullmatch(path)}

    def get_unit(self, path: str) -> str:
        """Returns the name of the top-level module or directory that contains a file."""
        local = PurePosixPath(self._suite.to_local_id(path))
        return local.stem if len(local.parts) == 1 and path.endswith(CODE_SUFFIXES) else local.parts[0]

    async def is_test_helper(self, unit: str) -> bool:
        """Returns True if tests mention the unit, the product does not, and it looks like a part of the tests."""
        if unit not in self._helpers:
            self._helpers[unit] = False
            self._helpers[unit] = await self._looks_like_helper(unit)
        return self._helpers[unit]

    async def _looks_like_helper(self, unit: str) -> bool:
        members = self._units.get(unit, set())
        if unit in ("src", "lib") or not members:
            return False
        references = await self._find_references(unit)
        if not references.in_tests or references.in_product or references.in_manifest:
            return False
        if not _contains_code(members):
            return True
        own_texts = [await self._read(path) for path in sorted(members & self._texts)[:MAX_FILES_READ]]
        if any(re.search(r"^if __name__ == ", text, re.MULTILINE) for text in own_texts):
            return False
        others = [name for name, paths in self._units.items() if name != unit and _contains_code(paths)]
        for other in others[:MAX_FILES_READ]:
            # Something has to be the product: another module that the tests use.
            used = await self._find_references(other)
            if used.in_tests and (used.in_manifest or any(map(TEST_WORDS.search, own_texts))):
                return True
        return False

    async def _find_references(self, unit: str) -> _References:
        in_tests = in_product = in_manifest = False
        for path, text in (await self._read_mentions(unit)).items():
            if MANIFESTS.fullmatch(path):
                product_text = TOOL_TABLES.sub("", text)
                is_named = re.search(rf"\b{re.escape(unit)}\b", product_text) is not None
                in_manifest |= is_named
                in_tests |= not is_named
            elif path not in self._units.get(unit, set()) and _is_reference(unit, text):
                is_test = is_test_related(path) or (
                    LIBRARIES.search(text) is not None and await self.is_test_helper(self.get_unit(path))
                )
                in_tests |= is_test
                in_product |= not is_test
        return _References(in_tests, in_product, in_manifest)

    async def _read_mentions(self, name: str) -> dict[str, str]:
        """Returns the code and manifests that contain a word, by path."""
        found = await find_mentions(self._workspace, self._texts, {name})
        return {path: await self._read(path) for path in found[:MAX_FILES_READ]}

    async def _read(self, path: str) -> str:
        return await self._workspace.read(path, MAX_FILE_BYTES) or ""


def _contains_code(paths: set[str]) -> bool:
    return any(path.endswith(CODE_SUFFIXES) for path in paths)


def _is_reference(unit: str, text: str) -> bool:
    """Returns True if code imports a unit, or names it at the start of a quoted path or module."""
    name = re.escape(unit)
    imported = (
        rf"^\s*(?:from\s+\.*|import\s+(?:[\w.]+\s*,\s*)*){name}\b"
        rf"|^\s*from\s+\.+\s+import\s[^#\n]*\b{name}\b"
    )
    return re.search(rf"{imported}|[\"'](?:\.{{0,2}}/)*{name}(?![\w-])", text, re.MULTILINE) is not None
