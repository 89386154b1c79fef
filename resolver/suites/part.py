"""A part of a repository, a directory with what is in it at base: what the families of runners look at."""

import configparser
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from resolver.suites.kind import LANGUAGES, Kind, Language
from resolver.suites.suite import Suite

MOST_CHARACTERS = 2_000  # of a command that is taken from a file


@dataclass(frozen=True)
class Said:
    """A command by which the maintainers test, as they wrote it down."""

    command: str
    kind: Kind
    where: str
    """The file, and the place in it; the start of a sentence."""

    @property
    def why(self) -> str:
        return f"{self.where} runs it."


@dataclass(frozen=True)
class Part:
    """A directory of the repository."""

    directory: str
    """Empty: the root."""
    files: tuple[str, ...]
    """Paths below it, without those of other parts of the same family."""
    texts: dict[str, str] = field(default_factory=dict)
    """Contents of the manifests below it; those in it have no `/`."""
    said: tuple[Said, ...] = ()
    """What maintainers wrote down for this directory, the most telling first."""

    def named(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        """The files whose whole path matches."""
        return tuple(path for path in self.files if pattern.fullmatch(path))

    def suite(self, command: str, kind: Kind, why: str) -> Suite:
        language = LANGUAGES.get(kind)
        return Suite(command=command, report=kind, why=why, directory=self.directory, language=language)

    def said_by(self, *kinds: Kind) -> Said | None:
        return next((said for said in self.said if said.kind in kinds), None)


@dataclass(frozen=True)
class Family:
    """A language's way to test."""

    name: Language
    manifests: re.Pattern[str]
    """File names that make a directory a part of its own."""
    tests: re.Pattern[str]
    """Paths of test files."""
    suffixes: tuple[str, ...]
    find: Callable[[Part], Suite | None]
    covers: Callable[[Part], bool] = lambda part: False
    """Whether this part's command also runs the tests of the parts below it."""


def as_json(text: str | None) -> dict[str, Any]:
    """The object in a JSON text; empty when there is none."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def as_toml(text: str | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text or "")
    except (ValueError, RecursionError):
        return {}


def as_ini(text: str | None) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        found.read_string(text or "")
    except (configparser.Error, ValueError):
        return configparser.RawConfigParser()
    return found


def table(values: object, *keys: str) -> dict[str, Any]:
    """What lies at these keys, if it is a table; else an empty one."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def quoted(names: tuple[str, ...]) -> str:
    """Files for a sentence: the first, and how many more."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
