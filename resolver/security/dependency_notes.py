"""Names the dependencies that a patch adds, removes, or changes, so that a reviewer can check them."""

import asyncio
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import FileChange, Workspace
from patchwright.resolver.rendering.filters import inline_code, list_names
from patchwright.resolver.suites.project_dir import (
    get_table,
    parse_ini_or_empty,
    parse_json_or_empty,
    parse_toml_or_empty,
)

MAX_FILES = 20
MAX_FILE_BYTES = 1_000_000  # bytes per file
MAX_NAMES = 5  # maximum number of dependencies of one kind that a note names

_REQUIREMENTS_FILE = re.compile(r"(.*/)?([^/]*requirements[^/]*|requirements/[^/]+)\.(txt|in)")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?\s*(?P<version>[^;#]*)")
_GO_MODULE = re.compile(r"^\s*(?:require\s+)?([\w-]+\.[\w./~-]+)\s+(v\S+)", re.MULTILINE)
_GEM = re.compile(r"^\s*gem\s+['\"]([^'\"]+)['\"](?:\s*,\s*['\"]([^'\"]+)['\"])?", re.MULTILINE)
_NPM_REGISTRIES = ("registry.npmjs.org", "registry.yarnpkg.com")
_PACKAGE_JSON_KEYS = ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies")
_CARGO_KEYS = ("dependencies", "dev-dependencies", "build-dependencies")

Dependencies = Iterator[tuple[str, str]]
"""Names and versions of dependencies. A version is an empty string if none is named."""


async def find_dependency_notes(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...]
) -> dict[str, str]:
    """Returns one sentence for each manifest or lock file whose dependencies change, by path."""
    notes = {}
    for change in [change for change in changes if _find_reader(change.path)][:MAX_FILES]:
        if max(change.size, change.old_size) > MAX_FILE_BYTES:
            continue
        old = await workspace.read(change.path) or ""
        new = (await workspace.read_patched(patch, change.path) or b"").decode(errors="replace")
        # A lock file can take a second to parse.
        if note := await asyncio.to_thread(describe_dependency_changes, change.path, old, new):
            notes[change.path] = note
    return notes


def describe_dependency_changes(path: str, old: str, new: str) -> str:
    """Returns a sentence that names the dependencies that differ between two versions of a file, or an empty
    string if there is no difference.
    """
    reader = _find_reader(path)
    if reader is None:
        return ""
    before, after = _collect(reader(old)), _collect(reader(new))
    added = [inline_code(f"{name} {after[name]}".strip()) for name in after if name not in before]
    removed = [inline_code(name) for name in before if name not in after]
    changed = [
        f"{inline_code(name)} from {_format_version(before[name])} to {_format_version(after[name])}"
        for name in after
        if name in before and before[name] != after[name]
    ]
    kinds = (("added", added), ("changed", changed), ("removed", removed))
    listed = "; ".join(f"{kind} {list_names(names, MAX_NAMES)}" for kind, names in kinds if names)
    return f"Dependencies in {path}: {listed}." if listed else ""


def _format_version(version: str) -> str:
    return inline_code(version) if version else "any version"


def _collect(dependencies: Dependencies) -> dict[str, str]:
    """Maps each name to its version. If a name has several versions, they are joined with commas."""
    versions: dict[str, list[str]] = {}
    for name, version in dependencies:
        if version not in versions.setdefault(name, []):
            versions[name].append(version)
    return {name: ", ".join(filter(None, found)) for name, found in versions.items()}


def _find_reader(path: str) -> Callable[[str], Dependencies] | None:
    if _REQUIREMENTS_FILE.fullmatch(path.lower()):
        return _read_requirements
    return _READERS.get(posixpath.basename(path).lower())


def _read_requirements(text: str) -> Dependencies:
    return _split_requirements(iter(text.splitlines()))


def _split_requirements(requirements: object) -> Dependencies:
    """Splits requirements in pip's notation into names and versions. Ignores values that are not text."""
    items = requirements if isinstance(requirements, list | Iterator) else ()
    for item in items:
        if isinstance(item, str) and (match := _REQUIREMENT.match(item.strip())):
            version = match["version"].partition("--hash")[0].strip(" \\")
            yield re.sub(r"[-_.]+", "-", match["name"]).lower(), version


def _read_pyproject(text: str) -> Dependencies:
    tables = parse_toml_or_empty(text)
    project, poetry = get_table(tables, "project"), get_table(tables, "tool", "poetry")
    groups = (get_table(project, "optional-dependencies"), get_table(tables, "dependency-groups"))
    lists = [project.get("dependencies"), get_table(tables, "build-system").get("requires")]
    lists += [get_table(tables, "tool", "uv").get("dev-dependencies")]
    for requirements in (*lists, *(names for group in groups for names in group.values())):
        yield from _split_requirements(requirements)
    yield from _read_tables(poetry, "dependencies", "dev-dependencies")
    for group in get_table(poetry, "group").values():
        yield from _read_tables(group, "dependencies")


def _read_setup_cfg(text: str) -> Dependencies:
    parser = parse_ini_or_empty(text)
    for section in parser.sections():
        for key, value in parser.items(section):
            is_list = section == "options" and key in ("install_requires", "tests_require", "setup_requires")
            if is_list or section == "options.extras_require":
                yield from _split_requirements((value or "").splitlines())


def _read_tables(values: object, *keys: str) -> Dependencies:
    """Yields the entries of tables that map names to a version, or to a table with a version or a source."""
    for key in keys:
        for name, value in get_table(values, key).items():
            details = value if isinstance(value, Mapping) else {"version": value}
            source = next((details[key] for key in ("version", "git", "path", "url") if key in details), "")
            yield name, str(source)


def _read_package_json(text: str) -> Dependencies:
    return _read_tables(parse_json_or_empty(text), *_PACKAGE_JSON_KEYS)


def _read_composer(text: str) -> Dependencies:
    return _read_tables(parse_json_or_empty(text), "require", "require-dev")


def _read_pipfile(text: str) -> Dependencies:
    return _read_tables(parse_toml_or_empty(text), "packages", "dev-packages")


def _read_cargo(text: str) -> Dependencies:
    manifest = parse_toml_or_empty(text)
    targets = get_table(manifest, "target").values()
    for table in (manifest, get_table(manifest, "workspace"), *targets):
        yield from _read_tables(table, *_CARGO_KEYS)


def _read_go_mod(text: str) -> Dependencies:
    return ((match[1], match[2]) for match in _GO_MODULE.finditer(text))


def _read_gemfile(text: str) -> Dependencies:
    return ((match[1], match[2] or "") for match in _GEM.finditer(text))


def _read_toml_lock(text: str) -> Dependencies:
    return _read_packages(parse_toml_or_empty(text).get("package"))


def _read_composer_lock(text: str) -> Dependencies:
    lock = parse_json_or_empty(text)
    for key in ("packages", "packages-dev"):
        yield from _read_packages(lock.get(key))


def _read_packages(packages: object) -> Dependencies:
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict) and isinstance(package.get("name"), str):
            yield package["name"], str(package.get("version", ""))


def _read_npm_lock(text: str) -> Dependencies:
    packages: dict[str, Any] = get_table(parse_json_or_empty(text), "packages")
    for path, package in packages.items():
        if "node_modules/" in path:
            details = get_table({"": package}, "")
            host = _get_host(str(details.get("resolved", "")))
            source = f" from {host}" if host and host not in _NPM_REGISTRIES else ""
            yield path.rpartition("node_modules/")[2], f"{details.get('version', '')}{source}"


def _get_host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return "an invalid address"


_READERS: dict[str, Callable[[str], Dependencies]] = {
    "pyproject.toml": _read_pyproject,
    "setup.cfg": _read_setup_cfg,
    "pipfile": _read_pipfile,
    "package.json": _read_package_json,
    "cargo.toml": _read_cargo,
    "go.mod": _read_go_mod,
    "gemfile": _read_gemfile,
    "composer.json": _read_composer,
    **dict.fromkeys(("poetry.lock", "uv.lock", "pdm.lock", "cargo.lock"), _read_toml_lock),
    **dict.fromkeys(("package-lock.json", "npm-shrinkwrap.json"), _read_npm_lock),
    "composer.lock": _read_composer_lock,
}
"""Functions that read the dependencies of a file, by the file's name in lowercase."""
