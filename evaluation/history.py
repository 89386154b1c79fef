"""Makes instances of a repository's own history: commits that fix an issue and change tests."""

import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from patchwright.evaluation.instances import Instance
from patchwright.resolver.errors import UsageError
from patchwright.resolver.git.git_process import GitFailed, run_git
from patchwright.resolver.git.local_repository import inspect_repository
from patchwright.resolver.suites.file_classifier import is_test_related

# The keywords that close an issue. Source: docs.github.com, "Linking a pull request to an issue"
_CLOSES = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b:?\s+(?:[\w.-]+/[\w.-]+)?#(\d+)", re.IGNORECASE
)
# The subject of a squashed pull request, such as `Fix the parser (#12)` or `fix(parser): ... (#12)`.
_SQUASHED_FIX = re.compile(r"(?:bug ?)?fix(?:e[sd])?\b[^\n]*\(#(\d+)\)\s*(?:\n|$)", re.IGNORECASE)
_REFERENCE = re.compile(rf"[\s(\[]*{_CLOSES.pattern}[)\].,]*|\s*\(#\d+\)$", re.IGNORECASE)
_TRAILER = re.compile(r"[A-Z][\w-]+: .+")
MAX_COMMITS = 5_000  # commits that are looked at, from the newest
MAX_FILES = 20  # files that a fix may change besides its tests; a larger change is no fix of one issue
_SEPARATOR = "\x1e"


class _Commit(NamedTuple):
    """A commit with one parent."""

    id: str
    parent: str
    created_at: datetime
    message: str


async def find_instances(path: Path, limit: int | None) -> AsyncIterator[Instance]:
    """Yields an instance for each commit that fixes an issue and changes both tests and code, newest first.

    Such a commit says "fixes #N", or its subject begins with "Fix" and ends with the number of its pull request.

    The commit's message, without the keyword, is the problem. The controls find out later whether the tests fail
    before the commit and pass after it. `path` is absolute. Raises RepositoryUnusable and UsageError.
    """
    git_dir = inspect_repository(path).git_dir
    found = 0
    for commit in await _list_commits(git_dir):
        if limit is not None and found >= limit:
            return
        issue = _CLOSES.search(commit.message) or _SQUASHED_FIX.match(commit.message)
        if issue is None:
            continue
        paths = await _list_paths(git_dir, commit)
        tests = [name for name in paths if is_test_related(name)]
        code = [name for name in paths if name not in tests]
        if not tests or not code or len(code) > MAX_FILES:
            continue
        found += 1
        yield Instance(
            id=f"{path.name}-{issue[1]}-{commit.id[:8]}",
            repo=path.name,
            url=str(path),
            base_commit=commit.parent,
            problem=describe_problem(commit.message),
            gold_patch=await _diff(git_dir, commit, code),
            test_patch=await _diff(git_dir, commit, tests),
            issue_number=int(issue[1]),
            created_at=commit.created_at,
        )


def find_issue_number(text: str) -> int | None:
    """Returns the number of the issue that a text says it closes; None if there is none."""
    match = _CLOSES.search(text)
    return int(match[1]) if match else None


def describe_problem(message: str) -> str:
    """Returns the message of a commit as the text of an issue, without the words that refer to the issue."""
    lines = [_REFERENCE.sub("", line) for line in message.splitlines() if not _TRAILER.fullmatch(line)]
    return "\n".join(lines).strip() or "Fix the failing behavior"


async def _list_commits(git_dir: Path) -> list[_Commit]:
    try:
        listed = await run_git(
            *("log", "--no-merges", f"--max-count={MAX_COMMITS}", f"--format=%H%n%P%n%cI%n%B{_SEPARATOR}"),
            git_dir=git_dir,
        )
    except GitFailed as exc:
        raise UsageError(f"The history of {git_dir} cannot be read: {exc.reason}") from exc
    commits = []
    for text in listed.decode(errors="replace").split(_SEPARATOR):
        name, parent, date, message = (text.strip("\n") + "\n\n\n").split("\n", 3)
        if parent:  # The first commit has none.
            commits.append(_Commit(name, parent, datetime.fromisoformat(date), message.strip()))
    return commits


async def _list_paths(git_dir: Path, commit: _Commit) -> list[str]:
    listed = await run_git(
        "diff-tree", "-r", "-z", "--name-only", "--no-renames", commit.parent, commit.id, git_dir=git_dir
    )
    return [name.decode(errors="surrogateescape") for name in listed.split(b"\0") if name]


async def _diff(git_dir: Path, commit: _Commit, paths: list[str]) -> str:
    diff = await run_git(
        *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
        *(commit.parent, commit.id, "--", *paths),
        git_dir=git_dir,
        environment={"GIT_LITERAL_PATHSPECS": "1"},
    )
    return diff.decode(errors="replace")
