"""Finding text in files, and files by name."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from .editor import opened
from .mistakes import LARGEST, Mistake, absolute, count, existing, printable, shown, text, told

MOST = 100  # hits that are printed
COUNTED = 10_000  # hits after which a search ends
LONGEST_HIT = 200  # characters of a line that are printed
SECONDS = 30  # of one search
SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__"})
_NARROW = "narrow your search: a longer search_term, or a directory further down"


@told
def search_dir(search_term: str, dir_path: str = "./") -> None:
    """Print `file:line: text` for each line that holds the text, at most 100, in the text files below the directory.

    The text is no pattern. Left out: .git, node_modules, __pycache__ and files over 5 MB.
    (A skill because: a search that skips what nobody wants and never floods you takes more than a line of code.)
    """
    wanted = os.fsencode(text("search_term", search_term))
    top = _directory(dir_path)
    hits, files, stopped = 0, set(), ""
    for path in _files(top):
        for number, line in _hits(path, wanted):
            hits += 1
            files.add(path)
            if hits <= MOST:
                print(f"{shown(path)}:{number}: {line}")
        if hits > COUNTED:
            stopped = ", and there may be more"
            break
    _sum_up(f"{search_term!r} in {shown(top)}", hits, f" in {count(len(files), 'file')}{stopped}")


@told
def search_file(search_term: str, file_path: str | None = None) -> None:
    """Print the numbered lines of a file that hold the text, at most 100; without file_path, of the open file.

    (A skill because: it knows the open file.)
    """
    wanted = os.fsencode(text("search_term", search_term))
    if file_path is None and opened() is None:
        raise Mistake("no file is open: name one as file_path, or call open_file(path) first")
    path = existing(opened() if file_path is None else file_path, "file_path")
    hits = 0
    for number, line in _hits(path, wanted, must=True):
        hits += 1
        if hits <= MOST:
            print(f"{number}: {line}")
    _sum_up(f"{search_term!r} in {shown(path)}", hits, "")


@told
def find_file(file_name: str, dir_path: str = "./") -> None:
    """Print the path of each file of this name below the directory, at most 100; `*` and `?` are as in the shell.

    (A skill because: a search that skips what nobody wants and never floods you takes more than a line of code.)
    """
    wanted = text("file_name", file_name)
    top = _directory(dir_path)
    names, found = set(), 0
    for path in _files(top):
        names.add(path.name)
        if fnmatch.fnmatchcase(path.name, wanted) or path.name == wanted:
            found += 1
            if found <= MOST:
                print(shown(path))
    if not found and (near := get_close_matches(wanted, sorted(names)[:20_000], n=3, cutoff=0.7)):
        print(f"[names like it: {', '.join(map(printable, near))}]")
    _sum_up(f"files named {wanted!r} in {shown(top)}", found, "")


def _directory(path: object) -> Path:
    real = absolute(path, "dir_path")
    if not real.is_dir():
        raise Mistake(f"{path} is not a directory (looked in {os.getcwd()})")
    return real


def _files(top: Path) -> Iterator[Path]:
    """Every file below, in order, links to directories not followed; ends in time and says so."""
    until = time.monotonic() + SECONDS
    for at, directories, names in os.walk(top):
        directories[:] = sorted(name for name in directories if name not in SKIPPED)
        for name in sorted(names):
            if time.monotonic() > until:
                print(f"[stopped after {SECONDS} s, at {shown(Path(at))}; {_NARROW}]")
                return
            yield Path(at, name)


def _hits(path: Path, wanted: bytes, *, must: bool = False) -> Iterator[tuple[int, str]]:
    """Numbered lines that hold the text. `must`: a file that cannot be searched is a mistake, else it is skipped."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            if must:
                raise Mistake(f"{shown(path)} is larger than {LARGEST:,} bytes: use grep -n in a shell")
            return
        data = path.read_bytes()
    except OSError:
        if must:
            raise
        return
    if b"\0" in data[:8192]:
        if must:
            raise Mistake(f"{shown(path)} is a binary file")
        return
    if wanted not in data:
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if wanted in line:
            yield number, printable(os.fsdecode(line).strip(), LONGEST_HIT)


def _sum_up(what: str, hits: int, where: str) -> None:
    if not hits:
        print(f"[nothing found: {printable(what)}]")
    elif hits > MOST:
        print(f"[{printable(what)}: the first {MOST} of {count(hits, 'hit')}{where}; {_NARROW}]")
    else:
        print(f"[{printable(what)}: {count(hits, 'hit')}{where}]")
