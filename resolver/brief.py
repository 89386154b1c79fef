"""The first message to the agent: what is asked, as quoted data, and what the program found out already."""

import re
from collections.abc import Mapping, Sequence

from resolver.circumstances import Prepared
from resolver.domain import Comment, SuiteRun, Thread
from resolver.preparing.attachments import Attached
from resolver.preparing.instructions import Instructions
from resolver.pull.seen import PullSeen
from resolver.request.planning import Task
from resolver.suites.suite import Suite
from resolver.words.quotation import Quoted, quote
from runtime.frozen import Frozen

BODY_LIMIT = 24_000  # characters of the text; the rest is cut and said to be
COMMENT_LIMIT = 4_000  # characters of one comment
COMMENTS = 20  # the latest ones
TREE_CHARACTERS = 3_000
TREE_LINES = 80
SHARING = 3  # directories that share a line, at least
HIDDEN = re.compile(r"\.(?!/)")


def tree(paths: Sequence[str]) -> str:
    """The repository's files for a first look, a directory a line: their names, or how many where they do not fit.

    Hidden directories are counted; then those with the longest lists lose their names first, and those of one
    directory that have none left share a line. Where there are too many directories, those below the second level
    count as part of the one there, and what is over `TREE_LINES` is left out, and said.
    """
    named: dict[str, list[str]] = {"./": []}
    for path in map(_one_line, paths):
        directory, slash, name = path.rpartition("/")
        named.setdefault(directory + slash or "./", []).append(name)
    rows = {
        where: _counted(where, len(names)) if HIDDEN.match(where) else f"{where}  {', '.join(names)}"
        for where, names in named.items()
        if names
    }
    left = sum(map(len, rows.values())) - TREE_CHARACTERS
    for where in sorted(rows, key=lambda where: len(rows[where]), reverse=True):
        if left <= 0:
            break
        counted = _counted(where, len(named[where]))
        left -= max(0, len(rows[where]) - len(counted))
        rows[where] = min(rows[where], counted, key=len)
    rows = _together(rows, named)
    fits = sum(map(len, rows.values())) <= TREE_CHARACTERS and len(rows) <= TREE_LINES
    shown = list(rows.values()) if fits else _by_two_levels(named)
    if len(shown) > TREE_LINES:
        shown = [
            *shown[:TREE_LINES],
            f"... and {len(shown) - TREE_LINES} more entries: list them with `git ls-files`",
        ]
    return "\n".join(shown)


def _together(rows: Mapping[str, str], named: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The rows, with one in the place of those of a directory's directories that only say how many files there are."""
    together: dict[str, list[str]] = {}
    for where, row in rows.items():
        above = where.rstrip("/").rpartition("/")[0]
        if above and row == _counted(where, len(named[where])):
            together.setdefault(f"{above}/", []).append(where)
    merged = dict(rows)
    for above, below in together.items():
        if len(below) >= SHARING:
            names = " ".join(where.removeprefix(above) for where in below)
            merged[below[0]] = (
                f"{_counted(above, sum(len(named[where]) for where in below))[:-1]} in {names})"
            )
            for where in below[1:]:
                del merged[where]
    return merged


def _by_two_levels(named: Mapping[str, Sequence[str]]) -> list[str]:
    counts: dict[str, int] = {}
    for where, names in named.items():
        top = "/".join(where.split("/")[:2]).rstrip("/") + "/"
        counts[top] = counts.get(top, 0) + len(names)
    return [_counted(where, count) for where, count in counts.items() if count]


def _counted(where: str, count: int) -> str:
    return f"{where}  ({count} file{'s' if count != 1 else ''})"


def _one_line(path: str) -> str:
    return path.encode("unicode_escape").decode("ascii") if not path.isprintable() else path


class Brief(Frozen):
    """What the first message is made of."""

    task: Task
    who: str
    """Who asked for it."""
    thread: Thread
    title: Quoted
    body: Quoted
    retold: bool
    """Whether its text holds an account, left out there, that `pull` tells from the log."""
    comments: tuple[tuple[Comment, Quoted], ...]
    earlier: int
    """Comments left out because there are later ones."""
    command: Quoted | None
    """What the person who started the run added."""
    pull: PullSeen | None
    """What there is to say of a pull request; None: it is an issue."""
    root: str
    kernel: bool
    """Whether there is a Python session."""
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
    task: Task = "work",
    who: str = "The person who started you",
    root: str,
    kernel: bool = False,
    base: str,
    files: Sequence[str],
    machine: str,
    suite: Suite | None,
    before: SuiteRun | None,
    prepared: Prepared | None = None,
    instructions: Instructions | None = None,
    attached: Attached | None = None,
    attachments: str = "",
    pull: PullSeen | None = None,
) -> Brief:
    """Everything the agent is told before its first step."""
    body = pull.without_account(thread.body) if pull else thread.body
    return Brief(
        task=task,
        who=who,
        thread=thread,
        title=quote(thread.title, 300),
        body=quote(body, BODY_LIMIT),
        retold=body != thread.body,
        comments=tuple(
            (comment, quote(comment.body, COMMENT_LIMIT)) for comment in thread.comments[-COMMENTS:]
        ),
        earlier=max(0, len(thread.comments) - COMMENTS),
        command=quote(command, COMMENT_LIMIT) if command.strip() else None,
        pull=pull,
        root=root,
        kernel=kernel,
        base=base,
        count=len(files),
        tree=tree(files),
        machine=machine,
        prepared=prepared,
        suite=suite,
        before=before,
        failing=before.failing if before else (),
        instructions=instructions or Instructions(),
        attached=attached or Attached(),
        attachments=attachments,
    )
