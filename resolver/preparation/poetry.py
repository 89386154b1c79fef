"""Translates the development dependencies of a Poetry project into requirements for pip, because pip does not
read dependencies in Poetry's format.
"""

import re
import shlex
from collections.abc import Iterator
from typing import Any

from patchwright.resolver.suites.project_dir import get_table

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_POETRY_VERSION = re.compile(r"(?P<sign>\^|~|==?)?\s*(?P<version>\d{1,9}(\.\d{1,9})*)")
_VERSION_SPECIFIER = re.compile(r"(?P<sign>[<>!=~]=|[<>])\s*(?P<version>[\w.*]+)")
_PLATFORM = re.compile(r"(?P<sign>[!=]=)?\s*(?P<name>\w+)")


def developer_requirements(pyproject: dict[str, Any]) -> list[str]:
    """Returns requirements for pip's command line, from all dependency groups that are not optional.

    Source: python-poetry.org/docs/dependency-specification, "Version constraints" and the sections after it.
    """
    poetry = get_table(pyproject, "tool", "poetry")
    dependencies = dict(get_table(poetry, "dev-dependencies"))
    for name in get_table(poetry, "group"):
        group = get_table(poetry, "group", name)
        if not group.get("optional"):
            dependencies |= get_table(group, "dependencies")
    dependencies.pop("python", None)
    return [
        shlex.quote(requirement)
        for name, dependency in dependencies.items()
        if _NAME.fullmatch(name)
        for requirement in _pip_requirements(name, dependency)
    ]


def _pip_requirements(name: str, dependency: object) -> Iterator[str]:
    """Yields the requirements for a dependency. A dependency can be a list with one entry for each platform.
    Entries without a version are skipped.
    """
    for entry in dependency if isinstance(dependency, list) else [dependency]:
        details = entry if isinstance(entry, dict) else {"version": entry}
        conditions = _environment_markers(details)
        if "version" not in details or conditions is None:
            continue
        extra_names = details.get("extras")
        names = map(str, extra_names if isinstance(extra_names, list) else ())
        extras = ",".join(extra for extra in names if _NAME.fullmatch(extra))
        # Constraints that pip cannot express are dropped.
        versions = ",".join(_version_specifiers(details["version"]) or ())
        requirement = f"{name}[{extras}]{versions}" if extras else f"{name}{versions}"
        yield f"{requirement}; {' and '.join(conditions)}" if conditions else requirement


def _environment_markers(dependency: dict[str, Any]) -> list[str] | None:
    """Returns the environment markers of a dependency, all of which must be true. Returns None if pip cannot
    express them.
    """
    markers_list = []
    if "python" in dependency:
        if (clauses := _version_specifiers(dependency["python"])) is None:
            return None
        for clause in filter(None, map(_VERSION_SPECIFIER.fullmatch, clauses)):
            is_patch_version = clause["version"].count(".") > 1
            name = "python_full_version" if is_patch_version else "python_version"
            markers_list.append(f'{name} {clause["sign"]} "{clause["version"]}"')
    if "platform" in dependency:
        if (platform := _PLATFORM.fullmatch(str(dependency["platform"]))) is None:
            return None
        markers_list.append(f'sys_platform {platform["sign"] or "=="} "{platform["name"]}"')
    if "markers" in dependency:
        if not (markers := str(dependency["markers"]).strip()) or not markers.isprintable():
            return None
        markers_list.append(f"({markers})" if markers_list else markers)
    return markers_list


def _version_specifiers(constraint: object) -> list[str] | None:
    """Returns the version specifiers for a constraint, all of which must match. Returns None if pip cannot
    express them.
    """
    text = str(constraint).strip()
    if text == "*":
        return []
    clauses = [clause.strip() for clause in text.split(",")]
    if all(map(_VERSION_SPECIFIER.fullmatch, clauses)):
        return clauses
    if (match := _POETRY_VERSION.fullmatch(text)) is None:
        return None
    version = match["version"]
    if match["sign"] not in ("^", "~"):
        return [f"=={version}"]
    return [f">={version}", f"<{_upper_bound(version, caret=match['sign'] == '^')}"]


def _upper_bound(version: str, *, caret: bool) -> str:
    """Returns the first version that is too high for a constraint. `^` allows changes after the first nonzero
    number of the version; `~` allows changes after the second number.
    """
    numbers = [int(number) for number in version.split(".")]
    first_nonzero = next((position for position, number in enumerate(numbers) if number), len(numbers) - 1)
    index = first_nonzero if caret else min(1, len(numbers) - 1)
    return ".".join(str(number) for number in (*numbers[:index], numbers[index] + 1))
