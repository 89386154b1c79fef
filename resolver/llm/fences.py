"""The fenced blocks of a reply that was written as text. One reading, for all who need it."""

import re
from dataclasses import dataclass

_FENCE = re.compile(r"(^[ \t]*)?(`{3,})([ \t\r]*$)?", re.MULTILINE)
_LANGUAGE = re.compile(r"[ \t]*([A-Za-z0-9_+#.-]*)[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    """The word after the opening fence, in small letters; empty when there is none."""
    text: str
    """What stands between the fences, without the line breaks next to them."""
    start: int
    end: int
    """Where the block, fences included, stands in the reply: `reply[start:end]`."""


def blocks(reply: str) -> list[Block]:
    """The blocks in order. A fence that is never closed opens none.

    A block whose fence begins a line, with nothing or one word after it, is closed by a line of as many backticks
    or more: fences within the lines of its code do not end it. Where no such line follows, and for a block within
    a line, the next fence does. Takes time in proportion to the reply's length.
    """
    fences = list(_FENCE.finditer(reply))
    longest = _longest_from(fences)
    found: list[Block] = []
    number = 0
    while number < len(fences) - 1:
        opening, closing, word = fences[number], number + 1, ""
        begin = opening.end(2)
        if opening[1] is not None and (language := _LANGUAGE.match(reply, begin)):
            word, begin = language[1].lower(), language.end()
            if longest[closing] >= len(opening[2]):
                while not _closes(fences[closing], opening):
                    closing += 1
        last = fences[closing]
        found.append(Block(word, _inner(reply[begin : last.start(2)]), opening.start(2), last.end(2)))
        number = closing + 1
    return found


def _alone(fence: re.Match[str]) -> bool:
    """Whether nothing else stands on its line."""
    return fence[1] is not None and fence[3] is not None


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return _alone(fence) and len(fence[2]) >= len(opening[2])


def _longest_from(fences: list[re.Match[str]]) -> list[int]:
    """For each fence: the length of the longest that is alone on its line, from it on."""
    lengths: list[int] = []
    for fence in reversed(fences):
        so_far = lengths[-1] if lengths else 0
        lengths.append(max(so_far, len(fence[2])) if _alone(fence) else so_far)
    return lengths[::-1]


def _inner(text: str) -> str:
    """Without the line break after the opening fence, and without the one before the closing fence."""
    text = text.replace("\r\n", "\n").removeprefix("\n")
    head, separator, indent = text.rpartition("\n")
    return head if separator and not indent.strip() else text
