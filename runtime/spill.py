"""Output that is too long to read at once, kept in a file below the scratch directory."""

import asyncio
import itertools
from pathlib import Path

from runtime.text import LIMIT, Captured, raw

FILES = 16  # of the last outputs; each has at most 1 MiB, and a scratch directory may be memory


class Spill:
    """Keeps the last long outputs in numbered files."""

    def __init__(self, directory: Path, stem: str = "output") -> None:
        self._directory = directory
        self._stem = stem
        self._numbers = itertools.count(1)
        self._files: list[Path] = []

    async def keep(self, captured: Captured) -> str | None:
        """Where the output is, in words; None for one that is short enough to be shown, or cannot be kept."""
        if len(captured.head) + len(captured.tail) <= LIMIT:
            return None
        path = await asyncio.to_thread(self._write, raw(captured))
        if path is None:
            return None
        part = "first and last parts" if captured.cut_bytes else "whole"
        return f"{path} holds the {part} of this output"

    def _write(self, content: bytes) -> Path | None:
        while len(self._files) >= FILES:
            self._files.pop(0).unlink(missing_ok=True)
        path = self._directory / f"{self._stem}-{next(self._numbers)}.txt"
        try:
            with path.open("xb") as file:  # never through what a command has put in its place
                file.write(content)
        except OSError:  # a full disk, a directory that is gone: the output was shown, and the shell goes on
            path.unlink(missing_ok=True)
            return None
        self._files.append(path)
        return path
