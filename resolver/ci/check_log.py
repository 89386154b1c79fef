"""The part of a job's log that tells why it failed, picked while the log comes in: its length costs no memory."""

import re
from collections import deque
from typing import NamedTuple

MAX_LOG = 12_000  # characters of one check
CONTEXT = 120  # lines that lead to an error
BLOCKS = 6  # errors that are shown with what led to them: the first four, and the last two
NAMED = 30  # further lines that speak of errors
LINE = 500  # characters of a line that are kept
LONGEST = 65_536  # bytes of a line that are read

# Actions writes the time before each line, and begins what it has to say itself with `##[`.
_STAMP = re.compile(r"\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z ?")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")
_MARK = b"##[error]"
_SPEAKS = re.compile(
    rb"\b(?:error|FAILED|FAILURE|failed|panic|Traceback|Exception|AssertionError|fatal|not ok)\b"
)


class _Line(NamedTuple):
    """A line as it came: few of them are ever shown."""

    number: int
    start: bytes
    size: int

    @property
    def text(self) -> str:
        plain = _ANSI.sub("", _STAMP.sub("", self.start.decode(errors="replace"), count=1))
        if len(plain) <= LINE and self.size == len(self.start):
            return plain
        return f"{plain[:LINE]} ... ({self.size:,} bytes)"


class Excerpt:
    """Hears a log piece by piece."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._count = 0
        self._recent: deque[_Line] = deque(maxlen=CONTEXT)
        self._blocks: list[list[_Line]] = []
        self._left_out = 0
        self._named: list[_Line] = []
        self._broken_off = ""

    def feed(self, piece: bytes) -> None:
        """The next bytes of it."""
        *lines, rest = piece.split(b"\n")
        for line in lines:
            self._take(line)
            self._hear()
        self._take(rest)

    def break_off(self, why: str) -> None:
        """There is more of it, which is not read. `why`: a few words."""
        self._broken_off = why

    def _take(self, part: bytes) -> None:
        self._rest += part[: max(0, LONGEST - len(self._rest))]

    def _hear(self) -> None:
        whole = bytes(self._rest).rstrip(b"\r")
        self._rest.clear()
        whole = whole[whole.rfind(b"\r") + 1 :]  # what a progress bar has come to
        self._count += 1
        line = _Line(self._count, whole[: LINE * 4], len(whole))
        self._recent.append(line)
        if _MARK in line.start and line.text.startswith(_MARK.decode()):
            self._keep(list(self._recent))
            self._recent.clear()
        elif len(self._named) < NAMED and _SPEAKS.search(line.start):
            self._named.append(line)

    def _keep(self, block: list[_Line]) -> None:
        self._blocks.append(block)
        if len(self._blocks) > BLOCKS:
            del self._blocks[BLOCKS - 2]
            self._left_out += 1

    def text(self, limit: int = MAX_LOG) -> str:
        """What it has come to, at most about so many characters; empty: nothing was printed."""
        if self._rest:
            self._hear()
        blocks = self._blocks or ([list(self._recent)] if self._recent else [])
        if not blocks:
            return ""
        shown = [_fitting(block, (limit * 3 // 4) // len(blocks)) for block in blocks]
        inside = {line.number for block in shown for line in block}
        parts = [_titled(block, self._count) for block in shown]
        if others := [line for line in self._named if line.number not in inside]:
            listed = "\n".join(f"{line.number}: {line.text}" for line in others)
            parts.insert(0, f"[lines that speak of errors, by number]\n{listed[: limit // 4]}")
        if self._left_out:
            parts.append(f"[{self._left_out} more errors in between]")
        if self._broken_off:
            parts.append(f"[the rest was not read: {self._broken_off}]")
        return "\n\n".join(parts)


def _fitting(block: list[_Line], limit: int) -> list[_Line]:
    """Its last lines, as many as fit: the error is the last one."""
    kept: list[_Line] = []
    for line in reversed(block):
        if (limit := limit - min(line.size, LINE) - 1) < 0 and kept:
            break
        kept.append(line)
    return kept[::-1]


def _titled(block: list[_Line], count: int) -> str:
    text = "\n".join(line.text for line in block)
    return f"[lines {block[0].number} to {block[-1].number} of {count}]\n{text}"
