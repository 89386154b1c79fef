"""Makes the output of programs readable: limits its length, removes control codes, and adds a note where text
is left out.
"""

import re
from dataclasses import dataclass

MAX_CHARS = 30_000  # Maximum characters of one output that a reader receives.
MAX_LINE = 160  # Characters of a text that is shortened to one line.
MAX_CAPTURED_BYTES = 1 << 20  # Maximum bytes that are kept of one output while the output arrives.

# Matches ECMA-48 control sequences. A string sequence ends at the end of its line at the latest. So a string
# sequence that is never closed hides only one line.
_CONTROL_SEQUENCE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"
    "|\x1b[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"
    "|\x1b[ -/]*[0-~]"
    "|[\x01-\x07\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]"
)
_OVERSTRUCK = re.compile("[^\n\x08]\x08")


@dataclass(frozen=True, slots=True)
class CapturedOutput:
    """The head and the tail of a stream. The part between them was dropped; it had `cut_bytes` bytes and
    `cut_lines` newlines.
    """

    head: bytes
    tail: bytes = b""
    cut_bytes: int = 0
    cut_lines: int = 0


class OutputCapture:
    """Collects a stream of any length in limited memory. Keeps the first and the last `max_bytes / 2`
    bytes.
    """

    def __init__(self, max_bytes: int = MAX_CAPTURED_BYTES) -> None:
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._cut_bytes = 0
        self._cut_lines = 0

    def add(self, data: bytes | bytearray | memoryview) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:
            self._trim()

    def take(self) -> CapturedOutput:
        """Return the output that was collected so far."""
        self._trim()
        return CapturedOutput(bytes(self._head), bytes(self._tail), self._cut_bytes, self._cut_lines)

    def _trim(self) -> None:
        if (excess := len(self._tail) - self._half) > 0:
            self._cut_bytes += excess
            self._cut_lines += self._tail.count(b"\n", 0, excess)
            del self._tail[:excess]


def join_bytes(captured: CapturedOutput) -> bytes:
    """Return the head and the tail. If bytes between them were dropped, a line says how many."""
    if not captured.cut_bytes:
        return captured.head + captured.tail
    return captured.head + b"\n[... %d bytes not kept ...]\n" % captured.cut_bytes + captured.tail


def decode_output(data: bytes) -> str:
    """Return the text as a terminal would show it, with carriage returns and backspaces applied.

    Control codes are removed. Invalid UTF-8 and NUL become U+FFFD.
    """
    text = data.decode("utf-8", "replace").replace("\0", "\ufffd")
    text = _CONTROL_SEQUENCE.sub("", text)
    # The number of rounds is limited: a hostile sequence of backspaces must not take quadratic time.
    for _ in range(4):
        if "\x08" not in text:
            break
        text = _OVERSTRUCK.sub("", text)
    text = text.replace("\x08", "")
    if "\r" in text:
        text = "\n".join(_apply_carriage_returns(line) for line in text.split("\n"))
    return text


def _apply_carriage_returns(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line


def clip(text: str, limit: int = MAX_CHARS) -> str:
    """Return the whole text if it fits into `limit`. Otherwise, return its head and its tail. A line between
    them says how many lines were left out.
    """
    if len(text) <= limit:
        return text
    return _join_clipped(text, text, limit, hidden=-len(text), hidden_lines=-text.count("\n"))


def clip_captured(captured: CapturedOutput, limit: int = MAX_CHARS) -> str:
    """Decode captured output and shorten it to `limit` characters. A note about the missing lines may make
    the result longer.
    """
    if not captured.cut_bytes:
        return clip(decode_output(captured.head + captured.tail), limit)
    return _join_clipped(
        decode_output(captured.head),
        decode_output(captured.tail),
        limit,
        captured.cut_bytes,
        captured.cut_lines,
    )


def _join_clipped(head: str, tail: str, limit: int, hidden: int, hidden_lines: int) -> str:
    # `hidden` is the number of characters between the head and the tail. It is negative if head and tail
    # overlap.
    first, last = _clip_head(head, limit // 2), _clip_tail(tail, limit // 2)
    lines = head.count("\n") + hidden_lines + tail.count("\n") + (not tail.endswith("\n"))
    omitted = len(head) - len(first) + hidden + len(tail) - len(last)
    above = first.count("\n")
    below = last.count("\n") + (not last.endswith("\n"))
    start, end = above + 1, lines - below
    if first.endswith("\n") and end >= start and _starts_line(tail, last):
        where = f"lines {start:,}-{end:,} of {lines:,}"
    else:
        where = f"from inside line {start:,} to inside line {max(start, end + 1):,} of {lines:,}"
    separator = "" if first.endswith("\n") or not first else "\n"
    return f"{first}{separator}[... {where} left out: {omitted:,} characters ...]\n{last}"


def _clip_head(text: str, budget: int) -> str:
    if len(text) <= budget:
        return text
    line_end = text.rfind("\n", 0, budget) + 1
    return text[:line_end] if line_end > budget // 2 else text[:budget]


def _clip_tail(text: str, budget: int) -> str:
    if len(text) <= budget:
        return text
    start = len(text) - budget
    line_start = text.find("\n", start - 1) + 1
    return text[line_start:] if 0 < line_start < start + budget // 2 else text[start:]


def _starts_line(text: str, tail: str) -> bool:
    return len(tail) < len(text) and text[len(text) - len(tail) - 1] == "\n"


def clip_line(text: str, limit: int = MAX_LINE) -> str:
    """Returns the text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
