"""Lists two levels of a directory as text."""

import os
from pathlib import Path

from patchwright.runtime.output_text import clip

MAX_ENTRIES = 400
# Directories that have many entries, but are rarely of interest.
_SKIPPED_DIRECTORIES = frozenset(
    {".git", ".hg", ".tox", ".nox", ".venv", "__pycache__", "node_modules", ".mypy_cache"}
)


def list_directory(directory: Path, name: str) -> str:
    """List two levels of a directory. The names of directories end in a slash. If entries are left out, a
    note says how many.
    """
    lines: list[str] = [f"{name}/"]
    omitted = 0
    for path, subdirectory in _scan_entries(directory):
        if len(lines) > MAX_ENTRIES:
            omitted += 1
            continue
        lines.append("  " + path)
        for inner, _ in _scan_entries(directory / subdirectory) if subdirectory else ():
            if len(lines) > MAX_ENTRIES:
                omitted += 1
            else:
                lines.append("    " + inner)
    if omitted:
        lines.append(f"[{omitted:,} more entries not shown: name a directory below, or use find]")
    return clip("\n".join(lines))


def _scan_entries(directory: Path) -> list[tuple[str, str]]:
    """Return two texts for each entry: the text to show, and the name of the directory if the entry is a
    directory whose entries are also listed. For other entries, the second text is "".
    """
    try:
        with os.scandir(directory) as iterator:
            entries = sorted(iterator, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        return [(f"[cannot be listed: {error.strerror}]", "")]
    result = []
    for entry in entries:
        name = os.fsencode(entry.name).decode("utf-8", "replace")
        name = "".join(char if char.isprintable() else "\ufffd" for char in name)
        if entry.is_symlink():
            result.append((f"{name} -> {os.fsencode(_link_target(entry)).decode('utf-8', 'replace')}", ""))
        elif entry.is_dir():
            is_skipped = entry.name in _SKIPPED_DIRECTORIES
            result.append(
                (f"{name}/" + (" (not listed)" if is_skipped else ""), "" if is_skipped else entry.name)
            )
        else:
            result.append((name, ""))
    return result


def _link_target(entry: "os.DirEntry[str]") -> str:
    try:
        return os.readlink(entry.path)
    except OSError:
        return "?"
