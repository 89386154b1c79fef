"""Represents a project directory and its files at the base commit. The code for each language looks for tests
in such a directory.
"""

import configparser
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from patchwright.resolver.runner_names import RUNNER_LANGUAGES, Language, RunnerName
from patchwright.resolver.suites.suite import Suite

MAX_COMMAND_LENGTH = 2_000  # maximum characters of a command that is read from a file


@dataclass(frozen=True)
class DeclaredCommand:
    """A test command that the maintainers wrote in a file."""

    command: str
    runner: RunnerName
    source: str
    """A phrase that says where the command is in the file, such as "The target `test` of the Makefile". It is
    the subject of a sentence.
    """

    @property
    def command_reason(self) -> str:
        return f"{self.source} runs it."


@dataclass(frozen=True)
class ProjectDir:
    """A project directory of the repository."""

    directory: str
    """Path from the repository's root; an empty string means the root itself."""
    files: tuple[str, ...]
    """Paths of the files below the directory. Files of nested projects of the same language are left out."""
    contents: dict[str, str] = field(default_factory=dict)
    """Contents of the manifests below the directory, by relative path."""
    declared_commands: tuple[DeclaredCommand, ...] = ()
    """Commands that the maintainers declared for this directory, the most reliable first."""

    def match_files(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        """Returns the files whose whole path matches the pattern."""
        return tuple(path for path in self.files if pattern.fullmatch(path))

    def make_suite(self, command: str, runner: RunnerName, command_reason: str) -> Suite:
        language = RUNNER_LANGUAGES.get(runner)
        return Suite(
            command=command,
            runner=runner,
            command_reason=command_reason,
            directory=self.directory,
            language=language,
        )

    def find_declared(self, *runners: RunnerName) -> DeclaredCommand | None:
        return next((command for command in self.declared_commands if command.runner in runners), None)


@dataclass(frozen=True)
class LanguageSupport:
    """Functions and file name patterns that find the tests of one language."""

    language: Language
    manifests: re.Pattern[str]
    """Names of files that make a directory a separate project."""
    test_files: re.Pattern[str]
    """Paths of test files."""
    suffixes: tuple[str, ...]
    find_suite: Callable[[ProjectDir], Suite | None]
    covers_subdirectories: Callable[[ProjectDir], bool] = lambda part: False
    """Returns True if this project's command also runs the tests of nested projects."""


def parse_json_or_empty(text: str | None) -> dict[str, Any]:
    """Returns the object in a JSON text. Returns an empty dictionary if the text is not a JSON object."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def parse_toml_or_empty(text: str | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text or "")
    except (ValueError, RecursionError):
        return {}


def parse_ini_or_empty(text: str | None) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text or "")
    except (configparser.Error, ValueError):
        return configparser.RawConfigParser()
    return parser


def get_table(values: object, *keys: str) -> dict[str, Any]:
    """Returns the table at these keys, or an empty table if there is none."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def summarize_files(names: tuple[str, ...]) -> str:
    """Returns a short text about a list of files, such as `a.py and 2 more`."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
