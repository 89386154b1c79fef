"""A comment's Markdown, as far as it matters whose words they are: prose, code, quotations, and what is hidden.

Pure, and linear in the length of the text.
Source of the rules: spec.commonmark.org (fenced and indented code, HTML blocks, code spans).
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple


class Span(NamedTuple):
    """A stretch of a comment, and how a reader meets it."""

    start: int
    end: int
    kind: Literal["prose", "hidden", "code", "quote"]


_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
_INLINE = re.compile(r"`+|<!--")


def spans_of(text: str) -> Iterator[Span]:
    """The whole text as spans, in order and without gaps."""
    begun = 0  # of the paragraph under way: code and comments inside it can reach over its lines
    for block in _blocks(text):
        if block.kind == "prose" and text[block.start : block.end].strip() and not _starts_item(text, block):
            continue
        yield from _inline(text, begun, block.start)
        begun = block.start
        if block.kind != "prose":
            yield block
            begun = block.end
    yield from _inline(text, begun, len(text))


def closed(text: str) -> str:
    """The text, with an end to a block of code that it leaves open, so that what follows it is not part of that."""
    ends = ("", *(f"\n{mark * count}" for count in range(3, 9) for mark in "`~"))
    return next((text + end for end in ends if _kind_behind(text + end) != "code"), text)


def _kind_behind(text: str) -> str:
    *_, last = (span for span in spans_of(f"{text}\n\nx") if span.end > span.start)
    return last.kind


def _starts_item(text: str, line: Span) -> bool:
    return _ITEM.match(text, line.start, line.end) is not None


def _blocks(text: str) -> Iterator[Span]:
    """Each line as one span; a comment that begins a line and is not closed on it may take many."""
    fence, in_list, may_indent = "", False, True
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        line = text[at:end]
        item = _ITEM.match(line)
        content = line[item.end() if item else 0 :].strip()
        indented = line.startswith(("    ", "\t"))
        kind: Literal["prose", "hidden", "code", "quote"] = "prose"
        if fence:
            kind = "code"
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif content and indented and may_indent and not in_list:
            kind = "code"
        elif content.startswith("<!--") and "-->" not in content[2:]:
            start = text.index("<!--", at)
            yield Span(at, start, "prose")
            at, end, kind = start, text.find("-->", start + 2) + 3, "hidden"
            end = len(text) if end == 2 else end  # never closed: GitHub shows nothing of the rest
        elif found := _FENCE.match(content):
            kind, fence = "code", found[0]
        elif content.startswith(">"):
            kind = "quote"
        yield Span(at, end, kind)
        may_indent = not content or (indented and kind == "code")
        in_list = item is not None or (in_list and (not content or line[0] in " \t"))
        at = end


def _inline(text: str, start: int, end: int) -> Iterator[Span]:
    """One paragraph, cut at its code spans and comments; what is never closed is plain text."""
    runs = defaultdict[int, list[int]](list)
    for found in _INLINE.finditer(text, start, end):
        if found[0][0] == "`":
            runs[len(found[0])].append(found.start())
    at = look = start
    closable = True  # once no `-->` is ahead, none will be: looked for again each time, it would cost n²
    while token := _INLINE.search(text, look, end):
        size, close = len(token[0]), -1
        if token[0][0] == "`":
            after = bisect_right(runs[size], token.start())
            close = runs[size][after] + size if after < len(runs[size]) else -1
        elif closable:
            close = text.find("-->", token.start() + 2, end) + 3
            closable = close != 2
            close = close if closable else -1
        look = max(close, token.end())
        if close >= 0:
            yield Span(at, token.start(), "prose")
            yield Span(token.start(), close, "code" if token[0][0] == "`" else "hidden")
            at = close
    yield Span(at, end, "prose")
