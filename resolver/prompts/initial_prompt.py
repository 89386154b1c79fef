"""Builds the first message to the agent. It contains the task as quoted data, and facts about the
repository.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.comment_commands import Task
from patchwright.resolver.domain import Comment, TestRun, Thread
from patchwright.resolver.preparation.attachments import ThreadAttachments
from patchwright.resolver.preparation.instructions import PromptInstructions
from patchwright.resolver.pull_request.pr_context import PullRequestContext
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.suites.missing_modules import find_missing_modules
from patchwright.resolver.suites.suite import Suite
from patchwright.resolver.text.untrusted import QuotedText, quote

BODY_LIMIT = 24_000  # Maximum characters of the text; the rest is cut, with a note.
COMMENT_LIMIT = 4_000  # Maximum characters of one comment.
MAX_COMMENTS = 20  # Number of latest comments that are shown.
TREE_CHARACTERS = 2_000
MAX_OTHER_ROW = 120  # Characters of a row in which less than half of the files are source code.
TREE_LINES = 80
MIN_COLLAPSED_DIRS = 3  # Minimum number of directories to merge into one line.
SOURCE_FILES = re.compile(
    r"\.(?:[cm]?[jt]sx?|py[ix]?|go|rs|java|kts?|rb|php|cs|swift|scala|c|cc|cpp|h|hpp|ex|exs|clj|lua|sh|vue|svelte)$"
)
COUNTED_DIRS = re.compile(r"\.(?!/)|(?:.*/)?(?:_?vendor(?:ed)?|third_party|node_modules)/")
"""Matches hidden directories, and those with copies of other projects."""


def render_tree(paths: Sequence[str]) -> str:
    """Lists the repository's files, one line per directory.

    A line such as `src/*.py  calc cart` contains the names of the files in the directory. It contains only their
    number if the directory is hidden or has copies of other projects, or if it has many files and most of them are not
    source code.
    Several subdirectories with only numbers share one line. If the list is too long, the longest lines also get
    only numbers. If it is still too long, only the first two levels of directories are listed. Lines beyond
    `TREE_LINES` are left out, and a note says so.
    """
    files_by_dir: dict[str, list[str]] = {"./": []}
    for path in map(_escape_path, paths):
        directory, slash, name = path.rpartition("/")
        files_by_dir.setdefault(directory + slash or "./", []).append(name)
    rows = {
        directory: _count_row(directory, len(names))
        if COUNTED_DIRS.match(directory) or _has_many_other_files(directory, names)
        else _name_row(directory, names)
        for directory, names in files_by_dir.items()
        if names
    }
    excess = sum(map(len, rows.values())) - TREE_CHARACTERS
    for directory in sorted(rows, key=lambda directory: len(rows[directory]), reverse=True):
        if excess <= 0:
            break
        counted = _count_row(directory, len(files_by_dir[directory]))
        excess -= max(0, len(rows[directory]) - len(counted))
        rows[directory] = min(rows[directory], counted, key=len)
    rows = _collapse_rows(rows, files_by_dir)
    fits = sum(map(len, rows.values())) <= TREE_CHARACTERS and len(rows) <= TREE_LINES
    lines = list(rows.values()) if fits else _count_top_levels(files_by_dir)
    if len(lines) > TREE_LINES:
        lines = [
            *lines[:TREE_LINES],
            f"... and {len(lines) - TREE_LINES} more entries: list them with `git ls-files`",
        ]
    return "\n".join(lines)


def _name_row(directory: str, names: Sequence[str]) -> str:
    """Returns a row with names. If all have the same ending, the row contains it once."""
    ending = PurePosixPath(names[0]).suffix
    if len(names) > 2 and ending and all(PurePosixPath(name).suffix == ending for name in names):
        directory, names = f"{directory}*{ending}", [name.removesuffix(ending) for name in names]
    return f"{directory}  {' '.join(f'`{name}`' if ' ' in name else name for name in names)}"


def _has_many_other_files(directory: str, names: Sequence[str]) -> bool:
    """Returns True if most of the files are not source code, and their names are too long to list."""
    sources = sum(1 for name in names if SOURCE_FILES.search(name))
    is_long = sum(len(name) + 2 for name in names) > MAX_OTHER_ROW
    return directory != "./" and is_long and 2 * sources < len(names)


def _collapse_rows(rows: Mapping[str, str], files_by_dir: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Merges subdirectories of the same directory into one row if their rows contain only the number of
    files.
    """
    siblings: dict[str, list[str]] = {}
    for directory, row in rows.items():
        parent = directory.rstrip("/").rpartition("/")[0]
        if parent and row == _count_row(directory, len(files_by_dir[directory])):
            siblings.setdefault(f"{parent}/", []).append(directory)
    merged = dict(rows)
    for parent, children in siblings.items():
        if len(children) >= MIN_COLLAPSED_DIRS:
            names = " ".join(directory.removeprefix(parent) for directory in children)
            merged[children[0]] = (
                f"{_count_row(parent, sum(len(files_by_dir[directory]) for directory in children))[:-1]} in {names})"
            )
            for directory in children[1:]:
                del merged[directory]
    return merged


def _count_top_levels(files_by_dir: Mapping[str, Sequence[str]]) -> list[str]:
    counts: dict[str, int] = {}
    for directory, names in files_by_dir.items():
        top = "/".join(directory.split("/")[:2]).rstrip("/") + "/"
        counts[top] = counts.get(top, 0) + len(names)
    return [_count_row(directory, count) for directory, count in counts.items() if count]


def _count_row(directory: str, count: int) -> str:
    return f"{directory}  ({count} file{'s' if count != 1 else ''})"


def _escape_path(path: str) -> str:
    return path.encode("unicode_escape").decode("ascii") if not path.isprintable() else path


@dataclass(frozen=True)
class RequestToAgent:
    """What a person asked the agent to do."""

    text: str = ""
    """Text that the person added to the command."""
    task: Task = "work"
    requester: str = "The person who started you"
    mention: str = ""
    """The name at the start of comments that are commands, such as `@agent`."""
    has_demonstration: bool = False
    """True if the message begins with an example of a run."""


@dataclass(frozen=True)
class RepositoryFacts:
    """What is known about the repository before the agent starts."""

    base_sha: str
    files: Sequence[str]
    suite: Suite | None = None
    baseline: TestRun | None = None
    """Test results at base; None while the tests still run."""
    instructions: PromptInstructions = field(default_factory=PromptInstructions)
    """Instructions that the repository's maintainers wrote for agents."""


@dataclass(frozen=True)
class PreparedSandbox:
    """The sandbox in which the agent starts."""

    root: str
    sandbox_facts: str = ""
    """Interpreters and versions that were found in the sandbox."""
    environment: EnvironmentPrepared | None = None
    """Result of the environment setup; None if no setup was needed."""
    uploaded_attachments: ThreadAttachments = field(default_factory=ThreadAttachments)
    """Files that are attached to the thread."""
    attachments_dir: str = ""
    """Directory in the sandbox with the attachments."""
    linked_hosts: tuple[str, ...] = ()
    """Hosts that people linked, and that only the browsing agent can read."""


@dataclass(frozen=True)
class InitialPrompt:
    """The values for the template of the first message."""

    thread: Thread
    request: RequestToAgent
    repository: RepositoryFacts
    sandbox: PreparedSandbox
    pull: PullRequestContext | None
    """Context of the pull request; None for an issue."""
    title: QuotedText
    body: QuotedText
    hides_summary: bool
    """True if our own summary was removed from the pull request's text. In that case, `pull` contains the
    same facts, which were read from the log.
    """
    comments: tuple[tuple[Comment, QuotedText], ...]
    omitted_comments: int
    """Number of older comments that were left out."""
    question: QuotedText | None
    """The latest question of an earlier run, which the command may answer."""
    command: QuotedText | None
    """Text that the requester added to the command."""
    file_count: int
    tree: str
    failed_tests: tuple[str, ...]
    missing_modules: tuple[str, ...]


def describe_baseline(run: TestRun | None) -> dict[str, Any]:
    """Returns the values with which the templates describe the test results at base."""
    modules = find_missing_modules(run.output) if run else ()
    return {
        "baseline": run,
        "failed_tests": run.failed_tests if run else (),
        "missing_modules": tuple(module.name for module in modules),
    }


def build_initial_prompt(
    thread: Thread,
    request: RequestToAgent,
    repository: RepositoryFacts,
    sandbox: PreparedSandbox,
    pull: PullRequestContext | None = None,
) -> InitialPrompt:
    """Collects the values for the agent's first message.

    Leaves out the comment that started the run, because the request repeats it, and bare commands such as
    `@agent stop`.
    """
    comments = [one for one in thread.comments if not _is_only_command(one, request.mention, request.text)]
    body = pull.strip_own_summary(thread.body) if pull else thread.body
    baseline = describe_baseline(repository.baseline)
    return InitialPrompt(
        thread=thread,
        request=request,
        repository=repository,
        sandbox=sandbox,
        pull=pull,
        title=quote(thread.title, 300),
        body=quote(body, BODY_LIMIT),
        hides_summary=body != thread.body,
        comments=tuple((comment, quote(comment.body, COMMENT_LIMIT)) for comment in comments[-MAX_COMMENTS:]),
        omitted_comments=max(0, len(comments) - MAX_COMMENTS),
        question=quote(thread.question, COMMENT_LIMIT) if thread.question else None,
        command=quote(request.text, COMMENT_LIMIT) if request.text.strip() else None,
        file_count=len(repository.files),
        tree=render_tree(repository.files),
        failed_tests=baseline["failed_tests"],
        missing_modules=baseline["missing_modules"],
    )


def _is_only_command(comment: Comment, mention: str, command: str) -> bool:
    """Returns True if someone with write access wrote the comment, and it contains only this command or a command
    without text.
    """
    before, _, rest = comment.body.strip().partition(mention) if mention else (comment.body, "", "")
    if before or not comment.trusted:
        return False
    text = rest.lstrip(",:;.!? \t\r\n").rstrip()
    request = parse_request(text)
    return not request.remainder or command.strip() in (request.text, request.remainder, text)


def render_initial_prompt(prompt: InitialPrompt) -> str:
    """Renders the first message to the agent."""
    # The templates use the values in these groups directly, such as `root` for `sandbox.root`.
    groups = vars(prompt.request) | vars(prompt.repository) | vars(prompt.sandbox)
    return render("prompts/initial_prompt.md.j2", **groups, **vars(prompt))
