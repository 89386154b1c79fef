"""Finds simple test commands in a repository's GitHub Actions workflows, and the file and step of each
command.
"""

import re
from collections.abc import Iterator

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
    if len(text) > MAX_BYTES:
        return
    try:
        if not _is_shallow(text):
            return
        workflow = yaml.load(text, Loader=_LOADER)  # noqa: S506 (a base loader makes no objects)
    except (yaml.YAMLError, RecursionError, ValueError):
        return
    jobs = _as_mapping(_as_mapping(workflow).get("jobs"))
    defaults = _default_directory(_as_mapping(workflow).get("defaults"))
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
