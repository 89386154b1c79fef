"""Quotes untrusted text for messages to a model. Only the visible part is quoted, and each of its lines is
marked as a quotation.
"""

import re
import unicodedata
from itertools import pairwise

from patchwright.runtime.frozen_model import FrozenModel


class QuotedText(FrozenModel):
    """An untrusted text, quoted as data."""

    text: str
    """The quotation. Every line starts with `> `, so that the text cannot end the quotation."""
    hidden_characters: int
    """Number of characters that were removed because they are invisible on GitHub."""
    cut_characters: int
    """Number of characters that were removed because the text exceeds the limit."""


def quote(text: str, limit: int) -> QuotedText:
    """Quotes the visible part of a text, line by line.

    HTML comments and invisible code points are removed and counted, because they can hide instructions from
    people who read the page. Zero-width characters, for example, are invisible.
    """
    # `splitlines` splits at every character that some program treats as a line break, such as a line
    # separator or a single CR.
    visible, hidden = strip_hidden("\n".join(text.splitlines()))
    kept = visible[:limit]
    quoted = "\n".join(f"> {line}".rstrip() for line in kept.split("\n"))
    return QuotedText(text=quoted, hidden_characters=hidden, cut_characters=len(visible) - len(kept))


def quote_output(text: str, limit: int) -> QuotedText:
    """Quotes the output of a program line by line, without invisible characters."""
    visible = strip_invisible("\n".join(text.splitlines()))
    quoted = "\n".join(f"> {line}".rstrip() for line in visible[:limit].split("\n"))
    return QuotedText(
        text=quoted, hidden_characters=len(text) - len(visible), cut_characters=max(0, len(visible) - limit)
    )


def strip_hidden(text: str) -> tuple[str, int]:
    """Returns the visible part of a text, and the number of removed characters."""
    visible: list[str] = []
    position = 0
    while (start := text.find("<!--", position)) != -1:
        visible.append(text[position:start])
        end = text.find("-->", start + 4)
        position = len(text) if end == -1 else end + 3
    visible.append(text[position:])
    clean = strip_invisible("".join(visible))
    return clean, len(text) - len(clean)


# Invisible characters that are not in the categories Cc, Cf and Cs. Source: Default_Ignorable_Code_Point in
# Unicode's DerivedCoreProperties.txt.
_IGNORABLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
# Characters that a selector can turn into emoji although Unicode does not class them as symbols.
_EMOJI_RANGES = "\u203c\u2049\u2139\u3030"


def strip_invisible(text: str) -> str:
    """Removes the invisible characters from a text; line breaks and tabs stay."""
    kept: list[str] = []
    for char, after in pairwise(f"{text} "):
        if (
            char in "\n\t"
            or is_visible_character(char)
            or _is_emoji_selector(char, kept[-1] if kept else "", after)
        ):
            kept.append(char)
    return "".join(kept)


def is_visible_character(char: str) -> bool:
    """Returns True if a reader can see the character."""
    return unicodedata.category(char) not in ("Cf", "Cc", "Cs") and not _IGNORABLE.match(char)


def _is_emoji_selector(char: str, before: str, after: str) -> bool:
    """Returns True for a selector that switches a symbol (or a keycap) between text and emoji."""
    if char not in ("\ufe0e", "\ufe0f") or not before:
        return False
    symbol = before >= "\xa9" and unicodedata.category(before)[0] == "S"
    return symbol or before in _EMOJI_RANGES or after == "\u20e3"


def escape_invisible(text: str) -> str:
    """Makes invisible characters visible. Such characters could reorder or hide the text around them."""
    return _UNUSUAL.sub(lambda found: found[0].translate(_ESCAPES), text)


class _EscapeTable(dict[int, int | str]):
    """A table for `str.translate`, which computes an entry when it is first needed."""

    def __missing__(self, code: int) -> int | str:
        char = chr(code)
        is_hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") or (
            _IGNORABLE.match(char) and char not in "\ufe0e\ufe0f"  # selectors of emoji
        )
        return self.setdefault(code, _escape_character(code) if is_hidden else code)


def _escape_character(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's symbols for control codes
    return "\u2421" if code == 0x7F else f"\u27e6U+{code:04X}\u27e7"


_UNUSUAL = re.compile(r"[^\t\n -~]+")
_ESCAPES = _EscapeTable()
