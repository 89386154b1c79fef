"""The files that the command line reads and writes: an issue, a patch."""

import os
from pathlib import Path

from resolver.domain import Issue, Patch, User
from resolver.errors import UsageError

ISSUE_LIMIT = 4 << 20  # bytes; far more than a forge takes, and the brief cuts it anyway


def absolute(path: str) -> Path:
    """What somebody named, from where the command was given."""
    return Path(path).resolve()


def read_issue(path: Path) -> Issue:
    """An issue from a file: its first line is the title. Raises UsageError when it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(ISSUE_LIMIT).decode("utf-8", errors="replace").strip().lstrip("# \r\n\t")
    except OSError as exc:
        raise UsageError(f"the issue file {path} cannot be read: {exc.strerror}") from exc
    if "\0" in text:
        raise UsageError(f"the issue file {path} is no text: it has NUL bytes in it")
    if not text:
        raise UsageError(
            f"the issue file {path} is empty: write what is wrong into it, the title in its first line"
        )
    title, _, body = text.partition("\n")
    nobody = User(id=0, login="operator")  # "you" would be the model
    return Issue(
        number=1,
        title=title.strip(),
        body=body.strip(),
        author=nobody,
        trusted=True,
        open=True,
        url="",
    )


def check_writable(out: Path) -> None:
    """Before a run is paid for. Raises UsageError."""
    if out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK):
        raise UsageError(
            f"the patch could not be written to {out}: name a file in a directory that you may write"
        )


def write_patch(out: str | None, patch: Patch) -> str | None:
    """Where the patch was written; None: nowhere. Raises UsageError."""
    if not out or patch.empty:
        return None
    try:
        Path(out).write_bytes(patch.diff)
    except OSError as exc:
        raise UsageError(
            f"the patch cannot be written to {out}: {exc.strerror}; it is in the run's log"
        ) from exc
    return out
