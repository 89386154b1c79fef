"""Saves long output, which cannot be read at once, to files in the scratch directory."""

import asyncio
import itertools
from pathlib import Path

from patchwright.runtime.output_text import MAX_CHARS, CapturedOutput, join_bytes

# How many of the most recent outputs are kept. Each has at most 1 MiB. The number is small, because a scratch
# directory may be in memory.
MAX_FILES = 16


class OutputFiles:
    """Saves the most recent long outputs to numbered files."""

    def __init__(self, directory: Path, stem: str = "output") -> None:
        self._directory = directory
        self._stem = stem
        self._numbers = itertools.count(1)
        self._files: list[Path] = []

    async def save(self, captured: CapturedOutput) -> str | None:
        """Save a long output, and return a sentence that contains the path of its file. Return None if the
        output is short or cannot be saved.
        """
        if len(captured.head) + len(captured.tail) <= MAX_CHARS:
            return None
        path = await asyncio.to_thread(self._write, join_bytes(captured))
        if path is None:
            return None
        part = "the first and last parts" if captured.cut_bytes else "all"
        return f"{path} contains {part} of this output"

    def _write(self, content: bytes) -> Path | None:
        while len(self._files) >= MAX_FILES:
            self._files.pop(0).unlink(missing_ok=True)
        path = self._directory / f"{self._stem}-{next(self._numbers)}.txt"
        try:
            # With the mode "x", this never writes through a link that a command has created under this name.
            with path.open("xb") as file:
                file.write(content)
        except OSError:
            # The disk is full, or the directory is missing. The agent still sees the shortened output, and
            # the shell continues.
            path.unlink(missing_ok=True)
            return None
        self._files.append(path)
        return path
