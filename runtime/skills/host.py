"""What a skill cannot do in this session: ask a model, and have a document converted.

Whoever starts the session sets these names before the first cell; see `connect`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence

Ask = Callable[..., str]

_ask: Ask | None = None
_documents: tuple[str, ...] | None = None
_missing = "documents cannot be read here"
_scratch: str | None = None


def connect(
    *,
    ask: Ask | None = None,
    documents: Sequence[str] | None = None,
    missing: str | None = None,
    scratch: str | None = None,
) -> None:
    """Say how a model is asked and how documents are converted.

    `ask(sense, files, task, model)` gives the answer, or raises RuntimeError with the reason why there is none.
    `documents`: the beginning of the command line (`Plugins.documents_command`); None: for the reason `missing`.
    `scratch`: a directory for temporary files.
    """
    global _ask, _documents, _missing, _scratch
    _ask, _scratch = ask, scratch
    _documents = None if documents is None else tuple(documents)
    _missing = missing or _missing


def ask(sense: str, files: Sequence[str], task: str, model: str | None = None) -> str:
    """A model's answer to a task about files of this machine (absolute paths).

    `sense` is `image`, `audio` or `video` (its frames in order). Raises RuntimeError with the reason why there is
    no answer.
    """
    if _ask is None:
        raise RuntimeError("no model can be asked from here")
    return _ask(sense, list(files), task, model)


def convert(*arguments: str) -> str:
    """What the documents program prints. Raises RuntimeError with the reason why there is nothing."""
    if _documents is None:
        raise RuntimeError(_missing)
    # The program limits its own seconds, memory and output; this is for a machine that stands still.
    try:
        ran = subprocess.run(
            [*_documents, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"the program that reads documents could not be run: {error}") from error
    if ran.returncode < 0:
        raise RuntimeError("it takes more time or memory to read than a document may")
    if ran.returncode:
        raise RuntimeError(ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
    return ran.stdout.decode("utf-8", "replace")


def scratch() -> str:
    """A directory of this session for temporary files."""
    global _scratch
    if _scratch is None or not os.path.isdir(_scratch):
        _scratch = tempfile.mkdtemp(prefix="agentskills-")
    return _scratch
