"""Words of a page as one quoted line: a page cannot start a line of its own, nor hide words in one."""

import re
from dataclasses import dataclass

# Drawn as nothing, though Unicode counts them as printable: fillers, the blank Braille pattern, variation selectors
# beyond those of emoji (which can carry a whole hidden text).
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\uffa0\U000e0100-\U000e01ef]")
_LINE_END = "\u2424"  # the symbol for it, which no page needs for anything else
_SPACES = re.compile(r"\s+")


@dataclass
class Words:
    """Quotes what a page says, and counts what it left out because nobody would have seen it."""

    hidden: int = 0
    """Invisible and control characters that were left out so far."""

    def plain(self, text: str, most: int) -> str:
        """The text on one line without what is not drawn; at most `most` characters and a count of the rest."""
        kept = text.lstrip()[: 2 * most]  # bounded before it is worked on: a name may have 10 MB
        kept = _SPACES.sub(" ", kept).strip()
        if not kept.isprintable() or _BLANK.search(kept):
            drawn = "".join(mark for mark in kept if mark.isprintable() and not _BLANK.match(mark))
            self.hidden += len(kept) - len(drawn)
            kept = drawn
        if len(kept) > most or (kept and len(text) > 2 * most):
            kept = kept[:most]
            return f"{kept}… ({len(text) - len(kept):,} more characters)"
        return kept

    def quote(self, text: str, most: int, with_lines: bool = False) -> str:
        """The same in single quotes, with those in it and backslashes escaped.

        `with_lines` tells where lines end, as the two characters of an escape.
        """
        kept = self.plain(text.strip().replace("\n", _LINE_END) if with_lines else text, most)
        quoted = "'" + kept.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return quoted.replace(_LINE_END, "\\n") if with_lines else quoted


def folded(text: str) -> str:
    """The text as it is compared: spaces folded."""
    return _SPACES.sub(" ", text[:100_000]).strip()
