"""Lines that were found, as text: bounded, and with how to narrow the search where there are too many."""

import os
from collections import Counter
from dataclasses import dataclass
from itertools import takewhile

MOST = 200  # lines that are shown
CHARACTERS = 28_000  # of them together; a reader gets 30,000 of one answer
COUNTED = 20_000  # lines after which a search ends
WIDTH = 240  # characters of one line that are shown
DIRECTORIES = 15
_EACH = (50, 20, 10, 5, 3, 2, 1)  # lines of one file that are shown, where all are too many


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, from 1."""

    path: str
    number: int
    text: str
    last: int | None = None
    """The last line of what begins here."""
    note: str = ""


def told(lines: list[Line], what: str, *notes: str) -> str:
    """The lines, and after them what was found. `what`: what each line is, in the singular."""
    files = Counter(line.path for line in lines)
    shown = _fewer(lines, files)
    texts, length = [], 0
    for line in shown:
        text = _line(line)
        length += len(text) + 1
        if length > CHARACTERS:
            break
        texts.append(text)
    left_out = len(lines) - len(texts)
    if texts:
        texts.append("")
    more = "+" if len(lines) >= COUNTED else ""
    summary = f"{_count(len(lines), what, more)} in {_count(len(files), 'file')}"
    if left_out:
        texts.append(f"[{summary}, too many to show: above are {len(lines) - left_out}]")
        texts.append(f"[by directory: {_by_directory(files)}]")
        texts.append("[narrow your search: a longer pattern, or a path]")
    elif lines:
        texts.append(f"[{summary}]")
    return "\n".join([*texts, *(f"[{note}]" for note in notes if note)])


def printable(text: str, most: int = WIDTH, around: int = 0) -> str:
    """One line without what a terminal would act on, of at most `most` characters, from where there is something."""
    if len(text) > most:
        begin = max(0, min(around - most // 3, len(text) - most))
        text = (
            ("..." if begin else "")
            + text[begin : begin + most]
            + ("..." if begin + most < len(text) else "")
        )
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)


def name(path: str) -> str:
    """A path as a reader should see it."""
    return printable(os.fsencode(path).decode("utf-8", "replace"), 4096)


def _fewer(lines: list[Line], files: Counter[str]) -> list[Line]:
    """All lines, or so many of each file that they are few enough."""
    if len(lines) <= MOST:
        return lines
    each = next((n for n in _EACH if sum(min(n, count) for count in files.values()) <= MOST), _EACH[-1])
    seen: Counter[str] = Counter()
    kept = []
    for line in lines:
        seen[line.path] += 1
        if seen[line.path] <= each:
            kept.append(line)
    return kept[:MOST]


def _line(line: Line) -> str:
    where = str(line.number) if line.last in (None, line.number) else f"{line.number}-{line.last}"
    return f"{name(line.path)}:{where}: {line.text}" + (f"  [{line.note}]" if line.note else "")


def _by_directory(files: Counter[str]) -> str:
    """Lines below each directory, two levels below what all share, most first."""
    homes = {path: path.split("/")[:-1] for path in files}
    ends = zip(min(homes.values()), max(homes.values()), strict=False)
    shared = len([*takewhile(lambda pair: pair[0] == pair[1], ends)])
    found: Counter[str] = Counter()
    for path, count in files.items():
        found["/".join(homes[path][: shared + 2]) or "."] += count
    listed = [f"{name(directory)} {count:,}" for directory, count in found.most_common(DIRECTORIES)]
    rest = len(found) - len(listed)
    return ", ".join(listed) + (f", and {rest} more" if rest > 0 else "")


def _count(number: int, what: str, more: str = "") -> str:
    return f"{number:,}{more} {what}{'s' * (number != 1)}"
