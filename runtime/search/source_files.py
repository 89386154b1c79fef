"""Which files a search goes through: those of the work tree that git does not ignore, below a path, by a glob."""

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LARGEST = 2_000_000  # bytes of a file; what is larger was not written by a person
LISTING = 10  # seconds for git
MOST = 200_000  # files
# What is in them is rarely looked for and always long. Only where git does not say it.
CLOSED = frozenset(
    {".git", ".hg", ".svn", ".tox", ".nox", ".venv", "__pycache__", "node_modules", ".mypy_cache"}
)
# A hook of the repository's own configuration would run with each listing.
_GIT = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")

_PIECES = re.compile(r"\*\*/|\*\*|\[[!^]?[^\]]+\]|.", re.DOTALL)
_MEANINGS = {
    "**/": "(?:.*/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
    "{": "(?:",
    "}": ")",
    ",": "|",
}


@dataclass(frozen=True, slots=True)
class Files:
    """Files by their names below a directory."""

    root: Path
    names: tuple[str, ...]
    note: str = ""
    """What a reader should know of the choice."""

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        return ((name, self.root / name) for name in self.names)


def chosen(root: Path, top: str, glob: str) -> Files:
    """The files at or below `top`, whose names fit the glob (empty: any).

    `top`: a path below the root, empty for all; an absolute one is searched as it is, whatever git says.

    Raises re.error for a glob that is none.
    """
    fits = re.compile(translated(glob)).fullmatch if glob else None
    names, note = _by_git(root, top), ""
    if not names and (walked := sorted(_walked(root, top))):
        names = walked
        ignored = top and not os.path.isabs(top) and (root / ".git").exists()
        note = "git ignores these files; they were searched because you named them" if ignored else ""
    if fits:
        names = [name for name in names if fits(name)]
    if len(names) > MOST:
        names, note = names[:MOST], f"only the first {MOST:,} of {len(names):,} files were searched"
    return Files(root, tuple(names), note)


def translated(glob: str) -> str:
    """A glob as a regular expression: `**` goes through directories, `{a,b}` is either; without `/` at any depth."""
    glob = glob.removeprefix("./")
    if "/" not in glob.rstrip("/"):
        glob = "**/" + glob
    if glob.endswith("/"):
        glob += "**"
    return f"(?s:{''.join(map(_piece, _PIECES.findall(glob)))})"


def _piece(piece: str) -> str:
    if len(piece) > 2 and piece[0] == "[":
        inside = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^/{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
    return _MEANINGS.get(piece) or re.escape(piece)


def content(path: Path) -> bytes | None:
    """What a file holds; None for what is no text: links, devices, binary files and large ones."""
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data[:8192] else data


def is_large(path: Path) -> bool:
    """Whether it is text, and only too large."""
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_size <= LARGEST:
            return False
        with path.open("rb") as file:
            return b"\0" not in file.read(8192)
    except OSError:
        return False


def _by_git(root: Path, top: str) -> list[str]:
    """What git knows of; nothing where it knows nothing."""
    try:
        listed = subprocess.run(
            [*_GIT, "--", f":(literal){top or '.'}"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LISTING,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if listed.returncode:
        return []
    # A file in conflict is listed once for each side.
    return sorted({os.fsdecode(name) for name in listed.stdout.split(b"\0") if name})


def _walked(root: Path, top: str) -> Iterator[str]:
    start = root / top
    if start.is_file():
        yield top
        return
    found = 0
    for at, directories, names in os.walk(start):
        directories[:] = sorted(name for name in directories if name not in CLOSED)
        for name in sorted(names):
            path = os.path.join(at, name)
            yield path if os.path.isabs(top) else os.path.relpath(path, root)
            found += 1
            if found > MOST:
                return
