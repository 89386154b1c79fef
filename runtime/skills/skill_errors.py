"""Checks the arguments of skills, and handles their errors. A skill prints an error instead of raising it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

MAX_FILE_BYTES = 5 << 20  # bytes of a file that is opened or searched
MAX_LINE_CHARS = 1_000  # characters of a line that are printed

Skill = TypeVar("Skill", bound=Callable[..., None])


class SkillError(Exception):
    """The skill failed. The message explains why, and usually what to do instead."""


def print_errors(skill: Skill) -> Skill:
    """Wrap a skill so that its errors are printed."""

    @functools.wraps(skill)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            skill(*args, **kwargs)
        except SkillError as error:
            print(printable_line(f"[{skill.__name__}: {error}]", 2 * MAX_LINE_CHARS))
        except OSError as error:
            prefix = f"{printable_line(os.fsdecode(error.filename))}: " if _is_path(error.filename) else ""
            print(f"[{skill.__name__}: {prefix}{error.strerror or error}]")
        except UnicodeError as error:
            print(f"[{skill.__name__}: the text cannot be encoded as UTF-8: {error}]")

    return cast("Skill", wrapper)


def require_text(name: str, value: object) -> str:
    """Return an argument that must be non-empty text. Raises SkillError otherwise."""
    if not isinstance(value, str) or not value.strip():
        raise SkillError(f"{name} must be non-empty text, not {value!r:.100}")
    return value


def require_integer(name: str, value: object) -> int:
    """Return an argument that must be an integer. Raises SkillError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise SkillError(f"{name} must be an integer, not {value!r:.100}")
    return value


def require_file(path: object, name: str = "path") -> Path:
    """Return the absolute path of a regular file. Raises SkillError if there is none."""
    real = require_path(path, name)
    if real.is_dir():
        raise SkillError(f"{path} is a directory: give the path of a file in it")
    if not real.exists():
        raise SkillError(
            f"{path} does not exist (looked in {os.getcwd()}): search for it with find_file({real.name!r})"
        )
    if not real.is_file():
        raise SkillError(f"{path} is not a regular file")
    return real


def require_path(path: object, name: str = "path") -> Path:
    if not _is_path(path) or not os.fspath(cast("str", path)) or "\0" in str(path):
        raise SkillError(f"{name} must be the path of a file, not {path!r:.100}")
    return Path(os.path.abspath(os.fsdecode(cast("str", path))))


def display_path(path: Path) -> str:
    """Return the path to print: relative if it is below the working directory, otherwise absolute."""
    try:
        return printable_line(str(path.relative_to(os.getcwd())))
    except ValueError:
        return printable_line(str(path))


def printable_line(line: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Make a line printable: replace lone surrogates and cut off the end of a long line."""
    text = re.sub("[\ud800-\udfff]", "\ufffd", line)
    return (
        text
        if len(text) <= max_chars
        else f"{text[:max_chars]} [... {len(text) - max_chars:,} more characters]"
    )


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _is_path(value: object) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))
