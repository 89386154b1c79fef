"""A directory of two levels as text."""

import os
from pathlib import Path

from runtime.text import clip

ENTRIES = 400
# What is in them is rarely looked for and always long.
_CLOSED = frozenset({".git", ".hg", ".tox", ".nox", ".venv", "__pycache__", "node_modules", ".mypy_cache"})


def listing(directory: Path, name: str) -> str:
    """Two levels below a directory, directories marked by a slash, with a note about what is not shown."""
    lines: list[str] = [f"{name}/"]
    left_out = 0
    for path, deeper in _entries(directory):
        if len(lines) > ENTRIES:
            left_out += 1
            continue
        lines.append("  " + path)
        for inner, _ in _entries(directory / deeper) if deeper else ():
            if len(lines) > ENTRIES:
                left_out += 1
            else:
                lines.append("    " + inner)
    if left_out:
        lines.append(f"[{left_out:,} more entries not shown: name a directory below, or use find]")
    return clip("\n".join(lines))


def _entries(directory: Path) -> list[tuple[str, str]]:
    """(name as shown, name of a directory to go into or "")."""
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        return [(f"[cannot be listed: {error.strerror}]", "")]
    listed = []
    for entry in entries:
        shown = os.fsencode(entry.name).decode("utf-8", "replace")
        shown = "".join(char if char.isprintable() else "\ufffd" for char in shown)
        if entry.is_symlink():
            listed.append((f"{shown} -> {os.fsencode(_target(entry)).decode('utf-8', 'replace')}", ""))
        elif entry.is_dir():
            closed = entry.name in _CLOSED
            listed.append((f"{shown}/" + (" (not listed)" if closed else ""), "" if closed else entry.name))
        else:
            listed.append((shown, ""))
    return listed


def _target(entry: "os.DirEntry[str]") -> str:
    try:
        return os.readlink(entry.path)
    except OSError:
        return "?"
