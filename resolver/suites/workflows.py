"""The test commands in a repository's CI workflows: only simple ones, each with its file and step."""

import re
from collections.abc import Iterator

import yaml

from resolver.suites.part import Said
from resolver.suites.python import plain
from resolver.suites.runners import kind_of

PATHS = re.compile(r"\.github/workflows/[^/]+\.ya?ml")
MOST_FILES = 20
MOST_BYTES = 100_000  # of one workflow; PyYAML reads some 50 kB a second without its C library
DEEPEST = 40  # collections in collections
MOST_JOBS, MOST_STEPS, MOST_LINES = 50, 100, 100
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # strings, lists and mappings, nothing else
_SIMPLE = re.compile(r"[^;&|<>()$`{}#*?~]{1,500}")


def said_in(path: str, text: str) -> Iterator[tuple[str, Said]]:
    """The directory and the command of each step that runs tests, in the order of the file."""
    if len(text) > MOST_BYTES:
        return
    try:
        if not _is_plain(text):
            return
        workflow = yaml.load(text, Loader=_LOADER)  # noqa: S506 (a base loader makes no objects)
    except (yaml.YAMLError, RecursionError, ValueError):
        return
    jobs = _mapping(_mapping(workflow).get("jobs"))
    defaults = _directory(_mapping(workflow).get("defaults"))
    for name, job in list(jobs.items())[:MOST_JOBS]:
        job = _mapping(job)
        steps = job.get("steps")
        for count, step in enumerate(steps[:MOST_STEPS] if isinstance(steps, list) else (), 1):
            step = _mapping(step)
            run = step.get("run")
            place = step.get("working-directory") or _directory(job.get("defaults")) or defaults
            directory = _clean(place)
            if not isinstance(run, str) or directory is None:
                continue
            called = step.get("name")
            which = f"step “{_word(called)}”" if isinstance(called, str) else f"step {count}"
            for line in run.replace("\\\n", " ").splitlines()[:MOST_LINES]:
                if (said := _said(line, f"{path} ({which} of job {_word(str(name))})")) is not None:
                    yield directory, said


def _is_plain(text: str) -> bool:
    """Whether it is nested no deeper than a workflow: PyYAML's C part recurses on its own stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            return False
    return True


def _said(line: str, where: str) -> Said | None:
    command = " ".join(line.split())
    if not _SIMPLE.fullmatch(command):
        return None
    kind = kind_of(plain(command) or command)
    return Said(command, kind, where) if kind not in ("none", "junit") else None


def _mapping(value: object) -> dict[object, object]:
    return value if isinstance(value, dict) else {}


def _directory(defaults: object) -> object:
    return _mapping(_mapping(defaults).get("run")).get("working-directory")


def _clean(place: object) -> str | None:
    """A directory below the root; empty: the root. None: it cannot be said."""
    if place is None:
        return ""
    if not isinstance(place, str) or not re.fullmatch(r"[\w./-]{1,300}", place):
        return None
    parts = [part for part in place.split("/") if part not in ("", ".")]
    return None if ".." in parts or place.startswith("/") else "/".join(parts)


def _word(name: str) -> str:
    return " ".join(name.split())[:60]
