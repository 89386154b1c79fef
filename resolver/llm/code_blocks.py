"""Finds fenced code blocks in a model's reply."""

import re
from dataclasses import dataclass

_FENCE = re.compile(r"(^[ \t]*)?(`{3,})([ \t\r]*$)?", re.MULTILINE)
_LANGUAGE = re.compile(r"[ \t]*([A-Za-z0-9_+#.-]*)[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    language: str
    """The word after the opening fence, in lowercase. It is empty if there is no such word."""
    text: str
    """The text between the fences, without the line breaks next to them."""
    start: int
    end: int
    """End offset of the block: `reply[start:end]` includes both fences."""


def parse_code_blocks(reply: str) -> list[CodeBlock]:
    """Returns the fenced blocks of a reply in order. A fence that is never closed opens no block.

    A block that opens at the start of a line may have one word after its opening fence. The block ends at the
    next line that contains only a fence of at least the same length. If there is no such line, or if the block
    opens in the middle of a line, the next fence of any kind ends the block. The function takes linear time.
    """
    fences = list(_FENCE.finditer(reply))
    longest_closing = _longest_fences(fences)
    blocks: list[CodeBlock] = []
    index = 0
    while index < len(fences) - 1:
        opening, closing_index, language_name = fences[index], index + 1, ""
        start = opening.end(2)
        if opening[1] is not None and (language := _LANGUAGE.match(reply, start)):
            language_name, start = language[1].lower(), language.end()
            if longest_closing[closing_index] >= len(opening[2]):
                while not _closes(fences[closing_index], opening):
                    closing_index += 1
        closing_fence = fences[closing_index]
        blocks.append(
            CodeBlock(
                language_name,
                _strip_line_breaks(reply[start : closing_fence.start(2)]),
                opening.start(2),
                closing_fence.end(2),
            )
        )
        index = closing_index + 1
    return blocks


def _is_alone_on_line(fence: re.Match[str]) -> bool:
    """Returns True if the line contains only the fence."""
    return fence[1] is not None and fence[3] is not None


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return _is_alone_on_line(fence) and len(fence[2]) >= len(opening[2])


def _longest_fences(fences: list[re.Match[str]]) -> list[int]:
    """Returns one length for each fence: the length of the longest fence from this fence to the end.

    Counts only fences that are alone on their line. The length is 0 if there is none.
    """
    lengths: list[int] = []
    for fence in reversed(fences):
        longest = lengths[-1] if lengths else 0
        lengths.append(max(longest, len(fence[2])) if _is_alone_on_line(fence) else longest)
    return lengths[::-1]


def _strip_line_breaks(text: str) -> str:
    """Removes the line break after the opening fence and the line break before the closing fence."""
    text = text.replace("\r\n", "\n").removeprefix("\n")
    head, separator, indent = text.rpartition("\n")
    return head if separator and not indent.strip() else text
