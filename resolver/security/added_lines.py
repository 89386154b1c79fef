"""Finds the lines that a patch adds to a file, and describes them for reviewers."""

import re
import unicodedata
from collections import Counter
from typing import NamedTuple

from patchwright.resolver.rendering.filters import list_names
from patchwright.runtime.output_text import clip_line


class AddedLine(NamedTuple):
    number: int
    text: str
    """The line as a compiler understands it."""


def find_added_lines(old: str, new: str) -> list[AddedLine]:
    """Returns the lines of the new version that the old version does not contain."""
    old_lines = Counter(map(str.strip, old.splitlines()))
    added, lines = [], new.splitlines()
    for number, line in enumerate(lines, start=1):
        if old_lines[line.strip()] > 0:
            old_lines[line.strip()] -= 1
        else:
            added.append(AddedLine(number, _join_split_name(line, "".join(lines[number : number + 1]))))
    return added


def describe_lines(path: str, lines: list[AddedLine], note: str, match: re.Match[str] | None = None) -> str:
    """Returns a sentence that names the lines, says what they may do, and quotes the first one, around the match."""
    numbers = list_names([str(line.number) for line in lines])
    subject = f"line{'s' if len(lines) > 1 else ''} {numbers}"
    excerpt = get_excerpt(match) if match else clip_line(lines[0].text.strip(), 80).replace("`", "'")
    return f"{path}, {subject}, {note}: `{excerpt}`"


def get_excerpt(match: re.Match[str]) -> str:
    """Returns the match with the surrounding text of its line, shortened to at most 80 characters."""
    line = match.string[max(0, match.start() - 30) : match.end() + 30]
    return clip_line(line.strip(), 80).replace("`", "'")


def _join_split_name(line: str, following: str) -> str:
    """Returns a line as a compiler understands it: with the next line if a name goes on there, or if it is an attribute
    of that line. Python also accepts names in other letters, such as fullwidth ones.
    """
    start, end = line.rstrip(" \\\t"), following.strip()
    is_split = start.endswith(".") or end.startswith(".") or start.lstrip().startswith("#[")
    return unicodedata.normalize("NFKC", start + end if is_split else line)
