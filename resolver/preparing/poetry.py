"""What a project of poetry names for its developers, in the words of pip, which does not read it."""

import re
import shlex
from typing import Any

from resolver.suites.part import table

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_PLAIN = re.compile(r"(?P<sign>\^|~|==?)?\s*(?P<version>\d{1,9}(\.\d{1,9})*)")
_AS_PIP = re.compile(r"([<>!=~]=|[<>])\s*[\w.*]+(\s*,\s*([<>!=~]=|[<>])\s*[\w.*]+)*")


def for_developers(pyproject: dict[str, Any]) -> list[str]:
    """Requirements for a command line, of the groups that are not optional.

    Source: python-poetry.org/docs/dependency-specification, "Version constraints".
    """
    poetry = table(pyproject, "tool", "poetry")
    named = dict(table(poetry, "dev-dependencies"))
    for name in table(poetry, "group"):
        group = table(poetry, "group", name)
        if not group.get("optional"):
            named |= table(group, "dependencies")
    named.pop("python", None)
    found = (_requirement(name, wanted) for name, wanted in named.items() if _NAME.fullmatch(name))
    return [shlex.quote(each) for each in found if each is not None]


def _requirement(name: str, wanted: object) -> str | None:
    """None: it is not had from an index. A constraint that pip has no words for is left out."""
    if isinstance(wanted, dict):
        if "version" not in wanted:
            return None
        listed = wanted.get("extras")
        extras = ",".join(map(str, listed)) if isinstance(listed, list) else ""
        return _requirement(f"{name}[{extras}]" if extras else name, wanted["version"])
    text = str(wanted).strip()
    if _AS_PIP.fullmatch(text):
        return f"{name}{text}"
    if (plain := _PLAIN.fullmatch(text)) is None:
        return name
    version = plain["version"]
    if plain["sign"] not in ("^", "~"):
        return f"{name}=={version}"
    return f"{name}>={version},<{_next(version, caret=plain['sign'] == '^')}"


def _next(version: str, *, caret: bool) -> str:
    """The first version beyond: `^` allows what leaves the first number that is not 0, `~` what leaves the second."""
    numbers = [int(number) for number in version.split(".")]
    kept = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
    last = kept if caret else min(1, len(numbers) - 1)
    return ".".join(str(number) for number in (*numbers[:last], numbers[last] + 1))
