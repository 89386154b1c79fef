"""Reads and validates `.github/patchwright.toml`. An invalid entry is ignored, and the other entries remain
valid.
"""

import difflib
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from patchwright.resolver.domain import Job
from patchwright.resolver.errors import Forbidden, NotFound
from patchwright.resolver.forge import Forge
from patchwright.resolver.git.repository import SYMLINK, Workspace
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH, ConfiguredSuite, RepoConfig
from patchwright.runtime.frozen_model import FrozenModel

log = logging.getLogger(__name__)

COMMENT_TAG = "configuration"  # identifies the comment in a thread
MAX_FILE_BYTES = 65_536  # bytes; larger files are not read
MAX_PROBLEMS = 20  # problems that the comment names; the others are only counted
MAX_KEY_LENGTH = 100  # characters of a key in a message

KeyPath = tuple[str | int, ...]
"""The keys and array indexes that lead to a value in the file."""


class ConfigProblem(FrozenModel):
    """An invalid entry of `.github/patchwright.toml`. Such an entry is ignored."""

    key: str
    """Dotted key of the entry; empty if the problem concerns the whole file."""
    line: int | None
    """Line number, from 1; None if it is unknown."""
    message: str
    """The error, without a period at the end."""
    suggestion: str = ""
    """A setting with a similar name; empty if there is none."""


class ParsedRepoConfig(FrozenModel):
    """The valid entries of `.github/patchwright.toml`, and the problems of the invalid entries."""

    config: RepoConfig = RepoConfig()
    problems: tuple[ConfigProblem, ...] = ()


async def read_repo_config(workspace: Workspace) -> ParsedRepoConfig:
    """Reads `.github/patchwright.toml` at the workspace's base commit, and drops invalid entries. Raises
    WorkspaceError.
    """
    if (found := await workspace.get_entry(REPO_CONFIG_PATH)) is None:
        return ParsedRepoConfig()
    if found.mode == SYMLINK:
        return _unreadable("the file is a symbolic link, and I do not follow symbolic links")
    content = (await workspace.read_blobs([found.id], MAX_FILE_BYTES))[found.id]
    if isinstance(content, int):
        return _unreadable(f"the file has {content:,} bytes, more than the limit of {MAX_FILE_BYTES:,}")
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        return _unreadable("the file is not UTF-8", content.count(b"\n", 0, exc.start) + 1)
    return parse_repo_config(text)


def parse_repo_config(text: str) -> ParsedRepoConfig:
    """Parses the text of a configuration file and drops invalid entries."""
    try:
        values = tomllib.loads(text)
    except RecursionError:
        return _unreadable("the values are nested too deeply")
    except ValueError as exc:  # TOMLDecodeError, or a number with thousands of digits
        line = re.search(r"at line (\d+)", str(exc))
        message = re.sub(r"\s*\(at .*\)$", "", str(exc))[:200]
        return _unreadable(f"the file is not valid TOML: {message}", int(line[1]) if line else None)
    problems: list[ConfigProblem] = []
    lines = find_key_lines(text)
    while True:
        try:
            config = RepoConfig(**values)
            return ParsedRepoConfig(
                config=config, problems=tuple(sorted(problems, key=lambda problem: problem.line or 0))
            )
        except ValidationError as exc:
            found: dict[KeyPath, ConfigProblem] = {}
            removed: set[KeyPath] = set()
            for error in exc.errors(include_url=False, include_input=False, include_context=False):
                path = _existing_path(values, error["loc"])
                problem = _make_problem(lines, error["loc"], path, error["type"], error["msg"])
                found.setdefault(path, problem)
                # Remove the whole table of an invalid value: a test command without its directory would run
                # the wrong tests.
                removed.add(path if error["type"] == "extra_forbidden" else path[:2])
            problems += found.values()
            for path in sorted(removed, key=_removal_order):
                _remove(values, path)


def _removal_order(path: KeyPath) -> tuple[int, int]:
    """Returns a sort key for the paths of invalid values. In this order, removing a value does not change the
    paths of the values that are removed later. Array items are removed from the end, and nested values before
    the table that contains them.
    """
    return -(path[1] if len(path) > 1 and isinstance(path[1], int) else 0), -len(path)


def _unreadable(message: str, line: int | None = None) -> ParsedRepoConfig:
    return ParsedRepoConfig(problems=(ConfigProblem(key="", line=line, message=message),))


def _make_problem(
    lines: Mapping[KeyPath, int], loc: KeyPath, path: KeyPath, kind: str, message: str
) -> ConfigProblem:
    """Converts a pydantic error to a ConfigProblem. `loc` is the error's location, and `path` is the part of
    `loc` that exists in the file.
    """
    missing = kind == "missing"
    key = ".".join(part for part in (loc if missing else path) if isinstance(part, str))[:MAX_KEY_LENGTH]
    line = nearest_line(lines, path)
    if kind != "extra_forbidden":
        text = message.removeprefix("Value error, ").replace("Input should", "it should").rstrip(".")
        return ConfigProblem(key=key, line=line, message="it is missing" if missing else text[:300])
    known = list((RepoConfig if len(path) == 1 else ConfiguredSuite).model_fields)
    matches = difflib.get_close_matches(str(path[-1])[:MAX_KEY_LENGTH], known, n=1, cutoff=0.5)
    return ConfigProblem(
        key=key, line=line, message="there is no such setting", suggestion=matches[0] if matches else ""
    )


def _existing_path(values: object, loc: KeyPath) -> KeyPath:
    """Returns the part of `loc` that exists in the file. The rest of `loc` can be a missing key, or the name
    of a type that pydantic tried.
    """
    for depth, part in enumerate(loc):
        exists = (isinstance(values, dict) and part in values) or (
            isinstance(values, list) and isinstance(part, int) and part < len(values)
        )
        if not exists:
            return loc[:depth]
        values = values[part]  # type: ignore[index]
    return loc


def _remove(values: Any, path: KeyPath) -> None:
    *parents, last = path
    for part in parents:
        values = values[part]
    del values[last]


# --- line numbers ------------------------------------------------------------------------------------------

_TABLE_HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def find_key_lines(text: str) -> dict[KeyPath, int]:
    """Returns the number of the line on which each key and table first appears. The first line has the number
    1.
    """
    found: dict[KeyPath, int] = {}
    for number, path in _iterate_keys(text):
        for length in range(1, len(path) + 1):
            found.setdefault(path[:length], number)
    return found


def nearest_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """Returns the line number of this key. If the number is unknown, returns the line number of the nearest
    table that contains the key. Returns None if no such table is found.
    """
    prefixes = (path[:length] for length in range(len(path), 0, -1))
    return next((lines[prefix] for prefix in prefixes if prefix in lines), None)


def _iterate_keys(text: str) -> Iterator[tuple[int, KeyPath]]:
    """Yields the line number and the path of each table header and key."""
    table: KeyPath = ()
    tables: dict[KeyPath, int] = {}
    closing_quotes = ""  # the end of a multi-line string
    for number, line in enumerate(text.splitlines(), 1):
        if closing_quotes:
            closing_quotes = "" if closing_quotes in line else closing_quotes
            continue
        if header := _TABLE_HEADER.match(line):
            table = _split_key(header[2])
            if header[1] == "[[":
                tables[table] = tables.get(table, -1) + 1
                table = (*table, tables[table])
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_split_key(key[1]))
            closing_quotes = next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), "")


def _split_key(dotted: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


async def report_problems(job: Job, workspace: Workspace, forge: Forge) -> None:
    """Posts the problems of the repository's configuration in the job's issue or pull request, once.

    Raises ForgeError.
    """
    if not (problems := (await read_repo_config(workspace.config_source)).problems):
        return
    named, more_count = problems[:MAX_PROBLEMS], len(problems[MAX_PROBLEMS:])
    text = render_reply(
        "repo_config_problems.md.j2", path=REPO_CONFIG_PATH, problems=named, more_count=more_count
    )
    try:
        await forge.upsert_comment(job.repo, job.number, COMMENT_TAG, text)
    except (Forbidden, NotFound) as exc:
        # The thread was locked or deleted. The run handles this when it ends.
        log.warning("configuration problems not posted", extra={"job": job.id, "reason": str(exc)})


def format_problems(problems: Sequence[ConfigProblem]) -> str:
    """Formats the problems as one line for the terminal. The line starts with the name of the file."""
    return f"{REPO_CONFIG_PATH} in the commit is invalid: {'; '.join(map(_format_problem, problems))}"


def _format_problem(problem: ConfigProblem) -> str:
    line = f"line {problem.line}" if problem.line else ""
    place = f"{problem.key} ({line})" if problem.key and line else problem.key or line
    suggestion = f", did you mean {problem.suggestion}?" if problem.suggestion else ""
    return f"{place}{': ' if place else ''}{problem.message}{suggestion}"
