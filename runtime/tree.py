"""Where files may be touched: the work tree and the scratch directory, symbolic links included."""

import os
import stat
from pathlib import Path
from typing import Literal

from runtime.observations import Failed

LONGEST = 4096  # characters of a path, as in Linux

Reason = Literal["malformed", "not_found", "refused", "ambiguous", "binary", "too_large", "exists", "io"]


class Unfit(Exception):
    """The action cannot be done; becomes the observation that says what to do instead."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.failed = Failed(reason=reason, message=message)


class Tree:
    """A work tree and its scratch directory."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root.resolve()
        self.scratch = scratch.resolve()

    def find(self, path: str) -> Path:
        """The real path of a file, existing or not.

        Raises Unfit for what lies outside of the work tree and the scratch directory once links are followed.
        """
        if "\0" in path:
            raise Unfit("malformed", "a path cannot hold a NUL character")
        if len(path) > LONGEST:
            raise Unfit("malformed", f"a path has at most {LONGEST} characters")
        try:
            real = Path(os.path.realpath(self.root / path))
            inside = real.is_relative_to(self.root) or real.is_relative_to(self.scratch)
        except (OSError, ValueError) as error:
            raise Unfit("malformed", f"{path}: not a usable path ({error})") from error
        if not inside:
            raise Unfit(
                "refused",
                f"{path} is outside of the work tree {self.root}: copy what you need into it or below "
                f"{self.scratch} with run_shell, or read it there",
            )
        return real

    def file(self, path: str) -> Path:
        """The real path of an existing regular file."""
        real = self.find(path)
        try:
            mode = real.stat().st_mode
        except OSError as error:
            raise missing(path, error) from error
        if stat.S_ISDIR(mode):
            raise Unfit("refused", f"{path} is a directory: name a file in it")
        if not stat.S_ISREG(mode):
            raise Unfit("refused", f"{path} is not a regular file: look at it with run_shell")
        return real

    def name(self, real: Path) -> str:
        """A path as a reader should see it: relative inside the work tree."""
        shown = real.relative_to(self.root) if real.is_relative_to(self.root) else real
        return os.fsencode(shown).decode("utf-8", "replace")


def missing(path: str, error: OSError) -> Unfit:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Unfit(
            "not_found", f"{path} does not exist: list its directory, or search with find or git ls-files"
        )
    return Unfit("io", f"{path}: {error.strerror or error}")
