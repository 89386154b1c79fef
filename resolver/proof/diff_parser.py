"""Parses the output of `git diff` to describe it. Only git applies a diff."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_FILE_HEADER = re.compile(r"^diff --git a/(?P<old>.*) b/(?P<path>.*)$")
_HUNK_HEADER = re.compile(r"^@@ -(?P<old>\d+)(?:,\d+)? \+(?P<new>\d+)(?:,\d+)? @@(?P<context>.*)$")


@dataclass
class Hunk:
    """A block of neighboring changes in a file."""

    old_start: int
    """Line number of the first line in the old version."""
    new_start: int
    """Line number of the first line in the new version."""
    context: str
    """The line of code that git shows next to the line numbers, usually the enclosing function."""
    lines: list[str] = field(default_factory=list)
    """The lines, each with `+`, `-` or a space as its first character."""


@dataclass
class FileDiff:
    """The changes to one file."""

    path: str
    is_new: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def added(self) -> list[str]:
        return [line[1:] for hunk in self.hunks for line in hunk.lines if line.startswith("+")]

    @property
    def removed(self) -> list[str]:
        return [line[1:] for hunk in self.hunks for line in hunk.lines if line.startswith("-")]


def parse_diff(diff: bytes) -> Iterator[FileDiff]:
    """Yields the files of a `git diff`, except those whose names contain special characters."""
    file: FileDiff | None = None
    for line in diff.decode("utf-8", "replace").split("\n"):
        if line.startswith("diff --git "):
            if file is not None:
                yield file
            match = _FILE_HEADER.match(line)
            file = FileDiff(match["path"]) if match else None
        elif file is None:
            continue
        elif header := _HUNK_HEADER.match(line):
            file.hunks.append(Hunk(int(header["old"]), int(header["new"]), header["context"]))
        elif file.hunks:
            file.hunks[-1].lines.append(line)
        else:
            file.is_new = file.is_new or line.startswith("new file mode")
    if file is not None:
        yield file
