"""Was the bot asked for something in a comment? Pure, and linear in the length of the text.

A mention counts where a reader meets it as its author's own words: not in code, in quotations or hidden.
"""

import re

from resolver.words.spans import Span, spans_of

_LONGEST_THANKS = 200  # characters
_THANKS = frozenset("thanks thank thx cheers".split())
_BESIDE_THANKS = frozenset(
    "you so much very a lot for the this that it fix help work great nice good well perfect awesome done".split()
)


def find_command(text: str, mention: str) -> str | None:
    """What follows the first mention of us, without hidden comments; None when nobody asked.

    "" means that we were called and nothing more was said. A mention is a whole word; case does not matter.
    """
    name = re.compile(re.escape(mention), re.IGNORECASE | re.ASCII)
    if not name.search(text):
        return None  # nearly every comment: nothing more is read
    spans = tuple(spans_of(text))
    for span in spans:
        if span.kind != "prose":
            continue
        for found in name.finditer(text, span.start, span.end):
            if _stands_alone(text, found.start(), found.end()):
                return _visible(text, found.end(), spans).lstrip(",:;.!? \t\r\n").rstrip()
    return None


def thanks_alone(text: str, mention: str) -> bool:
    """Whether a comment that mentions us says no more than thanks."""
    if len(text) > _LONGEST_THANKS:
        return False
    words = re.findall(r"[\w']+", re.sub(re.escape(mention), " ", text, flags=re.IGNORECASE).lower())
    return not _THANKS.isdisjoint(words) and _THANKS.union(_BESIDE_THANKS).issuperset(words)


def _stands_alone(text: str, start: int, end: int) -> bool:
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    if before and (before.isalnum() or before in "_/@\\"):
        return False  # foo@agent, https://host/@agent, \@agent
    if after == ".":
        return not text[end + 1 : end + 2].isalnum()  # `@agent.` ends a sentence, `@agent.com` does not
    return not (after and (after.isalnum() or after in "_/@-"))  # @agents, @agent-smith, @agent/team


def _visible(text: str, start: int, spans: tuple[Span, ...]) -> str:
    shown = (span for span in spans if span.end > start and span.kind != "hidden")
    return "".join(text[max(start, span.start) : span.end] for span in shown)
