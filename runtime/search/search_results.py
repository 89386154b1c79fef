"""Formats search results and limits their length. If there are too many, a hint says how to narrow the
search.
"""

import os
from collections import Counter
from dataclasses import dataclass
from itertools import takewhile

MAX_LINES = 200  # lines shown
MAX_CHARS = 28_000  # Maximum characters of all lines together. A result may have 30,000.
MAX_COUNTED_LINES = 20_000  # A search stops when it has found this many lines.
MAX_LINE_CHARS = 240  # Characters of one line that are shown.
MAX_DIRECTORIES = 15
MIN_GROUPED_LINES = 4  # So many lines of a file share one line with its path.
# Maximum number of lines per file. The first number is used with which the result has at most MAX_LINES lines.
_LINES_PER_FILE = (50, 20, 10, 5, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One line of a file; line numbers start at 1."""

    path: str
    number: int
    text: str
    last_line: int | None = None
    """Last line of the definition that begins on this line. None if the hit is not a definition, or if its
    end is unknown.
    """
    note: str = ""


def render_results(lines: list[SearchHit], noun: str, *notes: str) -> str:
    """Return the hits as text, followed by a summary. `noun` says what a hit is, such as `line` or `definition`."""
    files = Counter(line.path for line in lines)
    shown = _limit_per_file(lines, files)
    texts: list[str] = []
    length, path = 0, ""
    for line in shown:
        is_grouped = files[line.path] >= MIN_GROUPED_LINES
        text = _render_hit(line, shows_path=not is_grouped)
        if is_grouped and line.path != path:
            text = f"{display_path(line.path)}\n{text}"
        path = line.path
        length += len(text) + 1
        if length > MAX_CHARS:
            break
        texts.append(text)
    omitted = len(lines) - len(texts)
    if texts:
        texts.append("")
    plus = "+" if len(lines) >= MAX_COUNTED_LINES else ""
    summary = f"{_pluralize(len(lines), noun, plus)} in {_pluralize(len(files), 'file')}"
    if omitted:
        texts.append(f"[{summary}; only {len(lines) - omitted} are shown above]")
        texts.append(f"[by directory: {_count_by_directory(files)}]")
        texts.append("[to narrow your search, use a longer pattern or set path]")
    elif lines:
        texts.append(f"[{summary}]")
    return "\n".join([*texts, *(f"[{note}]" for note in notes if note)])


def printable_line(text: str, max_chars: int = MAX_LINE_CHARS, around: int = 0) -> str:
    """Return one line without control characters. If it is too long, return a part of `max_chars` characters
    that includes the position `around`.
    """
    if len(text) > max_chars:
        start = max(0, min(around - max_chars // 3, len(text) - max_chars))
        text = (
            ("..." if start else "")
            + text[start : start + max_chars]
            + ("..." if start + max_chars < len(text) else "")
        )
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)


def display_path(path: str) -> str:
    """Return a path without control characters and invalid bytes, so that it can be printed."""
    return printable_line(os.fsencode(path).decode("utf-8", "replace"), 4096)


def _limit_per_file(lines: list[SearchHit], files: Counter[str]) -> list[SearchHit]:
    """Return all lines. If there are too many, return only the first few of each file."""
    if len(lines) <= MAX_LINES:
        return lines
    limit = next(
        (n for n in _LINES_PER_FILE if sum(min(n, count) for count in files.values()) <= MAX_LINES),
        _LINES_PER_FILE[-1],
    )
    counts: Counter[str] = Counter()
    result = []
    for line in lines:
        counts[line.path] += 1
        if counts[line.path] <= limit:
            result.append(line)
    return result[:MAX_LINES]


def _render_hit(line: SearchHit, *, shows_path: bool) -> str:
    where = str(line.number) if line.last_line in (None, line.number) else f"{line.number}-{line.last_line}"
    path = f"{display_path(line.path)}:" if shows_path else ""
    return f"{path}{where}: {line.text}" + (f"  [{line.note}]" if line.note else "")


def _count_by_directory(files: Counter[str]) -> str:
    """Return the number of hits in each directory, largest number first. Only directories up to two
    levels below the common parent of all files are shown. Their numbers include the hits in deeper directories.
    """
    directories = {path: path.split("/")[:-1] for path in files}
    extremes = zip(min(directories.values()), max(directories.values()), strict=False)
    shared = len([*takewhile(lambda pair: pair[0] == pair[1], extremes)])
    counts: Counter[str] = Counter()
    for path, count in files.items():
        counts["/".join(directories[path][: shared + 2]) or "."] += count
    listed = [
        f"{display_path(directory)} {count:,}" for directory, count in counts.most_common(MAX_DIRECTORIES)
    ]
    rest = len(counts) - len(listed)
    return ", ".join(listed) + (f", and {rest} more" if rest > 0 else "")


def _pluralize(number: int, noun: str, more: str = "") -> str:
    return f"{number:,}{more} {noun}{'s' * (number != 1)}"
