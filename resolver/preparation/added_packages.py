"""Installs the packages that a patch adds to the dependencies, for the test runs with the patch.

The setup installs what the base commit needs. A fix that needs another package could not be tested there. Only packages
that the same manifest does not name at the base commit are added, from the package index and without their install
scripts. Such a package can still affect the test runs, for example if it contains a plugin of pytest. So a person has
to agree to it: it is a condition of the verdict.

Many releases name the packages of their tests nowhere. So a known library for tests is added, too, if a test of the
patch imports it and no file of the base commit mentions it.
"""

import hashlib
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.repository import FileChange
from patchwright.resolver.git.workspaces import ABSENT, Workspace
from patchwright.resolver.preparation.install_steps import (
    PIP,
    REQUIREMENTS_FILES,
    InstallStep,
    Manifests,
    find_package_manager,
)
from patchwright.resolver.preparation.missing_packages import PACKAGE_BY_MODULE
from patchwright.resolver.preparation.repo_setup import MAX_MANIFEST_BYTES, RepoSetup, run_setup
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import is_test_related
from patchwright.resolver.suites.project_dir import get_table, parse_json_or_empty, parse_toml_or_empty
from patchwright.runtime.sandbox import Sandboxes

MAX_PACKAGES = 20  # packages that a patch may add
TIMEOUT = 300  # seconds
_NPM_TABLES = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_NPM_NAME = re.compile(r"(?:@[a-z\d][\w.-]*/)?[a-z\d][\w.-]*")
_NPM_RANGE = re.compile(r"[\w.^~<>=|* +-]+")  # no URL, path, or alias
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z\d][\w.-]*)\s*(?:\[[\w\s,.-]*\])?\s*(?:[<>=!~][\w\s.,*+!<>=~-]*)?(?:;.*)?"
)
TEST_LIBRARIES = frozenset(
    "freezegun hypothesis mock parameterized pretend requests_mock responses sybil testfixtures".split()
)
_IMPORTED = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
_ADD_COMMANDS = {
    "npm": "npm install --no-save --no-package-lock --no-audit --no-fund --ignore-scripts",
    "pnpm": "pnpm add --ignore-scripts",
    "yarn": "yarn add --ignore-scripts",
    "bun": "bun add --ignore-scripts",
}


class PatchedSandboxes(NamedTuple):
    """The sandboxes for the test runs with a patch."""

    sandboxes: Sandboxes
    added_packages: tuple[str, ...]
    """Names of the packages that the patch adds and that are installed in these sandboxes."""


async def install_added_packages(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...], sandboxes: Sandboxes, name: str
) -> PatchedSandboxes:
    """Returns sandboxes with the packages that the patch adds. Returns the sandboxes unchanged if it adds none, or if
    they cannot be installed. Raises WorkspaceError.
    """
    steps, packages = await find_added_packages(workspace, patch, changes)
    if not steps or len(packages) > MAX_PACKAGES:
        return PatchedSandboxes(sandboxes, ())
    key = hashlib.sha256("\0".join(step.command for step in steps).encode()).hexdigest()
    patched, prepared, _ = await run_setup(
        workspace,
        RepoSetup(steps=steps, key=key),
        sandboxes,
        name=f"{name}-packages",
        source=workspace.base,
        timeout=TIMEOUT,
    )
    is_installed = prepared.problem is None and not prepared.missing_programs
    return PatchedSandboxes(patched, packages) if is_installed else PatchedSandboxes(sandboxes, ())


async def find_added_packages(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...]
) -> tuple[tuple[InstallStep, ...], tuple[str, ...]]:
    """Returns the steps that install the packages that a patch adds, and the names of these packages."""
    steps: list[InstallStep] = []
    packages: list[str] = []
    for change in changes:
        if ABSENT in (change.mode, change.old_mode) or change.size > MAX_MANIFEST_BYTES:
            continue
        read = _READERS.get(posixpath.basename(change.path))
        if read is None and REQUIREMENTS_FILES.fullmatch(change.path):
            read = _read_requirements
        if read is None:
            continue
        old = read(await workspace.read(change.path, MAX_MANIFEST_BYTES) or "")
        new = read((await workspace.read_patched(patch, change.path) or b"").decode(errors="replace"))
        if added := {package: requirement for package, requirement in new.items() if package not in old}:
            steps.append(await _make_step(workspace, change.path, added))
            packages += added
    if libraries := await _find_test_libraries(workspace, patch, changes):
        steps.append(await _make_step(workspace, "", {name: name for name in libraries}))
        packages += [name for name in libraries if name not in packages]
    return tuple(steps), tuple(packages)


async def _find_test_libraries(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...]
) -> list[str]:
    """Returns the packages that only the patch's tests import."""
    names = set[str]()
    for change in changes:
        is_test = change.path.endswith(".py") and is_test_related(change.path)
        if is_test and change.size <= MAX_MANIFEST_BYTES:
            text = (await workspace.read_patched(patch, change.path) or b"").decode(errors="replace")
            names |= TEST_LIBRARIES.intersection(_IMPORTED.findall(text))
    files = set(await workspace.list_files()) if names else set()
    return [
        PACKAGE_BY_MODULE[name] for name in sorted(names) if not await find_mentions(workspace, files, {name})
    ]


async def _make_step(workspace: Workspace, manifest: str, added: dict[str, str]) -> InstallStep:
    if posixpath.basename(manifest) != "package.json":
        return InstallStep(
            command=f"{PIP} --only-binary :all: {shlex.join(added.values())}", program="python3"
        )
    directory = posixpath.dirname(manifest)
    files = frozenset(path for path in await workspace.list_files() if "/" not in path)
    package = parse_json_or_empty(await workspace.read("package.json", MAX_MANIFEST_BYTES))
    manager, _ = find_package_manager(Manifests(files=files, pyproject={}, package_json=package))
    command = f"{_ADD_COMMANDS[manager]} {shlex.join(added.values())}"
    return InstallStep(
        command=f"cd {shlex.quote(directory)} && {command}" if directory else command, program="npm"
    )


def _read_package_json(text: str) -> dict[str, str]:
    package = parse_json_or_empty(text)
    return {
        name: f"{name}@{version}"
        for table in _NPM_TABLES
        for name, version in get_table(package, table).items()
        if _NPM_NAME.fullmatch(name) and isinstance(version, str) and _NPM_RANGE.fullmatch(version)
    }


def _read_pyproject(text: str) -> dict[str, str]:
    tables = parse_toml_or_empty(text)
    project = get_table(tables, "project")
    groups = [project.get("dependencies"), *get_table(project, "optional-dependencies").values()]
    groups += get_table(tables, "dependency-groups").values()
    return _read_requirement_lines(
        line for group in groups if isinstance(group, list) for line in group if isinstance(line, str)
    )


def _read_requirements(text: str) -> dict[str, str]:
    return _read_requirement_lines(line.partition(" #")[0] for line in text.splitlines())


def _read_requirement_lines(lines: Iterable[str]) -> dict[str, str]:
    return dict(_iter_requirements(lines))


def _iter_requirements(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if match := _REQUIREMENT.fullmatch(line.strip()):
            yield re.sub(r"[-_.]+", "-", match["name"]).lower(), line.strip()


_READERS = {"package.json": _read_package_json, "pyproject.toml": _read_pyproject}
"""Functions that return the requirements in a manifest by package name, by the manifest's file name."""
