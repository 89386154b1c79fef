"""Restricts file access to the work tree and the scratch directory. Symbolic links cannot lead out of
them.
"""

import os
import stat
from pathlib import Path
from typing import Literal

from patchwright.runtime.observations import ActionFailure

MAX_PATH_LENGTH = 4096  # Maximum characters of a path; this is the limit of Linux.

FailureReason = Literal[
    "malformed", "not_found", "refused", "ambiguous", "binary", "too_large", "exists", "io"
]


class ToolInputError(Exception):
    """The action cannot be carried out. The message becomes the observation, and says what to do instead."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.failure = ActionFailure(reason=reason, message=message)


class PathGuard:
    """Resolves paths within a work tree and its scratch directory."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root.resolve()
        self.scratch = scratch.resolve()

    def resolve(self, path: str) -> Path:
        """Return the real path of a file. The file need not exist.

        Follows all symbolic links. Raises ToolInputError if the result is outside of the work tree and the
        scratch directory.
        """
        if "\0" in path:
            raise ToolInputError("malformed", "a path must not contain a NUL character")
        if len(path) > MAX_PATH_LENGTH:
            raise ToolInputError("malformed", f"a path must not have more than {MAX_PATH_LENGTH} characters")
        try:
            real = Path(os.path.realpath(self.root / path))
            is_inside = real.is_relative_to(self.root) or real.is_relative_to(self.scratch)
        except (OSError, ValueError) as error:
            raise ToolInputError("malformed", f"{path} is not a valid path ({error})") from error
        if not is_inside:
            raise ToolInputError(
                "refused",
                f"{path} is outside of the work tree {self.root}: read the file with run_shell, or copy it into the "
                f"work tree or into {self.scratch}",
            )
        return real

    def resolve_file(self, path: str) -> Path:
        """Return the real path of an existing regular file. Raises ToolInputError if there is none."""
        real = self.resolve(path)
        try:
            mode = real.stat().st_mode
        except OSError as error:
            raise path_error(path, error) from error
        if stat.S_ISDIR(mode):
            raise ToolInputError("refused", f"{path} is a directory: give the path of a file in it")
        if not stat.S_ISREG(mode):
            raise ToolInputError("refused", f"{path} is not a regular file: look at it with run_shell")
        return real

    def display_path(self, real: Path) -> str:
        """Return the path to show to the model: relative if it is in the work tree, otherwise absolute."""
        shown = real.relative_to(self.root) if real.is_relative_to(self.root) else real
        return os.fsencode(shown).decode("utf-8", "replace")


def path_error(path: str, error: OSError) -> ToolInputError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ToolInputError(
            "not_found", f"{path} does not exist: list its directory, or search with find or git ls-files"
        )
    return ToolInputError("io", f"{path}: {error.strerror or error}")
