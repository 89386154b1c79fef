"""Hidden tags at the start of the bot's comments. With them, the bot finds its comments again and does not
reply to itself.

A tag is an HTML comment, `<!-- patchwright:ID -->`. While the job of the comment is queued or running, the
tag is `<!-- patchwright:ID in-progress -->`.
"""

from typing import NamedTuple
from urllib.parse import quote, unquote

TAG_PREFIX = "<!-- patchwright:"
"""How every tag begins."""
IN_PROGRESS = "in-progress"


class TaggedComment(NamedTuple):
    """One of the bot's comments, split into its parts."""

    tag: str
    is_in_progress: bool
    text: str


def render_tag(tag: str, *, in_progress: bool = False) -> str:
    """Returns the first line of a comment with this tag."""
    return f"{tag_prefix(tag)}{IN_PROGRESS + ' ' if in_progress else ''}-->\n"


def tag_prefix(tag: str) -> str:
    """Returns how a comment with this tag begins, whether or not it is in progress."""
    return f"{TAG_PREFIX}{quote(tag, safe='')} "


def parse_tag(body: str) -> TaggedComment:
    """Splits the body of one of the bot's comments into tag, state and text."""
    inside, _, text = body.removeprefix(TAG_PREFIX).partition(" -->")
    tag, _, state = inside.partition(" ")
    return TaggedComment(unquote(tag), state == IN_PROGRESS, text)
