"""Hidden tags at the start of the bot's comments. The bot uses the tags to find its own comments, and to avoid
replying to itself.

A tag is an HTML comment, `<!-- patchwright:ID -->`. While the job that the comment reports on is queued or
running, the tag is `<!-- patchwright:ID in-progress -->`.
"""

from typing import NamedTuple
from urllib.parse import quote, unquote

TAG_PREFIX = "<!-- patchwright:"
"""The first characters of every hidden tag in the bot's comments."""
IN_PROGRESS = "in-progress"

QUESTION_START, QUESTION_END = "<!--question-->", "<!--/question-->"
"""Hidden marks around the agent's question, in `templates/replies/question.md.j2`. Texts by a model or a person
cannot contain them, because the bot inserts an invisible character after each `<`.
"""


class TaggedComment(NamedTuple):
    """One of the bot's comments, split into its parts."""

    tag: str
    is_in_progress: bool
    text: str


def render_tag(tag: str, *, in_progress: bool = False) -> str:
    """Returns the tag as the first line of a comment."""
    return f"{tag_prefix(tag)}{IN_PROGRESS + ' ' if in_progress else ''}-->\n"


def tag_prefix(tag: str) -> str:
    """Returns the start of every comment with this tag. It is the same while the comment's job is in progress
    and after the job has ended.
    """
    return f"{TAG_PREFIX}{quote(tag, safe='')} "


def parse_tag(body: str) -> TaggedComment:
    """Splits the body of one of the bot's comments into tag, state and text."""
    inside, _, text = body.removeprefix(TAG_PREFIX).partition(" -->")
    tag, _, state = inside.partition(" ")
    return TaggedComment(unquote(tag), state == IN_PROGRESS, text)


def parse_question(body: str) -> str:
    """Returns the agent's question in one of the bot's comments, or "" if the comment asks none."""
    return body.partition(QUESTION_START)[2].partition(QUESTION_END)[0].strip()
