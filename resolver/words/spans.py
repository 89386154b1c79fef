"""A comment's Markdown, as far as it matters whose words they are: prose, code, quotations, and what is hidden.

Pure, and linear in the length of the text.
Source of the rules: spec.commonmark.org (fenced and indented code, HTML blocks, code spans, raw HTML).
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple


class Span(NamedTuple):
    """A stretch of a comment, and how a reader meets it."""

    start: int
    end: int
    kind: Literal["prose", "hidden", "code", "quote"]


_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
# Possessive throughout: what is no tag is given up at once, and no text takes more than its length.
_ATTRIBUTE = r"""\s++[A-Za-z_:][\w:.-]*+(?:\s*+=\s*+(?:[^\s"'=<>`]++|'[^']*+'|"[^"]*+"))?+"""
_TAG = rf"""<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*+)(?:{_ATTRIBUTE})*+\s*+/?>"""
_TICKS = re.compile(r"`+")
_INLINE = re.compile(rf"`+|<!--|(?<!\\){_TAG}")
_ELEMENT = re.compile(_TAG)
_PRE = re.compile(r"<pre(?=[\s>])", re.IGNORECASE)
_PRE_END = re.compile(r"</pre>", re.IGNORECASE)

_ELEMENTS: dict[str, Literal["code", "quote"]] = {
    **dict.fromkeys(("pre", "code", "kbd", "samp", "tt"), "code"),
    **dict.fromkeys(("blockquote", "q"), "quote"),
}
_HOLD_THE_REST = ("pre", "blockquote")  # where they are never closed; the others are plain text then


def spans_of(text: str) -> Iterator[Span]:
    """The whole text as spans, in order and without gaps. Tags of HTML count as code."""
    return _within_elements(text, tuple(_markdown(text)))


def _markdown(text: str) -> Iterator[Span]:
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
    ends = ("", *(f"\n{mark * count}" for count in range(3, 9) for mark in "`~"), "\n</pre>")
    return next((text + end for end in ends if _kind_behind(text + end) != "code"), text)


def _kind_behind(text: str) -> str:
    *_, last = (span for span in spans_of(f"{text}\n\nx") if span.end > span.start)
    return last.kind


def _within_elements(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """The same spans, where prose inside of an element that shows code or quotes is that."""
    open_at = defaultdict[str, list[int]](list)
    depth = {
        kind: [0] * (len(spans) + 1) for kind in ("code", "quote")
    }  # how much deeper it is from there on
    for at, span in enumerate(spans):
        tag = _ELEMENT.fullmatch(text, span.start, span.end) if span.kind == "code" else None
        name = tag["name"].lower() if tag else ""
        if tag is None or name not in _ELEMENTS:
            continue
        if not tag["end"]:
            open_at[name].append(at)
        elif open_at[name]:
            depth[_ELEMENTS[name]][open_at[name].pop()] += 1
            depth[_ELEMENTS[name]][at] -= 1
    for name in _HOLD_THE_REST:
        for at in open_at[name]:
            depth[_ELEMENTS[name]][at] += 1
    for span, code, quoted in zip(spans, accumulate(depth["code"]), accumulate(depth["quote"]), strict=False):
        if span.kind == "prose" and (code or quoted):
            yield span._replace(kind="code" if code else "quote")
        else:
            yield span


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
        elif _PRE.match(content):
            found = _PRE_END.search(text, at)
            end, kind = found.end() if found else len(text), "code"
        elif found := _FENCE.match(content):
            kind, fence = "code", found[0]
        elif content.startswith(">"):
            kind = "quote"
        yield Span(at, end, kind)
        may_indent = not content or (indented and kind == "code")
        in_list = item is not None or (in_list and (not content or line[0] in " \t"))
        at = end


def _inline(text: str, start: int, end: int) -> Iterator[Span]:
    """One paragraph, cut at its code spans, tags and comments; what is never closed is plain text."""
    runs = defaultdict[int, list[int]](list)
    for found in _TICKS.finditer(text, start, end):
        runs[len(found[0])].append(found.start())
    at = look = start
    closable = True  # once no `-->` is ahead, none will be: looked for again each time, it would cost n²
    while token := _INLINE.search(text, look, end):
        size, close = len(token[0]), -1
        if token[0][0] == "`":
            after = bisect_right(runs[size], token.start())
            close = runs[size][after] + size if after < len(runs[size]) else -1
        elif token[0] != "<!--":
            close = token.end()
        elif closable:
            close = text.find("-->", token.start() + 2, end) + 3
            closable = close != 2
            close = close if closable else -1
        look = max(close, token.end())
        if close >= 0:
            yield Span(at, token.start(), "prose")
            yield Span(token.start(), close, "hidden" if token[0] == "<!--" else "code")
            at = close
    yield Span(at, end, "prose")
