"""Reads issues from files and writes patches to files."""

import shlex
from pathlib import Path

from patchwright.bot.terminal.output import print_stderr
from patchwright.resolver.domain import Issue, Patch
from patchwright.resolver.errors import UsageError

# far more than GitHub accepts; a prompt with a longer text would be shortened anyway
MAX_ISSUE_BYTES = 4 << 20


def absolute_path(path: str) -> Path:
    """Returns the path resolved against the current directory."""
    return Path(path).resolve()


def read_issue(path: Path) -> Issue:
    """Reads an issue from a file. The first line of the file is the title of the issue. Raises UsageError if
    the file is unreadable, empty or not a text file.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_ISSUE_BYTES).decode("utf-8", errors="replace").strip().lstrip("# \r\n\t")
    except OSError as exc:
        raise UsageError(f"Cannot read the issue file {path}: {exc.strerror}. Check --issue") from exc
    if "\0" in text:
        raise UsageError(f"The issue file {path} is not a text file. Pass a file with text, such as Markdown")
    if not text:
        raise UsageError(
            f"The issue file {path} is empty. Describe the problem in it, with the title in the first line"
        )
    return Issue.from_text(text)


def check_writable(out: Path) -> None:
    """Checks that the file can be written. Call this before a run costs anything. Raises UsageError if the
    file cannot be written.
    """
    existed = out.exists()
    try:
        out.open("ab").close()
    except OSError as exc:
        raise UsageError(
            f"Cannot write the patch to {out}: {exc.strerror}. Choose a file in a writable directory"
        ) from exc
    if not existed:
        out.unlink()


def write_patch(out: str | None, patch: Patch) -> str | None:
    """Writes the patch to a file and returns the file's path, or None if the patch is empty. Raises
    UsageError if this fails.
    """
    if not out or patch.is_empty:
        return None
    try:
        Path(out).write_bytes(patch.diff)
    except OSError as exc:
        raise UsageError(
            f"Cannot write the patch to {out}: {exc.strerror}. The patch is in the run's log"
        ) from exc
    return out


def print_old_file_notice(out: str | None) -> None:
    """If no patch was written, says that the file of `--out` is still that of an earlier run."""
    if out and Path(out).exists():
        print_stderr(f"NOTICE: {out} was not written; an older file is still there.")


def apply_command(repository: Path, patch_file: str) -> str:
    """Returns the command that applies a patch to the work tree of a repository."""
    return shlex.join(("git", "-C", str(repository), "apply", str(absolute_path(patch_file))))
