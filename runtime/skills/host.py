"""Gives the functions of a Python session two services from outside the session: a model and a document converter.

The session's start script calls `connect` to provide these services, before the first cell runs.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence

AskModel = Callable[..., str]

_ask_model: AskModel | None = None
_documents_command: tuple[str, ...] | None = None
_missing_message = "documents cannot be read in this session"
_scratch_directory: str | None = None


def connect(
    *,
    ask_model: AskModel | None = None,
    documents_command: Sequence[str] | None = None,
    missing_message: str | None = None,
    scratch: str | None = None,
) -> None:
    """Configure how to ask a model and how to convert documents.

    `ask_model(modality, files, task, model)` returns the answer, or raises RuntimeError with the reason.
    `documents_command` is the beginning of the converter's command line. If it is None, the converter is not
    installed, and `missing_message` says why. `scratch` is a directory for temporary files.
    """
    global _ask_model, _documents_command, _missing_message, _scratch_directory
    _ask_model, _scratch_directory = ask_model, scratch
    _documents_command = None if documents_command is None else tuple(documents_command)
    _missing_message = missing_message or _missing_message


def ask_model(modality: str, files: Sequence[str], task: str, model: str | None = None) -> str:
    """Return a model's answer to a task about files of this machine (absolute paths).

    `modality` is `image`, `audio` or `video`. For `video`, `files` are the frames in their order. If there is no
    answer, raises RuntimeError, which contains the reason.
    """
    if _ask_model is None:
        raise RuntimeError("no model is available in this session")
    return _ask_model(modality, list(files), task, model)


def convert_document(*arguments: str) -> str:
    """Return the output of the document converter. Raises RuntimeError with the reason if it fails."""
    if _documents_command is None:
        raise RuntimeError(_missing_message)
    # The program limits its own time, memory and output; this timeout is for a stalled machine.
    try:
        completed = subprocess.run(
            [*_documents_command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"the document converter could not be run: {error}") from error
    if completed.returncode < 0:
        raise RuntimeError("reading the file exceeds the limit of time or memory for a document")
    if completed.returncode:
        raise RuntimeError(completed.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
    return completed.stdout.decode("utf-8", "replace")


def scratch_directory() -> str:
    """Return a directory of this session for temporary files."""
    global _scratch_directory
    if _scratch_directory is None or not os.path.isdir(_scratch_directory):
        _scratch_directory = tempfile.mkdtemp(prefix="agentskills-")
    return _scratch_directory
