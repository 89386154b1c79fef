"""Quotes text from a web page on one line, without invisible characters.

Therefore, a page cannot add lines to the tree that the model reads, and cannot hide text in this tree.
"""

import re
from dataclasses import dataclass

# Characters that show nothing, although Unicode counts them as printable: fillers, the blank Braille pattern,
# and variation selectors beyond those of emoji (which can encode a whole hidden text).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)
_NEWLINE_SYMBOL = "\u2424"  # the symbol for newline, because pages use it for nothing else
_SPACES = re.compile(r"\s+")


@dataclass
class TextQuoter:
    """Quotes text from a page. Counts the invisible characters that it removes."""

    hidden_count: int = 0
    """Number of invisible and control characters that were removed so far."""

    def clean(self, text: str, limit: int) -> str:
        """Return the text on one line, without invisible characters, and cut to `limit` characters.

        If the text is cut, appends how many characters are missing.
        """
        cleaned = text.lstrip()[: 2 * limit]  # limits the further work, because a name may have 10 MB
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
        """Clean the text and put it in single quotes. Escapes the quotes and backslashes in the text.

        If `keep_newlines` is True, shows the end of a line as a backslash and an n.
        """
        cleaned = self.clean(text.strip().replace("\n", _NEWLINE_SYMBOL) if keep_newlines else text, limit)
        quoted = "'" + cleaned.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return quoted.replace(_NEWLINE_SYMBOL, "\\n") if keep_newlines else quoted


def collapse_spaces(text: str) -> str:
    """Replace each run of spaces by one space, so that texts can be compared."""
    return _SPACES.sub(" ", text[:100_000]).strip()
