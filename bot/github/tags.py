"""The hidden tag that a comment of ours begins with: by it we find the comment again, and never answer ourselves."""

from urllib.parse import quote, unquote

MARK = "<!-- patchwright:"
"""How every tag begins."""


def marker(tag: str) -> str:
    """What a comment with this tag begins with."""
    return f"{MARK}{quote(tag, safe='')} -->\n"


def parted(body: str) -> tuple[str, str]:
    """The tag of a comment of ours, and what stands behind it."""
    tag, _, text = body.removeprefix(MARK).partition(" -->")
    return unquote(tag), text
