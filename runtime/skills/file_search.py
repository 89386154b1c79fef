"""Searches files for text, and finds files by name."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from .skill_errors import (
    MAX_FILE_BYTES,
    SkillError,
    display_path,
    pluralize,
    print_errors,
    printable_line,
    require_file,
    require_path,
    require_text,
)
from .window_editor import current_file

MAX_HITS = 100  # hits that are printed
MAX_COUNTED_HITS = 10_000  # hits at which a search stops
MAX_HIT_CHARS = 200  # characters of a line that are printed
SEARCH_TIMEOUT = 30  # seconds for one search
SKIPPED_DIRECTORIES = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__"})
_NARROW_HINT = "narrow your search: use a longer search_term or a subdirectory"


@print_errors
def search_dir(search_term: str, dir_path: str = "./") -> None:
    """Print `file:line: text` for each line that contains the text, in text files below the directory.

    Prints at most 100 lines. The text is searched literally, not as a pattern. Files in .git, node_modules and
    __pycache__, and files over 5 MB, are skipped.

    (Hard to write in code: skipping irrelevant files and limiting the output takes more than a line of code.)
    """
    needle = os.fsencode(require_text("search_term", search_term))
    directory = _require_directory(dir_path)
    hits, files, stopped = 0, set(), ""
    for path in _walk_files(directory):
        for number, line in _find_hits(path, needle):
            hits += 1
            files.add(path)
            if hits <= MAX_HITS:
                print(f"{display_path(path)}:{number}: {line}")
        if hits > MAX_COUNTED_HITS:
            stopped = ", and there may be more"
            break
    _print_summary(
        f"{search_term!r} in {display_path(directory)}", hits, f" in {pluralize(len(files), 'file')}{stopped}"
    )


@print_errors
def search_file(search_term: str, file_path: str | None = None) -> None:
    """Print the lines of a file that contain the text, with line numbers, at most 100.

    Without file_path, searches the open file.

    (Hard to write in code: ad-hoc code does not know which file is open.)
    """
    needle = os.fsencode(require_text("search_term", search_term))
    if file_path is None and current_file() is None:
        raise SkillError("no file is open: set file_path, or call open_file(path) first")
    path = require_file(current_file() if file_path is None else file_path, "file_path")
    hits = 0
    for number, line in _find_hits(path, needle, required=True):
        hits += 1
        if hits <= MAX_HITS:
            print(f"{number}: {line}")
    _print_summary(f"{search_term!r} in {display_path(path)}", hits, "")


@print_errors
def find_file(file_name: str, dir_path: str = "./") -> None:
    """Print the path of each file with this name below the directory, at most 100. `*` and `?` are wildcards.

    (Hard to write in code: skipping irrelevant files and limiting the output takes more than a line of code.)
    """
    pattern = require_text("file_name", file_name)
    directory = _require_directory(dir_path)
    names, found = set(), 0
    for path in _walk_files(directory):
        names.add(path.name)
        if fnmatch.fnmatchcase(path.name, pattern) or path.name == pattern:
            found += 1
            if found <= MAX_HITS:
                print(display_path(path))
    if not found and (similar := get_close_matches(pattern, sorted(names)[:20_000], n=3, cutoff=0.7)):
        print(f"[similar names: {', '.join(map(printable_line, similar))}]")
    _print_summary(f"files named {pattern!r} in {display_path(directory)}", found, "")


def _require_directory(path: object) -> Path:
    real = require_path(path, "dir_path")
    if not real.is_dir():
        raise SkillError(f"{path} is not a directory (looked in {os.getcwd()})")
    return real


def _walk_files(top: Path) -> Iterator[Path]:
    """Yield every file below a directory, in order. Follows no links to directories, and stops at a time
    limit.
    """
    deadline = time.monotonic() + SEARCH_TIMEOUT
    for directory, directories, names in os.walk(top):
        directories[:] = sorted(name for name in directories if name not in SKIPPED_DIRECTORIES)
        for name in sorted(names):
            if time.monotonic() > deadline:
                print(
                    f"[stopped after {SEARCH_TIMEOUT} s, at {display_path(Path(directory))}; {_NARROW_HINT}]"
                )
                return
            yield Path(directory, name)


def _find_hits(path: Path, wanted: bytes, *, required: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that contains `wanted`.

    If the file cannot be searched, yields nothing, or raises an error if `required` is True.
    """
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            if required:
                raise SkillError(
                    f"{display_path(path)} is larger than {MAX_FILE_BYTES:,} bytes: use grep -n in a shell"
                )
            return
        data = path.read_bytes()
    except OSError:
        if required:
            raise
        return
    if b"\0" in data[:8192]:
        if required:
            raise SkillError(f"{display_path(path)} is a binary file")
        return
    if wanted not in data:
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if wanted in line:
            yield number, printable_line(os.fsdecode(line).strip(), MAX_HIT_CHARS)


def _print_summary(subject: str, hits: int, where: str) -> None:
    if not hits:
        print(f"[nothing found: {printable_line(subject)}]")
    elif hits > MAX_HITS:
        print(
            f"[{printable_line(subject)}: the first {MAX_HITS} of {pluralize(hits, 'hit')}{where}; {_NARROW_HINT}]"
        )
    else:
        print(f"[{printable_line(subject)}: {pluralize(hits, 'hit')}{where}]")
