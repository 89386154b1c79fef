"""Splits a comment's Markdown into prose, code, quotes, link targets and hidden text.

The functions are pure and take linear time. Source of the rules: spec.commonmark.org (fenced and indented
code, HTML blocks, code spans, raw HTML, links), github.github.com/gfm (extended autolinks).
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

SpanKind: TypeAlias = Literal["prose", "hidden", "code", "quote", "link"]
"""`link` is the target and title of a link or an image, without its text."""


class MarkdownSpan(NamedTuple):
    """A range of a comment, and how it is rendered."""

    start: int
    end: int
    kind: SpanKind


_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
# Possessive quantifiers prevent backtracking, so that matching takes linear time.
_ATTRIBUTE = r"""\s++[A-Za-z_:][\w:.-]*+(?:\s*+=\s*+(?:[^\s"'=<>`]++|'[^']*+'|"[^"]*+"))?+"""
_TAG = rf"""<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*+)(?:{_ATTRIBUTE})*+\s*+/?>"""
_TICKS = re.compile(r"`+")
# Blank lines end a title, because they end the paragraph.
_TITLE = r"""(?:"(?:\\.|[^"\\\n]|\n(?!\s*\n))*+"|'(?:\\.|[^'\\\n]|\n(?!\s*\n))*+'|\((?:\\.|[^()\\])*+\))"""
_DESTINATION = r"(?:<[^<>\n]*+>|[^\s()<][^\s()]*+(?:\([^\s()]*+\)[^\s()]*+)*+)"
_LINK_TARGET = rf"(?<!\\)\]\(\s*+{_DESTINATION}?+(?:\s++{_TITLE})?+\s*+\)"
_URL = r"<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*+>|\b(?:https?://|www\.)[^\s<`]++"
_INLINE = re.compile(rf"`+|<!--|(?<!\\){_TAG}|{_LINK_TARGET}|{_URL}", re.IGNORECASE)
# Example: [name]: https://example.org "Title". Nothing of it is shown.
_LINK_DEFINITION = re.compile(
    r" {0,3}\[(?:\\.|[^\[\]\\])++\]:[ \t]*+\r?\n?[ \t]*+(?:<[^<>\n]*+>|[^\s<]\S*+)"
    rf"(?:(?:[ \t]++|[ \t]*+\r?\n[ \t]*+){_TITLE})?[ \t\r]*+(?:\n|\Z)"
)
_ELEMENT = re.compile(_TAG)
_PRE = re.compile(r"<pre(?=[\s>])", re.IGNORECASE)
_PRE_END = re.compile(r"</pre>", re.IGNORECASE)

_ELEMENTS: dict[str, Literal["code", "quote"]] = {
    **dict.fromkeys(("pre", "code", "kbd", "samp", "tt"), "code"),
    **dict.fromkeys(("blockquote", "q"), "quote"),
}
_RAW_TEXT_ELEMENTS = (
    "pre",
    "blockquote",
)  # An unclosed element of this kind extends to the end; other unclosed tags are text.


def parse_spans(text: str) -> Iterator[MarkdownSpan]:
    """Splits the whole text into spans, in order and without gaps. HTML tags count as code."""
    return _apply_elements(text, tuple(_parse_markdown(text)))


def _parse_markdown(text: str) -> Iterator[MarkdownSpan]:
    # Start of the current paragraph. Inline code and comments can span several of its lines.
    paragraph_start = 0
    for block in _parse_blocks(text):
        if block.kind == "prose" and text[block.start : block.end].strip() and not _is_list_item(text, block):
            continue
        yield from _parse_inline(text, paragraph_start, block.start)
        paragraph_start = block.start
        if block.kind != "prose":
            yield block
            paragraph_start = block.end
    yield from _parse_inline(text, paragraph_start, len(text))


def close_code_blocks(text: str) -> str:
    """Closes the last code block of a text and returns the text. Text that is appended later is then not part
    of the block.
    """
    ends = ("", *(f"\n{mark * count}" for count in range(3, 9) for mark in "`~"), "\n</pre>")
    return next((text + end for end in ends if _kind_at_end(text + end) != "code"), text)


def _kind_at_end(text: str) -> str:
    *_, last = (span for span in parse_spans(f"{text}\n\nx") if span.end > span.start)
    return last.kind


def _apply_elements(text: str, spans: Sequence[MarkdownSpan]) -> Iterator[MarkdownSpan]:
    """Changes the kind of prose spans inside HTML elements. Inside elements for code, the kind becomes
    "code"; inside elements for quotations, it becomes "quote".
    """
    open_at = defaultdict[str, list[int]](list)
    # For each span, how much it changes the nesting depth.
    depth = {kind: [0] * (len(spans) + 1) for kind in ("code", "quote")}
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
    for name in _RAW_TEXT_ELEMENTS:
        for at in open_at[name]:
            depth[_ELEMENTS[name]][at] += 1
    for span, code, quoted in zip(spans, accumulate(depth["code"]), accumulate(depth["quote"]), strict=False):
        if span.kind == "prose" and (code or quoted):
            yield span._replace(kind="code" if code else "quote")
        else:
            yield span


def _is_list_item(text: str, line: MarkdownSpan) -> bool:
    return _ITEM.match(text, line.start, line.end) is not None


def _parse_blocks(text: str) -> Iterator[MarkdownSpan]:
    """Yields spans of whole lines, usually one for each line. An HTML comment, a `<pre>` block or a link
    definition can span several lines.
    """
    fence, in_list, may_indent = "", False, True
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        line = text[at:end]
        item = _ITEM.match(line)
        content = line[item.end() if item else 0 :].strip()
        indented = line.startswith(("    ", "\t"))
        kind: SpanKind = "prose"
        if fence:
            kind = "code"
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif content and indented and may_indent and not in_list:
            kind = "code"
        elif content.startswith("<!--") and "-->" not in content[2:]:
            start = text.index("<!--", at)
            yield MarkdownSpan(at, start, "prose")
            at, end, kind = start, text.find("-->", start + 2) + 3, "hidden"
            end = len(text) if end == 2 else end  # On GitHub, an unclosed comment hides the rest of the text.
        elif _PRE.match(content):
            found = _PRE_END.search(text, at)
            end, kind = found.end() if found else len(text), "code"
        elif found := _FENCE.match(content):
            kind, fence = "code", found[0]
        elif content.startswith(">"):
            kind = "quote"
        elif may_indent and (found := _LINK_DEFINITION.match(text, at)):
            kind, end = "link", found.end()
        yield MarkdownSpan(at, end, kind)
        may_indent = not content or (indented and kind == "code") or kind == "link"
        in_list = item is not None or (in_list and (not content or line[0] in " \t"))
        at = end


def _parse_inline(text: str, start: int, end: int) -> Iterator[MarkdownSpan]:
    """Splits a paragraph into inline code, tags, links, comments and prose. Inline code, tags and comments
    that are not closed count as prose.
    """
    runs = defaultdict[int, list[int]](list)
    for found in _TICKS.finditer(text, start, end):
        runs[len(found[0])].append(found.start())
    at = look = start
    # This flag records that no `-->` follows. A new search at each `<!--` would take quadratic time.
    closable = True
    while token := _INLINE.search(text, look, end):
        size, close = len(token[0]), -1
        if token[0][0] == "`":
            after = bisect_right(runs[size], token.start())
            close = runs[size][after] + size if after < len(runs[size]) else -1
        elif token[0] != "<!--":  # a tag or a link
            close = token.end()
        elif closable:
            close = text.find("-->", token.start() + 2, end) + 3
            closable = close != 2
            close = close if closable else -1
        look = max(close, token.end())
        if close >= 0:
            yield MarkdownSpan(at, token.start(), "prose")
            yield MarkdownSpan(token.start(), close, _inline_kind(token[0]))
            at = close
    yield MarkdownSpan(at, end, "prose")


def _inline_kind(opening: str) -> SpanKind:
    if opening == "<!--":
        return "hidden"
    return "code" if opening[0] in "`<" else "link"
