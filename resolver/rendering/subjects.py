"""Builds titles of pull requests and subjects of commits from titles of threads, which are untrusted."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from patchwright.resolver.text.untrusted import strip_invisible
from patchwright.runtime.output_text import clip_line

MAX_SUBJECT = 72  # characters of a commit's subject
MAX_PULL_REQUEST_TITLE = 100  # characters

Heading = Literal["Fix", "Add", "Docs"]

_ADDITION_WORDS = r"feat|features?|feature[ -]requests?|enhancements?|add"
_OTHER_WORDS = (
    r"bugs?|bug[ -]reports?|fix|bugfix|docs?|documentation|issue|question|regression|unfinished|tests?"
)
_OWN_HEADING = re.compile(
    rf"\s*(?:\[(?:{_ADDITION_WORDS}|{_OTHER_WORDS})\][\s:-]*"
    rf"|(?:{_ADDITION_WORDS}|{_OTHER_WORDS})(?:\([^()\n]{{1,40}}\))?!?:\s*)",
    re.IGNORECASE,
)
_ADDITION_HEADING = re.compile(rf"\s*\[?(?:{_ADDITION_WORDS})\b[^\s]*[\]:]", re.IGNORECASE)
# In "add is wrong" or "Support fails on Windows", the first word is a name.
_PREDICATES = (
    r"is|are|was|were|has|does|should|never|cannot|(?:is|are|does|can|should)n?['’]t|fails|returns|raises|gives"
    r"|crashes|breaks|hangs|loses|ignores|accepts|rejects|throws"
)
_ADDITION_VERB = re.compile(
    rf"\s*(?:add|allow|implement|introduce|provide|support)\s+(?!(?:{_PREDICATES})(?:\s|$))", re.IGNORECASE
)
_NUMBERS = re.compile(r"(?:\s*\((?:GH-|#)\d+\))+\s*$")
_DOCUMENT_SUFFIXES = frozenset({".md", ".mdx", ".rst", ".adoc"})
_DOCUMENT_DIRECTORIES = frozenset({"doc", "docs"})

_MENTION_OR_REFERENCE = re.compile(r"@(?=\w)|#(?=\d)|\bGH-(?=\d)")
_CLOSING_URL = re.compile(r"\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?)(?=\s+https?://)", re.IGNORECASE)


def build_subject(title: str, files: Sequence[str], limit: int = MAX_SUBJECT) -> str:
    """Returns a title of a change, such as `Fix: the sum`. `files` are the paths of the changed files."""
    heading = choose_heading(title, files)
    name = strip_heading(title)
    if heading == "Add":
        name = re.sub(r"^add\s+(?=\S)", "", name, flags=re.IGNORECASE)
    return clip_line(f"{heading}: {defuse(name)}", limit)


def choose_heading(title: str, files: Sequence[str]) -> Heading:
    """Returns `Docs` for a change that touches only documentation, or `Add` if the thread asks for something
    new. Returns `Fix` in all other cases.

    A thread asks for something new if its title starts with a heading such as `Feature request:` or with a
    verb such as "Add" or "Support".
    """
    if files and all(map(is_document, files)):
        return "Docs"
    without_heading = strip_heading(title)
    if _ADDITION_HEADING.match(title) or _ADDITION_VERB.match(without_heading):
        return "Add"
    return "Fix"


def strip_heading(title: str) -> str:
    """Returns the title without headings such as `Fix:` or `[Bug]`, and without issue numbers at its end."""
    name = title
    while (match := _OWN_HEADING.match(name)) and match.end() < len(name.rstrip()):
        name = name[match.end() :]
    return _NUMBERS.sub("", name).strip() or title.strip()


def defuse(text: str) -> str:
    """Makes untrusted text harmless for commit messages and titles: it mentions nobody and closes no issue.

    Inserts visible spaces, as in `@ name` and `# 12`. Invisible characters, which `filters.neutralize` inserts,
    would stay in the git history.
    """
    visible = strip_invisible(text)
    spaced = _MENTION_OR_REFERENCE.sub(lambda match: f"{match[0]} ", visible)
    return _CLOSING_URL.sub(r"\1 issue", spaced)


def is_document(path: str) -> bool:
    """Returns True if the file is documentation according to its name or directory."""
    pure = PurePosixPath(path)
    return pure.suffix.lower() in _DOCUMENT_SUFFIXES or pure.parts[0] in _DOCUMENT_DIRECTORIES
