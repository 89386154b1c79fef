"""Somebody else's text, fit to stand in a message to a model: only what people see of it, and as a quotation."""

import re
import unicodedata
from itertools import pairwise

from runtime.frozen import Frozen


class Quoted(Frozen):
    """A stranger's text made fit to be shown as data."""

    text: str
    """Every line starts with `> `, so that nothing in it can end the quotation."""
    hidden: int
    """Characters that a person on the forge's page would not have seen, and that were taken out."""
    cut: int
    """Characters beyond the limit, left out."""


def quote(text: str, limit: int) -> Quoted:
    """The visible part of a text, quoted line by line.

    HTML comments and invisible code points (zero width, tags, bidi controls, variation selectors) are removed and
    counted: they are where instructions to a machine are hidden from the people who read the page.
    """
    # splitlines: whatever begins a line for some reader (a line separator, a lone CR) begins one here.
    shown, hidden = visible("\n".join(text.splitlines()))
    kept = shown[:limit]
    quoted = "\n".join(f"> {line}".rstrip() for line in kept.split("\n"))
    return Quoted(text=quoted, hidden=hidden, cut=len(shown) - len(kept))


def printed(text: str, limit: int) -> Quoted:
    """What a program printed, quoted line by line: of its characters those that draw nothing are taken out."""
    shown = drawn("\n".join(text.splitlines()))
    quoted = "\n".join(f"> {line}".rstrip() for line in shown[:limit].split("\n"))
    return Quoted(text=quoted, hidden=len(text) - len(shown), cut=max(0, len(shown) - limit))


def visible(text: str) -> tuple[str, int]:
    """What a person on the forge's page sees of a text, and how many characters that leaves out."""
    shown: list[str] = []
    position = 0
    while (start := text.find("<!--", position)) != -1:
        shown.append(text[position:start])
        end = text.find("-->", start + 4)
        position = len(text) if end == -1 else end + 3
    shown.append(text[position:])
    clean = drawn("".join(shown))
    return clean, len(text) - len(clean)


# Beside categories Cc, Cf and Cs. Source: Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt.
_IGNORABLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_PICTURES_BESIDE_SYMBOLS = "\u203c\u2049\u2139\u3030"  # of which a selector makes one, too


def drawn(text: str) -> str:
    """The text without the characters that draw nothing; line breaks and tabs stay."""
    kept: list[str] = []
    for char, after in pairwise(f"{text} "):
        if char in "\n\t" or is_drawn(char) or _makes_a_picture(char, kept[-1] if kept else "", after):
            kept.append(char)
    return "".join(kept)


def is_drawn(char: str) -> bool:
    """Whether a reader sees that it is there."""
    return unicodedata.category(char) not in ("Cf", "Cc", "Cs") and not _IGNORABLE.match(char)


def _makes_a_picture(char: str, before: str, after: str) -> bool:
    """Whether it is the selector between the two looks of a symbol (or of a key: a digit in a frame)."""
    if char not in ("\ufe0e", "\ufe0f") or not before:
        return False
    symbol = before >= "\xa9" and unicodedata.category(before)[0] == "S"
    return symbol or before in _PICTURES_BESIDE_SYMBOLS or after == "\u20e3"
