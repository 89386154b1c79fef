"""The files whose changes tests cannot judge, because the files act outside of the tests.

`sensitive_files.toml` is the only list of these files. Files that act on their own, such as hooks and workflows, are
left to maintainers. A reviewer is asked to look at the others.
"""

import posixpath
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Literal

Handling = Literal["maintainers", "reviewers"]
"""`maintainers`: the change is left out of the patch, except if the operator's `allowed_paths` permit it.
`reviewers`: the pull request names the file.
"""


@dataclass(frozen=True)
class FileKind:
    """A kind of files, and what is done with a change to one of them."""

    handling: Handling
    reason: str
    """What the file does, as a clause that begins with a verb."""
    patterns: str
    """Patterns in lowercase, separated by spaces. A pattern without a slash matches the file's name. The others
    match the whole path with a slash before it; there, an asterisk also matches slashes.
    """

    def matches(self, path: str) -> bool:
        whole_path = f"/{path}".casefold()
        return bool(
            self._path_regex.match(whole_path) or self._name_regex.match(posixpath.basename(whole_path))
        )

    @cached_property
    def _path_regex(self) -> re.Pattern[str]:
        return _compile(pattern for pattern in self.patterns.split() if "/" in pattern)

    @cached_property
    def _name_regex(self) -> re.Pattern[str]:
        return _compile(pattern for pattern in self.patterns.split() if "/" not in pattern)


def _compile(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


def _load_kinds() -> dict[str, FileKind]:
    tables = tomllib.loads(Path(__file__).with_name("sensitive_files.toml").read_text())["kinds"]
    return {
        table.get("name", table["reason"] + table["handling"]): FileKind(
            table["handling"], table["reason"], " ".join(table["patterns"])
        )
        for table in tables
    }


_KINDS = _load_kinds()
CI_SERVICES = _KINDS["ci_services"]
"""The configuration of CI services other than GitHub Actions."""
FILE_KINDS = tuple(_KINDS.values())
"""All kinds. The first kind that matches a path counts."""


def find_file_kind(path: str) -> FileKind | None:
    """Returns the kind of this file, or None if the file is of none of these kinds."""
    return next((kind for kind in FILE_KINDS if kind.matches(path)), None)
