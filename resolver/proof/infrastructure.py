"""Which files of a patch decide how tests run: the judging runs have the base's version of them.

A file that says other things as well (a project's version, its dependencies) is left as the patch has it when
only those other things changed.
"""

import configparser
import re
import tomllib
from pathlib import PurePosixPath
from typing import Any

from resolver.domain import Patch
from resolver.proof.files import comes_before_the_runner, decides_how_tests_run
from resolver.suites.part import as_json
from resolver.suites.suite import Suite
from resolver.workspace import ABSENT, Change, Workspace

LARGEST = 1_000_000  # bytes of a manifest that is looked into

# What these files say that is about the product, not about how it is tested.
_OF_PROJECT = frozenset({"project", "build-system", "dependency-groups"})
_OF_SETUP = re.compile(r"metadata|options(\..*)?|DEFAULT")
_OF_PACKAGE = frozenset(
    "name version description keywords homepage bugs license author contributors funding files main module types "
    "typings browser bin man directories repository dependencies devDependencies peerDependencies "
    "peerDependenciesMeta optionalDependencies bundleDependencies engines os cpu private publishConfig sideEffects "
    "exports packageManager".split()
)
# A program that is given a file of the repository, and a file that is run itself.
_RUN = re.compile(
    r"(?:^|[\s;&|(\"'@])(?:(?:node|bash|sh|dash|python3?|ruby|perl|tsx|ts-node|bun|deno run)(?:\s+-\S+)*\s+|(?=\./))"
    r"(?:\./)?(?P<path>[\w.-]+(?:/[\w.-]+)*)"
)


async def set_aside(
    workspace: Workspace, patch: Patch, changes: tuple[Change, ...], suites: tuple[Suite, ...]
) -> frozenset[str]:
    """The paths of the patch that are judged as they are at base. Raises WorkspaceError."""
    started = await _started_by(workspace, suites, changes)
    found = set[str]()
    for change in changes:
        decides = change.path in started or (change.old_mode == ABSENT and _intrudes(change.path, suites))
        if not decides and decides_how_tests_run(change.path):
            decides = not await _is_harmless(workspace, patch, change)
        if decides:
            found.add(change.path)
    return frozenset(found)


def _intrudes(path: str, suites: tuple[Suite, ...]) -> bool:
    return any(
        comes_before_the_runner(path, directory) for directory in ("", *(suite.directory for suite in suites))
    )


async def _started_by(
    workspace: Workspace, suites: tuple[Suite, ...], changes: tuple[Change, ...]
) -> frozenset[str]:
    """Files that a test command starts by their names, itself or through the `test` scripts of a package.json."""
    paths = {change.path for change in changes}
    found = set[str]()
    for suite in suites:
        directory = suite.directory
        package = await workspace.read(str(PurePosixPath(directory, "package.json")), LARGEST)
        for text in (suite.command, *_test_scripts(package)):
            named = {str(PurePosixPath(directory, match["path"])) for match in _RUN.finditer(text)}
            found |= named & paths
    return frozenset(found)


def _test_scripts(package: str | None) -> tuple[str, ...]:
    scripts = as_json(package).get("scripts")
    if not isinstance(scripts, dict):
        return ()
    return tuple(str(text) for name, text in scripts.items() if "test" in str(name))


async def _is_harmless(workspace: Workspace, patch: Patch, change: Change) -> bool:
    """Whether only the part of a manifest changed that does not say how tests run."""
    name = PurePosixPath(change.path).name
    if name not in _PARTS or change.size > LARGEST or change.old_mode == ABSENT or change.mode == ABSENT:
        return False
    old = await workspace.read(change.path, LARGEST)
    new = await workspace.content(patch, change.path)
    if old is None or new is None:
        return False
    before, after = _PARTS[name](old), _PARTS[name](new.decode(errors="replace"))
    return before is not None and before == after


def _of_pyproject(text: str) -> dict[str, Any] | None:
    try:
        read = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return {key: value for key, value in read.items() if key not in _OF_PROJECT}


def _of_setup_cfg(text: str) -> dict[str, Any] | None:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    return {name: dict(parser[name]) for name in parser.sections() if not _OF_SETUP.fullmatch(name)}


def _of_package(text: str) -> dict[str, Any] | None:
    read = as_json(text)
    return {key: value for key, value in read.items() if key not in _OF_PACKAGE} if read else None


_PARTS = {"pyproject.toml": _of_pyproject, "setup.cfg": _of_setup_cfg, "package.json": _of_package}
"""By the name of a manifest: what it says about tests; None when it cannot be read."""
