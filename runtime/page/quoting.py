"""Quotes a page's text on one line, so that a page cannot start a new line or hide text."""

import re
from dataclasses import dataclass

# Characters without visible glyphs that Unicode counts as printable: fillers, the blank Braille pattern,
# variation selectors beyond those of emoji (which can encode a whole hidden text).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)
_NEWLINE_SYMBOL = "\u2424"  # the symbol for newline, which pages use for nothing else
_SPACES = re.compile(r"\s+")


@dataclass
class TextQuoter:
    """Quotes text of a page, and counts the invisible characters that it removes."""

    hidden_count: int = 0
    """Invisible and control characters removed so far."""

    def clean(self, text: str, limit: int) -> str:
        """Return the text on one line without invisible characters, cut to `limit` characters.

        Appends the number of missing characters if the text is cut.
        """
        cleaned = text.lstrip()[: 2 * limit]  # limits further work: a name may have 10 MB
        cleaned = _SPACES.sub(" ", cleaned).strip()
        if not cleaned.isprintable() or _INVISIBLE.search(cleaned):
            drawn = "".join(mark for mark in cleaned if mark.isprintable() and not _INVISIBLE.match(mark))
            self.hidden_count += len(cleaned) - len(drawn)
            cleaned = drawn
        if len(cleaned) > limit or (cleaned and len(text) > 2 * limit):
            cleaned = cleaned[:limit]
            return f"{cleaned}… ({len(text) - len(cleaned):,} more characters)"
        return cleaned

    def quote(self, text: str, limit: int, keep_newlines: bool = False) -> str:
        """Clean the text and put it in single quotes, with quotes and backslashes escaped.

        With `keep_newlines`, a line end is shown as the two characters of its escape.
        """
        cleaned = self.clean(text.strip().replace("\n", _NEWLINE_SYMBOL) if keep_newlines else text, limit)
        quoted = "'" + cleaned.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return quoted.replace(_NEWLINE_SYMBOL, "\\n") if keep_newlines else quoted


def collapse_spaces(text: str) -> str:
    """Collapse runs of spaces, so that texts can be compared."""
    return _SPACES.sub(" ", text[:100_000]).strip()
