"""Finds mentions of the bot in comments. The functions have no side effects and take linear time.

Only mentions in the author's own visible text count. Mentions in code, quotations, hidden comments and the
targets of links are ignored.
"""

import re

from patchwright.resolver.text.markdown import MarkdownSpan, parse_spans

_MAX_THANKS_LENGTH = 200  # characters
_THANKS_WORDS = frozenset("thanks thank thx cheers".split())
_FILLER_WORDS = frozenset(
    "you so much very a lot for the this that it fix help work great nice good well perfect awesome done".split()
)


def find_command(text: str, mention: str) -> str | None:
    """Returns the visible text after the first mention of the bot, or None if there is no mention.

    Returns "" if nothing follows the mention. A mention must be a whole word. Letter case is ignored.
    """
    name = re.compile(re.escape(mention), re.IGNORECASE | re.ASCII)
    if not name.search(text):
        return None  # nearly all comments contain no mention, and need not be parsed
    spans = tuple(parse_spans(text))
    for span in spans:
        if span.kind != "prose":
            continue
        for found in name.finditer(text, span.start, span.end):
            if _is_whole_mention(text, found.start(), found.end()):
                return _visible_text(text, found.end(), spans).lstrip(",:;.!? \t\r\n").rstrip()
    return None


def is_only_thanks(text: str, mention: str) -> bool:
    """Returns True if a comment contains only thanks and the mention of the bot."""
    if len(text) > _MAX_THANKS_LENGTH:
        return False
    words = re.findall(r"[\w']+", re.sub(re.escape(mention), " ", text, flags=re.IGNORECASE).lower())
    return not _THANKS_WORDS.isdisjoint(words) and _THANKS_WORDS.union(_FILLER_WORDS).issuperset(words)


def _is_whole_mention(text: str, start: int, end: int) -> bool:
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    if before and (before.isalnum() or before in "_/@\\"):
        return False  # foo@agent, https://host/@agent, \@agent
    if after == ".":
        return not text[end + 1 : end + 2].isalnum()  # `@agent.` ends a sentence, `@agent.com` does not
    return not (after and (after.isalnum() or after in "_/@-"))  # @agents, @agent-smith, @agent/team


def _visible_text(text: str, start: int, spans: tuple[MarkdownSpan, ...]) -> str:
    shown = (span for span in spans if span.end > start and span.kind != "hidden")
    return "".join(text[max(start, span.start) : span.end] for span in shown)
