"""Extracts the relevant part of a check's log while the log is downloaded, in bounded memory."""

import re
from collections import deque
from typing import NamedTuple

MAX_EXCERPT = 12_000  # Characters per check.
CONTEXT_LINES = 120  # Number of lines that are shown before an error.
MAX_BLOCKS = 6  # Number of errors that are shown with context: the first four and the last two.
MAX_ERROR_LINES = 30  # Number of additional lines that are shown because they mention errors.
MAX_LINE_LENGTH = 500  # Maximum characters of a line; the rest is not shown.
MAX_LINE_BYTES = 65_536  # Maximum bytes of a line; the rest is not read.

# GitHub Actions starts each line with a timestamp. In messages of GitHub Actions itself, `##[` follows the
# timestamp.
_TIMESTAMP = re.compile(r"\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z ?")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")
_ERROR_COMMAND = b"##[error]"
_ERROR_WORDS = re.compile(
    rb"\b(?:error|FAILED|FAILURE|failed|panic|Traceback|Exception|AssertionError|fatal|not ok)\b"
)


class _RawLine(NamedTuple):
    """A line that is not decoded yet. Only a few lines are ever decoded."""

    number: int
    start: bytes
    size: int

    @property
    def text(self) -> str:
        plain = _ANSI.sub("", _TIMESTAMP.sub("", self.start.decode(errors="replace"), count=1))
        if len(plain) <= MAX_LINE_LENGTH and self.size == len(self.start):
            return plain
        return f"{plain[:MAX_LINE_LENGTH]} ... ({self.size:,} bytes)"


class LogExcerpt:
    """Collects the relevant lines of a log that arrives in chunks."""

    def __init__(self) -> None:
        self._partial_line = bytearray()
        self._count = 0
        self._recent: deque[_RawLine] = deque(maxlen=CONTEXT_LINES)
        self._blocks: list[list[_RawLine]] = []
        self._omitted = 0
        self._error_lines: list[_RawLine] = []
        self._truncation_reason = ""

    def feed(self, chunk: bytes) -> None:
        """Processes the next bytes of the log."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._append(line)
            self._finish_line()
        self._append(rest)

    def mark_truncated(self, reason: str) -> None:
        """Records that the rest of the log is not read. `reason` says why, in a few words."""
        self._truncation_reason = reason

    def _append(self, part: bytes) -> None:
        self._partial_line += part[: max(0, MAX_LINE_BYTES - len(self._partial_line))]

    def _finish_line(self) -> None:
        content = bytes(self._partial_line).rstrip(b"\r")
        self._partial_line.clear()
        # Keep only the last state of a progress bar, which overwrites its line.
        content = content[content.rfind(b"\r") + 1 :]
        self._count += 1
        line = _RawLine(self._count, content[: MAX_LINE_LENGTH * 4], len(content))
        self._recent.append(line)
        if _ERROR_COMMAND in line.start and line.text.startswith(_ERROR_COMMAND.decode()):
            self._add_block(list(self._recent))
            self._recent.clear()
        elif len(self._error_lines) < MAX_ERROR_LINES and _ERROR_WORDS.search(line.start):
            self._error_lines.append(line)

    def _add_block(self, block: list[_RawLine]) -> None:
        self._blocks.append(block)
        if len(self._blocks) > MAX_BLOCKS:
            del self._blocks[MAX_BLOCKS - 2]
            self._omitted += 1

    def render(self, limit: int = MAX_EXCERPT) -> str:
        """Returns the excerpt, at most about `limit` characters. Returns an empty string if the log is
        empty.
        """
        if self._partial_line:
            self._finish_line()
        blocks = self._blocks or ([list(self._recent)] if self._recent else [])
        if not blocks:
            return ""
        shown = [_fit_block(block, (limit * 3 // 4) // len(blocks)) for block in blocks]
        shown_numbers = {line.number for block in shown for line in block}
        parts = [_format_block(block, self._count) for block in shown]
        if others := [line for line in self._error_lines if line.number not in shown_numbers]:
            listed = "\n".join(f"{line.number}: {line.text}" for line in others)
            parts.insert(0, f"[lines that mention errors, by number]\n{listed[: limit // 4]}")
        if self._omitted:
            parts.append(f"[{self._omitted} more errors in between]")
        if self._truncation_reason:
            parts.append(f"[the rest was not read: {self._truncation_reason}]")
        return "\n\n".join(parts)


def _fit_block(block: list[_RawLine], limit: int) -> list[_RawLine]:
    """Returns as many lines of the block as fit. If the block is too long, its first lines are omitted,
    because the last line contains the error.
    """
    fitting: list[_RawLine] = []
    for line in reversed(block):
        if (limit := limit - min(line.size, MAX_LINE_LENGTH) - 1) < 0 and fitting:
            break
        fitting.append(line)
    return fitting[::-1]


def _format_block(block: list[_RawLine], count: int) -> str:
    text = "\n".join(line.text for line in block)
    return f"[lines {block[0].number} to {block[-1].number} of {count}]\n{text}"
