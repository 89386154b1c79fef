"""What a stream can show: colours, a picture that stands in place, lines of so many cells."""

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Ink:
    """Colours, or none. It takes text that is free of control codes already."""

    on: bool = False

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def dim(self, text: str) -> str:
        return self._in("2", text)

    def red(self, text: str) -> str:
        return self._in("31", text)

    def green(self, text: str) -> str:
        return self._in("32", text)

    def yellow(self, text: str) -> str:
        return self._in("33", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text


COLOURLESS = Ink()


def ink_for(stream: TextIO, environ: Mapping[str, str]) -> Ink:
    """Colours on a terminal that has them, or where FORCE_COLOR asks for them; never where NO_COLOR is set.

    Source: no-color.org, force-color.org
    """
    if environ.get("NO_COLOR"):
        return Ink(False)
    if forced := environ.get("FORCE_COLOR"):
        return Ink(forced not in ("0", "false"))
    return Ink(_moves(stream, environ))


def can_stand(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a picture can stand in place there: a terminal that a person looks at, and that can move its cursor."""
    return _moves(stream, environ) and environ.get("CI", "").lower() in ("", "0", "false")


def _moves(stream: TextIO, environ: Mapping[str, str]) -> bool:
    return stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def size_of(stream: TextIO) -> os.terminal_size:
    """Columns and lines, as they are now; 80 by 24 where nobody knows."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except OSError:
        columns, lines = 0, 0
    return os.terminal_size((columns or 80, lines or 24))


def cells(text: str) -> int:
    """How many cells of a terminal a line takes, as far as anybody can tell."""
    return sum(map(_cells, text))


def fit(text: str, width: int) -> str:
    """One line of at most `width` cells; what is too long ends in `…`."""
    line = " ".join(text.split())
    if len(line) <= width and cells(line) <= width:
        return line
    left, kept = width - 1, 0
    for char in line[
        : 4 * width
    ]:  # marks take no cell: a thousand of them on one letter are cut off all the same
        left -= _cells(char)
        if left < 0:
            break
        kept += 1
    return line[:kept].rstrip() + "…" if width > 0 else ""


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
