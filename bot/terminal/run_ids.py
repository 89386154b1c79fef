"""Creates the names of runs. Finds a run by its name or by a unique prefix of its name; `last` means the
newest run.
"""

import difflib
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from patchwright.resolver.domain import JobId, RunId
from patchwright.resolver.errors import UsageError
from patchwright.resolver.run_log import is_valid_run_id

LAST = "last"
MAX_SHOWN = 5  # Maximum number of runs that an error message lists.
# Matches the names that resolver/delegation/subagents.py creates.
_SUBAGENT_RUN = re.compile(r"(.+)-(?:browse|sub)-\d+")


def find_run(query: str, directory: Path, list_other_runs: Callable[[], Iterable[RunId]] = tuple) -> RunId:
    """Returns the id of the run that the query names. The query is the name of a run, a prefix of a name, or
    `last`.

    `list_other_runs` returns runs outside `directory`, and is called only if `directory` does not contain the
    run. Raises UsageError if no run or several runs match. The message lists similar runs.
    """
    if not is_valid_run_id(query):
        raise UsageError(
            f"`{query[:80]}` is not the name of a run: names have only letters, digits and `._-`."
        )
    if (directory / query / "events.jsonl").is_file():
        return RunId(query)
    local = list_local_runs(directory)
    if query == LAST and local:
        return local[0]
    names = list(dict.fromkeys((*local, *list_other_runs())))
    if query in names:
        return RunId(query)
    matching = [name for name in names if name.startswith(query)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(f"`{query}` matches {_join_names(matching)}. Type more of the name.")
    if not names:
        raise UsageError(f"There is no run `{query}`: there are no runs in {directory} yet.")
    similar = difflib.get_close_matches(query, names[:1000], n=3, cutoff=0.5)
    hint = f" Similar names: {_join_names(similar)}." if similar else ""
    raise UsageError(
        f"There is no run `{query}` in {directory}.{hint} List all runs with `patchwright runs`."
    )


def list_local_runs(directory: Path) -> list[RunId]:
    """Returns the runs in the directory, newest first. Excludes runs of subagents."""
    found = [(path.stat().st_mtime, path.parent.name) for path in directory.glob("*/events.jsonl")]
    names = {name for _, name in found}
    return [RunId(name) for _, name in sorted(found, reverse=True) if not is_subagent_run(name, names)]


def is_subagent_run(name: str, runs: set[str]) -> bool:
    """Returns True if `name` is the run of a subagent of one of these runs."""
    return (match := _SUBAGENT_RUN.fullmatch(name)) is not None and match[1] in runs


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:MAX_SHOWN]) + more


def create_run_id(prefix: str) -> JobId:
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return JobId(f"{sanitize_name(prefix)[:80]}-{now}-{secrets.token_hex(2)}")


def sanitize_name(name: str) -> str:
    safe = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name)
    return safe.strip(".-") or "repository"
