"""What maintainers say about their repository, read so that a mistake costs no more than itself."""

import difflib
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from resolver import prose
from resolver.domain import Job
from resolver.errors import Forbidden, NotFound
from resolver.forge import Forge
from resolver.git.repository import SYMLINK, Workspace
from resolver.settings.settings import REPO_CONFIG_PATH, ConfiguredSuite, RepoConfig
from runtime.frozen import Frozen

log = logging.getLogger(__name__)

TAG = "configuration"  # of the comment
MOST_BYTES = 65_536  # a file that a person writes; of a larger one nothing is read
MOST_FAULTS = 20  # that are named; the rest is counted
MOST_KEY = 100  # characters of a key that are repeated

Place = tuple[str | int, ...]
"""Keys, and numbers of tables, that lead to something in the file."""


class Fault(Frozen):
    """Something that does not hold, and in place of which our default does."""

    key: str
    """Empty: it is the file as a whole."""
    line: int | None
    """From 1; None where it cannot be told."""
    wrong: str
    """Without a full stop."""
    nearest: str = ""
    """The setting that may be meant; empty: none is near."""


class Reading(Frozen):
    """The file, as far as it can be read."""

    config: RepoConfig = RepoConfig()
    faults: tuple[Fault, ...] = ()


async def read_config(workspace: Workspace) -> Reading:
    """The configuration at this commit, without what does not hold. Raises WorkspaceError."""
    if (found := await workspace.at(REPO_CONFIG_PATH)) is None:
        return Reading()
    if found.mode == SYMLINK:
        return _nothing("it is a symbolic link, and I follow none")
    content = (await workspace.contents([found.id], MOST_BYTES))[found.id]
    if isinstance(content, int):
        return _nothing(f"it has {content:,} bytes, and I read at most {MOST_BYTES:,}")
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        return _nothing("it is not UTF-8", content.count(b"\n", 0, exc.start) + 1)
    return reading(text)


def reading(text: str) -> Reading:
    """What a file of this text says."""
    try:
        values = tomllib.loads(text)
    except RecursionError:
        return _nothing("its values are nested too deep")
    except ValueError as exc:  # TOMLDecodeError, and numbers of thousands of digits
        line = re.search(r"at line (\d+)", str(exc))
        said = re.sub(r"\s*\(at .*\)$", "", str(exc))[:200]
        return _nothing(f"it is not valid TOML: {said}", int(line[1]) if line else None)
    faults: list[Fault] = []
    lines = lines_of(text)
    while True:
        try:
            config = RepoConfig(**values)
            return Reading(config=config, faults=tuple(sorted(faults, key=lambda one: one.line or 0)))
        except ValidationError as exc:
            wrong: dict[Place, Fault] = {}
            gone: set[Place] = set()
            for error in exc.errors(include_url=False, include_input=False, include_context=False):
                where = _deepest(values, error["loc"])
                fault = _fault(lines, error["loc"], where, error["type"], error["msg"])
                wrong.setdefault(where, fault)
                # A command without its directory would test something else: the table goes as a whole.
                gone.add(where if error["type"] == "extra_forbidden" else where[:2])
            faults += wrong.values()
            for where in sorted(gone, key=_later_first):
                _remove(values, where)


def _later_first(where: Place) -> tuple[int, int]:
    """An order in which no table is counted anew before it is taken away; what is in one goes before it."""
    return -(where[1] if len(where) > 1 and isinstance(where[1], int) else 0), -len(where)


def _nothing(wrong: str, line: int | None = None) -> Reading:
    return Reading(faults=(Fault(key="", line=line, wrong=wrong),))


def _fault(lines: Mapping[Place, int], loc: Place, where: Place, kind: str, message: str) -> Fault:
    """`loc`: what is complained about; `where`: the part of it that is in the file."""
    missing = kind == "missing"
    key = ".".join(part for part in (loc if missing else where) if isinstance(part, str))[:MOST_KEY]
    line = nearest_line(lines, where)
    if kind != "extra_forbidden":
        said = message.removeprefix("Value error, ").replace("Input should", "it should").rstrip(".")
        return Fault(key=key, line=line, wrong="it is missing" if missing else said[:300])
    known = list((RepoConfig if len(where) == 1 else ConfiguredSuite).model_fields)
    near = difflib.get_close_matches(str(where[-1])[:MOST_KEY], known, n=1, cutoff=0.5)
    return Fault(key=key, line=line, wrong="there is no such setting", nearest=near[0] if near else "")


def _deepest(values: object, loc: Place) -> Place:
    """As much of the way as there is in the file: pydantic goes on with the kinds of value that it tried."""
    for depth, part in enumerate(loc):
        inside = (isinstance(values, dict) and part in values) or (
            isinstance(values, list) and isinstance(part, int) and part < len(values)
        )
        if not inside:
            return loc[:depth]
        values = values[part]  # type: ignore[index]
    return loc


def _remove(values: Any, where: Place) -> None:
    *way, last = where
    for part in way:
        values = values[part]
    del values[last]


# --- where in the file --------------------------------------------------------------------------------------

_HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def lines_of(text: str) -> dict[Place, int]:
    """The line, from 1 on, on which each key and table first stands."""
    found: dict[Place, int] = {}
    for number, path in _lines(text):
        for length in range(1, len(path) + 1):
            found.setdefault(path[:length], number)
    return found


def nearest_line(lines: Mapping[Place, int], place: Place) -> int | None:
    """Of this, or of the table in which it is; None where neither is written so."""
    ways = (place[:length] for length in range(len(place), 0, -1))
    return next((lines[way] for way in ways if way in lines), None)


def _lines(text: str) -> Iterator[tuple[int, Place]]:
    """The lines that name a table or a key, with the way to it."""
    table: Place = ()
    tables: dict[Place, int] = {}
    within = ""  # the quotes of a text of several lines
    for number, line in enumerate(text.splitlines(), 1):
        if within:
            within = "" if within in line else within
            continue
        if header := _HEADER.match(line):
            table = _parts(header[2])
            if header[1] == "[[":
                tables[table] = tables.get(table, -1) + 1
                table = (*table, tables[table])
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_parts(key[1]))
            within = next((one for one in ('"""', "'''") if line.count(one) % 2), "")


def _parts(dotted: str) -> Place:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


async def complain(job: Job, workspace: Workspace, forge: Forge) -> None:
    """Tell the thread what of its repository's file does not hold, once.

    Raises ForgeError.
    """
    if not (faults := (await read_config(workspace.rules)).faults):
        return
    named, more = faults[:MOST_FAULTS], len(faults[MOST_FAULTS:])
    text = prose.reply("repo_config.md.j2", path=REPO_CONFIG_PATH, faults=named, more=more)
    try:
        await forge.say(job.repo, job.number, TAG, text)
    except (Forbidden, NotFound) as exc:  # the thread was locked or deleted: the end of the run finds out too
        log.warning("configuration not complained about", extra={"job": job.id, "reason": str(exc)})


def sentences(faults: Sequence[Fault]) -> str:
    """The faults in one line, for a terminal."""
    return "; ".join(
        f"{fault.key or REPO_CONFIG_PATH}{f' (line {fault.line})' if fault.line else ''}: {fault.wrong}"
        f"{f', did you mean {fault.nearest}?' if fault.nearest else ''}"
        for fault in faults
    )
