"""Reads a repository's GitHub Actions workflows. Finds simple test commands with their file and step, and the
workflows that start for a pull request.
"""

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

import yaml

from patchwright.resolver.suites.project_dir import DeclaredCommand
from patchwright.resolver.suites.python import normalize_command
from patchwright.resolver.suites.runners import detect_runner

WORKFLOW_PATHS = re.compile(r"\.github/workflows/[^/]+\.ya?ml")
MAX_FILES = 20
# maximum bytes of one workflow; without its C library, PyYAML parses about 50 kB per second
MAX_BYTES = 100_000
MAX_DEPTH = 40  # maximum nesting of collections
MAX_JOBS, MAX_STEPS, MAX_LINES = 50, 100, 100
_LOADER = getattr(
    yaml, "CBaseLoader", yaml.BaseLoader
)  # this loader creates only strings, lists and mappings
_SIMPLE_COMMAND = re.compile(r"[^;&|<>()$`{}#*?~]{1,500}")


def find_test_commands(path: str, text: str) -> Iterator[tuple[str, DeclaredCommand]]:
    """Yields the directory and the command of each step that runs tests, in file order."""
    workflow = _parse_workflow(text) or {}
    jobs = _as_mapping(workflow.get("jobs"))
    defaults = _default_directory(workflow.get("defaults"))
    for name, job in list(jobs.items())[:MAX_JOBS]:
        job = _as_mapping(job)
        steps = job.get("steps")
        for number, step in enumerate(steps[:MAX_STEPS] if isinstance(steps, list) else (), 1):
            step = _as_mapping(step)
            run = step.get("run")
            working_directory = (
                step.get("working-directory") or _default_directory(job.get("defaults")) or defaults
            )
            directory = _normalize_directory(working_directory)
            if not isinstance(run, str) or directory is None:
                continue
            step_name = step.get("name")
            step_label = f"step “{_one_line(step_name)}”" if isinstance(step_name, str) else f"step {number}"
            for line in run.replace("\\\n", " ").splitlines()[:MAX_LINES]:
                if (
                    declared := _declared_command(
                        line, f"{path} ({step_label} of job {_one_line(str(name))})"
                    )
                ) is not None:
                    yield directory, declared


def starts_for_pull_request(text: str, events: Collection[str], head: str, base: str) -> bool:
    """Returns True if one of these events starts the workflow for a new pull request from the branch `head`
    into the branch `base`. Filters for paths are ignored. A workflow that cannot be read counts as started.

    Source: docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#on
    """
    workflow = _parse_workflow(text)
    if workflow is None:
        return True
    triggers = workflow.get("on")
    if isinstance(triggers, str | list):
        triggers = dict.fromkeys([triggers] if isinstance(triggers, str) else map(str, triggers))
    return any(
        _accepts_branch(_as_mapping(filters), head if event == "push" else base)
        for event, filters in _as_mapping(triggers).items()
        if event in events
    )


def _accepts_branch(filters: dict[object, object], branch: str) -> bool:
    """Returns True if an event on this branch passes the filters of a trigger."""
    types = filters.get("types")
    if types is not None and not {"opened", "synchronize"} & set(_as_strings(types)):
        return False
    if "branches" not in filters and "branches-ignore" not in filters:
        return "tags" not in filters and "tags-ignore" not in filters
    if "branches" not in filters:
        return not any(_matches(branch, pattern) for pattern in _as_strings(filters["branches-ignore"]))
    is_accepted = False
    for pattern in _as_strings(filters["branches"]):
        if _matches(branch, pattern.removeprefix("!")):
            is_accepted = not pattern.startswith("!")
    return is_accepted


def _matches(branch: str, pattern: str) -> bool:
    """Returns True if the branch matches a pattern from a workflow's branch filter.

    Patterns with `?` or `+` are not evaluated. They count as matching every branch.
    """
    if "?" in pattern or "+" in pattern:
        return True
    if "**" in pattern:
        return fnmatchcase(branch, pattern)
    parts, patterns = branch.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _parse_workflow(text: str) -> dict[object, object] | None:
    """Returns the top level of a workflow, or None if the workflow is too large, too deep, or invalid."""
    if len(text) > MAX_BYTES:
        return None
    try:
        if not _is_shallow(text):
            return None
        workflow = yaml.load(text, Loader=_LOADER)  # noqa: S506 (a base loader makes no objects)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return workflow if isinstance(workflow, dict) else None


def _is_shallow(text: str) -> bool:
    """Returns True if the YAML is not nested deeper than MAX_DEPTH. PyYAML's C parser is recursive, so deeper
    nesting could overflow the C stack.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return False
    return True


def _declared_command(line: str, source: str) -> DeclaredCommand | None:
    command = " ".join(line.split())
    if not _SIMPLE_COMMAND.fullmatch(command):
        return None
    runner = detect_runner(normalize_command(command) or command)
    return DeclaredCommand(command, runner, source) if runner not in ("none", "junit") else None


def _as_mapping(value: object) -> dict[object, object]:
    return value if isinstance(value, dict) else {}


def _as_strings(value: object) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def _default_directory(defaults: object) -> object:
    return _as_mapping(_as_mapping(defaults).get("run")).get("working-directory")


def _normalize_directory(directory: object) -> str | None:
    """Returns a directory as a path from the repository's root. An empty string means the root itself.

    Returns None if the directory is outside the repository or is not a plain path, for example a workflow
    expression.
    """
    if directory is None:
        return ""
    if not isinstance(directory, str) or not re.fullmatch(r"[\w./-]{1,300}", directory):
        return None
    parts = [part for part in directory.split("/") if part not in ("", ".")]
    return None if ".." in parts or directory.startswith("/") else "/".join(parts)


def _one_line(name: str) -> str:
    return " ".join(name.split())[:60]
