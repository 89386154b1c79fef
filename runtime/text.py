"""Output of programs made fit to read: bounded as it streams, without control codes, clipped with a note."""

import re
from dataclasses import dataclass

LIMIT = 30_000  # characters of one output that a reader gets
KEPT = 1 << 20  # bytes of one output that are kept while it streams

# ECMA-48 control sequences; a string sequence ends with its line, so that an unclosed one hides no text.
_CONTROL = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"
    "|\x1b[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"
    "|\x1b[ -/]*[0-~]"
    "|[\x01-\x07\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]"
)
_OVERSTRUCK = re.compile("[^\n\x08]\x08")


@dataclass(frozen=True, slots=True)
class Captured:
    """Head and tail of a stream; `cut_bytes` with `cut_lines` newlines in between were not kept."""

    head: bytes
    tail: bytes = b""
    cut_bytes: int = 0
    cut_lines: int = 0


class Capture:
    """Collects a stream of any length in bounded memory: its first and its last `keep / 2` bytes."""

    def __init__(self, keep: int = KEPT) -> None:
        self._half = keep // 2
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

    def take(self) -> Captured:
        """What was collected so far."""
        self._trim()
        return Captured(bytes(self._head), bytes(self._tail), self._cut_bytes, self._cut_lines)

    def _trim(self) -> None:
        if (over := len(self._tail) - self._half) > 0:
            self._cut_bytes += over
            self._cut_lines += self._tail.count(b"\n", 0, over)
            del self._tail[:over]


def raw(captured: Captured) -> bytes:
    """The bytes, with a line in the middle that says how many are missing."""
    if not captured.cut_bytes:
        return captured.head + captured.tail
    return captured.head + b"\n[... %d bytes not kept ...]\n" % captured.cut_bytes + captured.tail


def readable(data: bytes) -> str:
    """Text as a terminal would show it in the end: no control codes, carriage returns and backspaces obeyed.

    Invalid UTF-8 and NUL become U+FFFD.
    """
    text = data.decode("utf-8", "replace").replace("\0", "\ufffd")
    text = _CONTROL.sub("", text)
    for _ in range(4):  # bounded: a hostile row of backspaces must not cost quadratic time
        if "\x08" not in text:
            break
        text = _OVERSTRUCK.sub("", text)
    text = text.replace("\x08", "")
    if "\r" in text:
        text = "\n".join(_last_written(line) for line in text.split("\n"))
    return text


def _last_written(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line


def clip(text: str, limit: int = LIMIT) -> str:
    """The text, or its head and tail with a line between them that says which lines were left out."""
    if len(text) <= limit:
        return text
    return _around(text, text, limit, hidden=-len(text), hidden_lines=-text.count("\n"))


def shorten(captured: Captured, limit: int = LIMIT) -> str:
    """Captured output, readable and clipped to `limit` characters (the note comes on top)."""
    if not captured.cut_bytes:
        return clip(readable(captured.head + captured.tail), limit)
    return _around(
        readable(captured.head), readable(captured.tail), limit, captured.cut_bytes, captured.cut_lines
    )


def _around(head: str, tail: str, limit: int, hidden: int, hidden_lines: int) -> str:
    # `hidden` is what lies between the end of head and the start of tail; negative where the two overlap.
    first, last = _head(head, limit // 2), _tail(tail, limit // 2)
    lines = head.count("\n") + hidden_lines + tail.count("\n") + (not tail.endswith("\n"))
    left_out = len(head) - len(first) + hidden + len(tail) - len(last)
    above = first.count("\n")
    below = last.count("\n") + (not last.endswith("\n"))
    start, end = above + 1, lines - below
    if first.endswith("\n") and end >= start and _starts_line(tail, last):
        where = f"lines {start:,}-{end:,} of {lines:,}"
    else:
        where = f"from inside line {start:,} to inside line {max(start, end + 1):,} of {lines:,}"
    joint = "" if first.endswith("\n") or not first else "\n"
    return f"{first}{joint}[... {where} left out: {left_out:,} characters ...]\n{last}"


def _head(text: str, budget: int) -> str:
    if len(text) <= budget:
        return text
    border = text.rfind("\n", 0, budget) + 1
    return text[:border] if border > budget // 2 else text[:budget]


def _tail(text: str, budget: int) -> str:
    if len(text) <= budget:
        return text
    start = len(text) - budget
    border = text.find("\n", start - 1) + 1
    return text[border:] if 0 < border < start + budget // 2 else text[start:]


def _starts_line(text: str, tail: str) -> bool:
    return len(tail) < len(text) and text[len(text) - len(tail) - 1] == "\n"
