"""Selects the files to search. They are below a path, their names match a glob, and git does not
ignore them.
"""

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 2_000_000  # Maximum bytes of a file that is searched. Larger files are usually generated.
GIT_TIMEOUT = 10  # seconds for git
MAX_FILES = 200_000  # Maximum number of files that are searched.
# Directories that have many files, but are rarely of interest. They are skipped only if the list of files
# does not come from git.
SKIPPED_DIRECTORIES = frozenset(
    {".git", ".hg", ".svn", ".tox", ".nox", ".venv", "__pycache__", "node_modules", ".mypy_cache"}
)
# Without `core.fsmonitor=false`, a hook in the repository's own configuration could run each time that files
# are listed.
_GIT_LS_FILES = tuple("git -c core.fsmonitor=false ls-files -z --cached --others --exclude-standard".split())

_GLOB_TOKEN = re.compile(r"\*\*/|\*\*|\[[!^]?[^\]]+\]|.", re.DOTALL)
_TOKEN_PATTERNS = {
    "**/": "(?:.*/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
    "{": "(?:",
    "}": ")",
    ",": "|",
}


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """Names of files below a directory."""

    root: Path
    names: tuple[str, ...]
    note: str = ""
    """A note for the model about the selection of the files. Empty if no note is needed."""

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        return ((name, self.root / name) for name in self.names)


def select_files(root: Path, top: str, glob: str) -> SelectedFiles:
    """Return the files at or below `top` whose names match the glob. An empty glob matches every name.

    `top` is an absolute path or a path below the root; "" means the root. If git lists no file there, for
    example because it ignores `top`, all files there are selected. Raises re.error if the glob is invalid.
    """
    matches = re.compile(glob_to_regex(glob)).fullmatch if glob else None
    names, note = _list_with_git(root, top), ""
    if not names and (found := sorted(_walk_files(root, top))):
        names = found
        ignored = top and not os.path.isabs(top) and (root / ".git").exists()
        note = "git ignores these files; they were searched because you named them" if ignored else ""
    if matches:
        names = [name for name in names if matches(name)]
    if len(names) > MAX_FILES:
        names, note = names[:MAX_FILES], f"only the first {MAX_FILES:,} of {len(names):,} files were searched"
    return SelectedFiles(root, tuple(names), note)


def glob_to_regex(glob: str) -> str:
    """Convert a glob to a regular expression. `**` also matches slashes. `{a,b}` matches a or b.

    A glob without `/` matches at any depth.
    """
    glob = glob.removeprefix("./")
    if "/" not in glob.rstrip("/"):
        glob = "**/" + glob
    if glob.endswith("/"):
        glob += "**"
    return f"(?s:{''.join(map(_translate_token, _GLOB_TOKEN.findall(glob)))})"


def _translate_token(piece: str) -> str:
    if len(piece) > 2 and piece[0] == "[":
        inside = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^/{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
    return _TOKEN_PATTERNS.get(piece) or re.escape(piece)


def read_source(path: Path) -> bytes | None:
    """Return the content of a file. Return None for a link, a device, a binary file or a large file."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data[:8192] else data


def is_too_large(path: Path) -> bool:
    """True if the path is a text file that is larger than the limit."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size <= MAX_FILE_BYTES:
            return False
        with path.open("rb") as file:
            return b"\0" not in file.read(8192)
    except OSError:
        return False


def _list_with_git(root: Path, top: str) -> list[str]:
    """Return the files that git lists. If git fails, the result is empty."""
    try:
        listed = subprocess.run(
            [*_GIT_LS_FILES, "--", f":(literal){top or '.'}"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if listed.returncode:
        return []
    # A file with a merge conflict is listed once for each side.
    return sorted({os.fsdecode(name) for name in listed.stdout.split(b"\0") if name})


def _walk_files(root: Path, top: str) -> Iterator[str]:
    start = root / top
    if start.is_file():
        yield top
        return
    count = 0
    for directory, directories, names in os.walk(start):
        directories[:] = sorted(name for name in directories if name not in SKIPPED_DIRECTORIES)
        for name in sorted(names):
            path = os.path.join(directory, name)
            yield path if os.path.isabs(top) else os.path.relpath(path, root)
            count += 1
            if count > MAX_FILES:
                return
