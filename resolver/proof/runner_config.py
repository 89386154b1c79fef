"""Finds the files of a patch that decide how tests run. Verification uses the base commit's version of these
files.

Some of these files also contain other data, such as a project's version or its dependencies. If the patch
changes only such data in a file, verification uses the patch's version of the file.
"""

import configparser
import posixpath
import re
import tomllib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import ABSENT, SYMLINK, FileChange, Workspace
from patchwright.resolver.proof.python_modules import find_plugin_modules, get_module_path
from patchwright.resolver.proof.started_files import find_started_files
from patchwright.resolver.suites.file_classifier import RUNNER_PACKAGES, is_runner_config, is_shadowing_runner
from patchwright.resolver.suites.project_dir import parse_json_or_empty
from patchwright.resolver.suites.suite import Suite

MAX_MANIFEST_BYTES = 1_000_000  # maximum bytes of a manifest that is parsed
MAX_LINK_BYTES = 4096
_ANY_PATH = re.compile(r".*", re.DOTALL)

# pytest ends a line at these characters, and configparser does not.
_UNUSUAL_LINE_ENDS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# The parts of these files that describe the product and do not affect how tests run.
_PYPROJECT_PRODUCT_KEYS = frozenset({"project", "build-system", "dependency-groups"})
_SETUP_CFG_PRODUCT_SECTIONS = re.compile(r"metadata|options(\..*)?|DEFAULT")
# The name is left out: Node.js imports a package from the repository if it has the repository's name.
_PACKAGE_JSON_PRODUCT_KEYS = frozenset(
    "version description keywords homepage bugs license author contributors funding files main module types "
    "typings browser bin man directories repository dependencies devDependencies peerDependencies "
    "peerDependenciesMeta optionalDependencies bundleDependencies engines os cpu private publishConfig sideEffects "
    "exports packageManager".split()
)


async def find_reverted_test_config(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...], suites: tuple[Suite, ...]
) -> frozenset[str]:
    """Returns the paths of the patch's files that verification replaces with the base commit's version.
    Raises WorkspaceError.
    """
    started = await find_started_files(workspace, suites, frozenset(change.path for change in changes))
    existing = await workspace.list_files()
    paths = set[str]()
    for suite in suites:
        paths |= await find_plugin_modules(workspace, frozenset(change.path for change in changes), suite)
    for change in changes:
        is_test_config = change.path in started or (
            change.old_mode == ABSENT and _is_shadowing(change, suites, existing)
        )
        if not is_test_config and is_runner_config(change.path):
            is_test_config = not await _is_product_only_change(workspace, patch, change)
        if is_test_config:
            paths.add(change.path)
    paths |= await find_link_targets(
        workspace, changes, lambda link: is_runner_config(PurePosixPath(link).name)
    )
    return frozenset(paths)


async def find_link_targets(
    workspace: Workspace, changes: tuple[FileChange, ...], is_wanted: Callable[[str], bool]
) -> frozenset[str]:
    """Returns the changed paths that are the target of a wanted link, or that are in a directory which is. `is_wanted`
    gets the path of a link.
    """
    links = [entry for entry in await workspace.find_entries(_ANY_PATH) if entry.mode == SYMLINK]
    wanted = [link for link in links if is_wanted(link.path)]
    contents = await workspace.read_blobs([link.id for link in wanted], MAX_LINK_BYTES)
    targets = set[str]()
    for link in wanted:
        if isinstance(content := contents[link.id], bytes):
            place = posixpath.join(posixpath.dirname(link.path), content.decode(errors="replace"))
            targets.add(posixpath.normpath(place))
    return frozenset(
        change.path
        for change in changes
        if any(change.path == target or change.path.startswith(f"{target}/") for target in targets)
    )


def _is_shadowing(change: FileChange, suites: tuple[Suite, ...], existing: tuple[str, ...]) -> bool:
    """Returns True if a new file would replace a part of the test runner. The product may itself be such a part, if
    the base commit contains other files of it.
    """
    if package := RUNNER_PACKAGES.match(change.path):
        return not any(path.startswith(f"{package[0]}/") for path in existing)
    path = get_module_path(change)
    return any(
        is_shadowing_runner(path, directory) for directory in ("", *(suite.directory for suite in suites))
    )


async def _is_product_only_change(workspace: Workspace, patch: Patch, change: FileChange) -> bool:
    """Returns True if a manifest changed only in parts that do not affect how tests run."""
    name = PurePosixPath(change.path).name
    if (
        name not in _TEST_CONFIG_READERS
        or change.size > MAX_MANIFEST_BYTES
        or change.old_mode == ABSENT
        or change.mode == ABSENT
    ):
        return False
    old = await workspace.read(change.path, MAX_MANIFEST_BYTES)
    new = await workspace.read_patched(patch, change.path)
    if old is None or new is None:
        return False
    before, after = _TEST_CONFIG_READERS[name](old), _TEST_CONFIG_READERS[name](new.decode(errors="replace"))
    return before is not None and before == after


def _pyproject_test_config(text: str) -> dict[str, Any] | None:
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return {key: value for key, value in tables.items() if key not in _PYPROJECT_PRODUCT_KEYS}


def _setup_cfg_test_config(text: str) -> dict[str, Any] | None:
    if _UNUSUAL_LINE_ENDS.search(text):
        return None
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    return {
        name: dict(parser[name])
        for name in parser.sections()
        if not _SETUP_CFG_PRODUCT_SECTIONS.fullmatch(name)
    }


def _package_json_test_config(text: str) -> dict[str, Any] | None:
    package = parse_json_or_empty(text)
    return (
        {key: value for key, value in package.items() if key not in _PACKAGE_JSON_PRODUCT_KEYS}
        if package
        else None
    )


_TEST_CONFIG_READERS = {
    "pyproject.toml": _pyproject_test_config,
    "setup.cfg": _setup_cfg_test_config,
    "package.json": _package_json_test_config,
}
"""Functions that extract the test configuration from a manifest, by the manifest's file name. They return
None if the manifest is invalid.
"""
