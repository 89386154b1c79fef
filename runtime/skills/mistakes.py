"""What a skill says instead of raising, and the checks that all of them make."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

LARGEST = 5 << 20  # bytes of a file that is opened or searched
LONGEST_LINE = 1_000  # characters of a line that are printed

Skill = TypeVar("Skill", bound=Callable[..., None])


class Mistake(Exception):
    """The skill cannot do it; the message says what to do instead."""


def told(skill: Skill) -> Skill:
    """The skill, with its caller's mistakes printed."""

    @functools.wraps(skill)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            skill(*args, **kwargs)
        except Mistake as mistake:
            print(printable(f"[{skill.__name__}: {mistake}]", 2 * LONGEST_LINE))
        except OSError as error:
            named = f"{printable(os.fsdecode(error.filename))}: " if _is_path(error.filename) else ""
            print(f"[{skill.__name__}: {named}{error.strerror or error}]")
        except UnicodeError as error:
            print(f"[{skill.__name__}: that is no text that can be written as UTF-8: {error}]")

    return cast("Skill", wrapped)


def text(name: str, value: object) -> str:
    """An argument that must be text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise Mistake(f"{name} must be text that is not empty, not {value!r:.100}")
    return value


def whole(name: str, value: object) -> int:
    """An argument that must be a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Mistake(f"{name} must be a whole number, not {value!r:.100}")
    return value


def existing(path: object, name: str = "path") -> Path:
    """The regular file of this name, absolute."""
    real = absolute(path, name)
    if real.is_dir():
        raise Mistake(f"{path} is a directory: name a file in it")
    if not real.exists():
        raise Mistake(
            f"{path} does not exist (looked in {os.getcwd()}): find_file({real.name!r}) looks for it"
        )
    if not real.is_file():
        raise Mistake(f"{path} is not a regular file")
    return real


def absolute(path: object, name: str = "path") -> Path:
    if not _is_path(path) or not os.fspath(cast("str", path)) or "\0" in str(path):
        raise Mistake(f"{name} must be the path of a file, not {path!r:.100}")
    return Path(os.path.abspath(os.fsdecode(cast("str", path))))


def shown(path: Path) -> str:
    """A path as a reader should see it: relative where it is below the working directory."""
    try:
        return printable(str(path.relative_to(os.getcwd())))
    except ValueError:
        return printable(str(path))


def printable(line: str, most: int = LONGEST_LINE) -> str:
    """Text that can be printed whatever was in the file: half characters replaced, the end of a long line left out."""
    clean = re.sub("[\ud800-\udfff]", "\ufffd", line)
    return clean if len(clean) <= most else f"{clean[:most]} [... {len(clean) - most:,} more characters]"


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _is_path(value: object) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))
