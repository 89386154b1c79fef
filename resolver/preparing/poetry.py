"""What a project of poetry names for its developers, in the words of pip, which does not read it."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

from resolver.suites.part import table

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_PLAIN = re.compile(r"(?P<sign>\^|~|==?)?\s*(?P<version>\d{1,9}(\.\d{1,9})*)")
_CLAUSE = re.compile(r"(?P<sign>[<>!=~]=|[<>])\s*(?P<version>[\w.*]+)")
_PLATFORM = re.compile(r"(?P<sign>[!=]=)?\s*(?P<name>\w+)")


def for_developers(pyproject: dict[str, Any]) -> list[str]:
    """Requirements for a command line, of the groups that are not optional.

    Source: python-poetry.org/docs/dependency-specification, "Version constraints" and the sections after it.
    """
    poetry = table(pyproject, "tool", "poetry")
    named = dict(table(poetry, "dev-dependencies"))
    for name in table(poetry, "group"):
        group = table(poetry, "group", name)
        if not group.get("optional"):
            named |= table(group, "dependencies")
    named.pop("python", None)
    return [
        shlex.quote(each)
        for name, wanted in named.items()
        if _NAME.fullmatch(name)
        for each in _requirements(name, wanted)
    ]


def _requirements(name: str, wanted: object) -> Iterator[str]:
    """A list has one for each kind of machine. Left out is what is not had from an index."""
    for each in wanted if isinstance(wanted, list) else [wanted]:
        told = each if isinstance(each, dict) else {"version": each}
        conditions = _conditions(told)
        if "version" not in told or conditions is None:
            continue
        listed = told.get("extras")
        known = map(str, listed if isinstance(listed, list) else ())
        extras = ",".join(extra for extra in known if _NAME.fullmatch(extra))
        versions = ",".join(_clauses(told["version"]) or ())  # a constraint that pip has no words for is none
        asked = f"{name}[{extras}]{versions}" if extras else f"{name}{versions}"
        yield f"{asked}; {' and '.join(conditions)}" if conditions else asked


def _conditions(told: dict[str, Any]) -> list[str] | None:
    """What must hold of a machine for the requirement to be one, all of it; None: pip has no words for that."""
    found = []
    if "python" in told:
        if (clauses := _clauses(told["python"])) is None:
            return None
        for clause in filter(None, map(_CLAUSE.fullmatch, clauses)):
            exact = clause["version"].count(".") > 1
            name = "python_full_version" if exact else "python_version"
            found.append(f'{name} {clause["sign"]} "{clause["version"]}"')
    if "platform" in told:
        if (platform := _PLATFORM.fullmatch(str(told["platform"]))) is None:
            return None
        found.append(f'sys_platform {platform["sign"] or "=="} "{platform["name"]}"')
    if "markers" in told:
        if not (markers := str(told["markers"]).strip()) or not markers.isprintable():
            return None
        found.append(f"({markers})" if found else markers)
    return found


def _clauses(constraint: object) -> list[str] | None:
    """What must hold of a version, all of it; None: pip has no words for that."""
    text = str(constraint).strip()
    if text == "*":
        return []
    clauses = [each.strip() for each in text.split(",")]
    if all(map(_CLAUSE.fullmatch, clauses)):
        return clauses
    if (plain := _PLAIN.fullmatch(text)) is None:
        return None
    version = plain["version"]
    if plain["sign"] not in ("^", "~"):
        return [f"=={version}"]
    return [f">={version}", f"<{_next(version, caret=plain['sign'] == '^')}"]


def _next(version: str, *, caret: bool) -> str:
    """The first version beyond: `^` allows what leaves the first number that is not 0, `~` what leaves the second."""
    numbers = [int(number) for number in version.split(".")]
    kept = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
    last = kept if caret else min(1, len(numbers) - 1)
    return ".".join(str(number) for number in (*numbers[:last], numbers[last] + 1))
