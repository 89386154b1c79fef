"""The first message to the agent: what is asked, as quoted data, and what the program found out already."""

import unicodedata
from collections.abc import Sequence

from resolver.domain import Comment, SuiteRun, Thread
from resolver.events import Prepared
from resolver.validate import Suite
from runtime.frozen import Frozen

BODY_LIMIT = 24_000  # characters of the text; the rest is cut and said to be
COMMENT_LIMIT = 4_000  # characters of one comment
COMMENTS = 20  # the latest ones
TREE_LINES = 80


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
    visible, hidden = _visible("\n".join(text.splitlines()))
    kept = visible[:limit]
    quoted = "\n".join(f"> {line}".rstrip() for line in kept.split("\n"))
    return Quoted(text=quoted, hidden=hidden, cut=len(visible) - len(kept))


def _visible(text: str) -> tuple[str, int]:
    shown: list[str] = []
    position = 0
    while (start := text.find("<!--", position)) != -1:
        shown.append(text[position:start])
        end = text.find("-->", start + 4)
        position = len(text) if end == -1 else end + 3
    shown.append(text[position:])
    without_comments = "".join(shown)
    # Cf: format characters (zero width, bidi, tags); Cc: control characters; both draw nothing.
    clean = "".join(
        char
        for char in without_comments
        if char in "\n\t" or unicodedata.category(char) not in ("Cf", "Cc", "Cs")
    )
    return clean, len(text) - len(clean)


def tree(paths: Sequence[str], lines: int = TREE_LINES) -> str:
    """The repository's files for a first look: whole when they are few, else directories with their counts."""
    safe = [_one_line(path) for path in paths]
    if len(safe) <= lines:
        return "\n".join(safe)
    counts: dict[str, int] = {}
    for path in safe:
        parts = path.split("/")
        where = "/".join(parts[:2]) + "/" if len(parts) > 2 else (parts[0] + "/" if len(parts) > 1 else path)
        counts[where] = counts.get(where, 0) + 1
    rows = [f"{where}  ({count} files)" if where.endswith("/") else where for where, count in counts.items()]
    if len(rows) > lines:
        rows = [*rows[:lines], f"... and {len(rows) - lines} more entries: list them with `git ls-files`"]
    return "\n".join(rows)


def _one_line(path: str) -> str:
    return path.encode("unicode_escape").decode("ascii") if not path.isprintable() else path


class Brief(Frozen):
    """What the first message is made of."""

    thread: Thread
    title: Quoted
    body: Quoted
    comments: tuple[tuple[Comment, Quoted], ...]
    earlier: int
    """Comments left out because there are later ones."""
    command: Quoted | None
    """What the person who started the run added."""
    root: str
    base: str
    count: int
    tree: str
    machine: str
    """What the sandbox said of itself (interpreters and versions), one fact a line."""
    prepared: Prepared | None
    """What became of the repository's set-up; None: none was needed."""
    suite: Suite | None
    before: SuiteRun | None
    """The tests' result at base; None while they still run."""
    failing: tuple[str, ...]


def brief(
    thread: Thread,
    command: str,
    *,
    root: str,
    base: str,
    files: Sequence[str],
    machine: str,
    suite: Suite | None,
    before: SuiteRun | None,
    prepared: Prepared | None = None,
) -> Brief:
    """Everything the agent is told before its first step."""
    results = before.results if before else {}
    return Brief(
        thread=thread,
        title=quote(thread.title, 300),
        body=quote(thread.body, BODY_LIMIT),
        comments=tuple(
            (comment, quote(comment.body, COMMENT_LIMIT)) for comment in thread.comments[-COMMENTS:]
        ),
        earlier=max(0, len(thread.comments) - COMMENTS),
        command=quote(command, COMMENT_LIMIT) if command.strip() else None,
        root=root,
        base=base,
        count=len(files),
        tree=tree(files),
        machine=machine,
        prepared=prepared,
        suite=suite,
        before=before,
        failing=tuple(test for test, result in results.items() if result in ("failed", "error")),
    )
