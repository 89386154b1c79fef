"""The first message to the agent: what is asked, as quoted data, and what the program found out already."""

from collections.abc import Sequence

from resolver.attachments import Attached
from resolver.domain import Comment, SuiteRun, Thread
from resolver.events import Prepared
from resolver.instructions import Instructions
from resolver.quotation import Quoted, quote
from resolver.validate import Suite
from runtime.frozen import Frozen

BODY_LIMIT = 24_000  # characters of the text; the rest is cut and said to be
COMMENT_LIMIT = 4_000  # characters of one comment
COMMENTS = 20  # the latest ones
TREE_LINES = 80


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
    attached: Attached
    """What was attached to the thread."""
    attachments: str
    """Directory in the sandbox where it lies."""
    instructions: Instructions
    """What the repository's maintainers wrote down for whoever works on it."""


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
    instructions: Instructions | None = None,
    attached: Attached | None = None,
    attachments: str = "",
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
        instructions=instructions or Instructions(),
        attached=attached or Attached(),
        attachments=attachments,
    )
