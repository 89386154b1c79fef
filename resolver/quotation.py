"""Somebody else's text, fit to stand in a message to a model: only what people see of it, and as a quotation."""

import unicodedata

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

    HTML comments and invisible code points (zero width, tags, bidi controls) are removed and counted: they are
    where instructions to a machine are hidden from the people who read the page.
    """
    # splitlines: whatever begins a line for some reader (a line separator, a lone CR) begins one here.
    shown, hidden = visible("\n".join(text.splitlines()))
    kept = shown[:limit]
    quoted = "\n".join(f"> {line}".rstrip() for line in kept.split("\n"))
    return Quoted(text=quoted, hidden=hidden, cut=len(shown) - len(kept))


def printed(text: str, limit: int) -> Quoted:
    """What a program printed, quoted line by line: of its characters those that draw nothing are taken out."""
    shown = _drawn("\n".join(text.splitlines()))
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
    clean = _drawn("".join(shown))
    return clean, len(text) - len(clean)


def _drawn(text: str) -> str:
    # Cf: format characters (zero width, bidi, tags); Cc: control characters; both draw nothing.
    return "".join(
        char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cf", "Cc", "Cs")
    )
