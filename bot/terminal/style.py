"""Detects what a terminal supports, colors text, and measures the width of text."""

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Style:
    """Adds colors to text if colors are enabled. The text must not contain control characters."""

    enabled: bool = False

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def red(self, text: str) -> str:
        return self._wrap("31", text)

    def green(self, text: str) -> str:
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        return self._wrap("33", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text


NO_COLOR = Style()


def detect_style(stream: TextIO, environ: Mapping[str, str]) -> Style:
    """Returns the style for a stream. Colors are enabled if the terminal supports them or FORCE_COLOR is set.

    NO_COLOR always disables colors. Source: no-color.org, force-color.org
    """
    if environ.get("NO_COLOR"):
        return Style(False)
    if force := environ.get("FORCE_COLOR"):
        return Style(force not in ("0", "false"))
    return Style(_supports_ansi(stream, environ))


def can_redraw(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Returns True if a frame can be redrawn in place. This needs an interactive terminal that can move the
    cursor.
    """
    return _supports_ansi(stream, environ) and environ.get("CI", "").lower() in ("", "0", "false")


def _supports_ansi(stream: TextIO, environ: Mapping[str, str]) -> bool:
    return stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Returns the terminal's number of columns and lines; 80 and 24 if they are unknown."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except OSError:
        columns, lines = 0, 0
    return os.terminal_size((columns or 80, lines or 24))


def display_width(text: str) -> int:
    """Returns the approximate number of terminal cells that a line takes."""
    return sum(map(_char_width, text))


def truncate(text: str, width: int) -> str:
    """Returns one line of at most `width` cells. If the text is longer, the line ends with `…`."""
    line = " ".join(text.split())
    if len(line) <= width and display_width(line) <= width:
        return line
    left, count = width - 1, 0
    # The slice limits the number of combining marks, because they have no width.
    for char in line[: 4 * width]:
        left -= _char_width(char)
        if left < 0:
            break
        count += 1
    return line[:count].rstrip() + "…" if width > 0 else ""


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
