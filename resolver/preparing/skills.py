"""What a repository's maintainers say about working on it: instructions and skills, from the base commit alone.

Formats: agents.md (AGENTS.md), agentskills.io (SKILL.md), docs.openhands.dev (micro agents), and the files that
other assistants read.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import yaml

from resolver.git.repository import SYMLINK, Found, Workspace
from resolver.schemas import Form, form
from runtime.frozen import Frozen

MAX_BYTES = 100_000  # of one file; longer ones are no instructions
MAX_HEAD = 8_000  # characters of front matter
MAX_FILES = 200
MAX_HOPS = 8  # symbolic links in a row; Linux follows 40
MAX_TRIGGERS = 50  # of one skill
MAX_TRIGGER = 100  # characters
MAX_DESCRIPTION = 500  # characters; agentskills.io allows 1,024, and each is paid for in every run
MAX_AGENTS = 10  # their schemas are paid for in every run too
MAX_PROMPT = 20_000  # characters of what a micro agent is told

ROOT = ("AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md", ".cursorrules", "repo.md")
"""Files that are always read, in this order, however their names are capitalized."""

_PATHS = re.compile(
    r"(?:.*/)?(?:AGENTS|CLAUDE)\.md|\.github/copilot-instructions\.md|\.cursorrules|repo\.md"
    r"|\.openhands/microagents/.+\.md|\.(?:openhands|agents)/skills/(?:[^/]+|[^/]+/SKILL)\.md",
    re.IGNORECASE | re.DOTALL,
)
_NOT_OURS = re.compile(
    r"(?:.*/)?(?:node_modules|vendor|third_party|site-packages)/.*|.*/README\.md", re.IGNORECASE
)

_TOOL = re.compile(
    r"[A-Za-z0-9_-]{1,60}"
)  # with `ask_` before it, what every provider takes as a tool's name

Kind = Literal["always", "triggered", "listed", "nested", "agent"]


class Skill(Frozen):
    """One file of instructions."""

    name: str
    path: str
    kind: Kind
    """always: shown in every run. triggered: shown when one of its keywords is in the thread. listed: named with
    its description. nested: about one directory. agent: what a micro agent is told, which is asked by a tool."""
    text: str
    """Without its front matter."""
    description: str = ""
    triggers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other paths of the same text."""
    form: Form | None = None
    """Of a micro agent."""

    @property
    def directory(self) -> str:
        return posixpath.dirname(self.path) + "/"


class Skills(Frozen):
    """All of a repository's."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read, and why, a line each."""

    @property
    def agents(self) -> tuple[Skill, ...]:
        """Those that can be asked."""
        return tuple(skill for skill in self.skills if skill.kind == "agent")

    def named(self, name: str) -> Skill | None:
        """By its name, its path, or another path of it."""
        wanted = name.strip().removeprefix("./")
        by_name = (skill for skill in self.skills if skill.name == wanted)
        by_path = (skill for skill in self.skills if wanted in (skill.path, *skill.also))
        return next(by_name, None) or next(by_path, None)


async def find_skills(workspace: Workspace) -> Skills:
    """What is there at the base commit. What cannot be used is told, and harms nothing."""
    found = [one for one in await workspace.find(_PATHS) if not _NOT_OURS.fullmatch(one.path)]
    found.sort(key=_order)
    # A name that could start a line of its own, or that nobody could write back, names nothing.
    problems = [
        f"{_line(one.path)} has a name that cannot be printed." for one in found if not one.path.isprintable()
    ]
    found = [one for one in found if one.path.isprintable()]
    if len(found) > MAX_FILES:
        problems.append(f"{len(found) - MAX_FILES} more files of instructions: only {MAX_FILES} are read.")
    by_content: dict[str, list[Found]] = {}
    for one in found[:MAX_FILES]:
        target = await _followed(workspace, one)
        if isinstance(target, str):
            problems.append(f"{one.path} {target}.")
        else:
            by_content.setdefault(target.id, []).append(one)
    named = {id: [one.path for one in sorted(ones, key=_best)] for id, ones in by_content.items()}
    contents = await workspace.contents(tuple(named), MAX_BYTES)
    skills: list[Skill] = []
    for id, (path, *also) in named.items():
        text, problem = _text(contents.get(id))
        if text is not None and not text.strip():
            text, problem = None, "is empty"
        if text is not None and (reference := _only_refers(text, path, named)):
            text = None if reference in {skill.path for skill in skills} else text
        if text is not None:
            skill, complaint = _skill(path, tuple(also), text, skills)
            skills += [skill] if skill else []
            problem = problem or complaint
        if problem:
            problems.append(f"{path} {problem}.")
    return Skills(skills=tuple(skills), problems=tuple(problems))


def _best(one: Found) -> tuple[bool, bool]:
    """Which of several names for one text it goes by: one that is always read, then a file before a link to it."""
    return one.path.lower() not in {name.lower() for name in ROOT}, one.mode == SYMLINK


def _order(one: Found) -> tuple[int, int, str]:
    """The root's files in their order, then by depth."""
    names = [name.lower() for name in ROOT]
    path = one.path.lower()
    return (names.index(path) if path in names else len(names), path.count("/"), one.path)


async def _followed(workspace: Workspace, one: Found) -> Found | str:
    """The file that a path leads to; or why it leads to none."""
    seen = one
    for _ in range(MAX_HOPS):
        if seen.mode != SYMLINK:
            return seen
        content = (await workspace.contents((seen.id,), 4096)).get(seen.id)
        link = content.decode(errors="replace") if isinstance(content, bytes) else ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(seen.path), link))
        if not link or link.startswith("/") or target.startswith(".."):
            return "is a symbolic link that leads out of the repository"
        reached = await workspace.at(target)
        if reached is None:
            return "is a symbolic link to what is no file here"
        seen = reached
    return "is a symbolic link that goes in circles"


def _text(content: bytes | int | None) -> tuple[str | None, str | None]:
    """A file's text, if it is one, and what is wrong with it."""
    if content is None:
        return None, "is not in this clone: left out"
    if isinstance(content, int):
        return None, f"has {content:,} bytes, more than the {MAX_BYTES:,} that are read: left out"
    if b"\0" in content:
        return None, "is a binary file: left out"
    try:
        return content.decode("utf-8-sig"), None
    except UnicodeDecodeError:
        return content.decode(errors="replace"), "is not UTF-8: what is unreadable is shown as \ufffd"


def _only_refers(text: str, path: str, named: dict[str, list[str]]) -> str | None:
    """The instructions that a file of one line such as `@AGENTS.md` stands for."""
    found = re.fullmatch(r"@(\S+)", text.strip())
    if found is None:
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
    return next((paths[0] for paths in named.values() if target in paths), None)


def _skill(
    path: str, also: tuple[str, ...], text: str, before: Sequence[Skill]
) -> tuple[Skill | None, str | None]:
    """The skill of a file, and what is wrong with it; none: a micro agent that cannot be asked as it is."""
    head, body = _split(text)
    fields: dict[object, object] = {}
    problem = None
    if head is not None:
        try:
            fields = _fields(head)
        except ValueError as exc:
            problem = f"has front matter that cannot be read ({exc})"
    triggers = _triggers(fields.get("triggers"))
    name = _word(fields.get("name")) or _name(path)
    skill = Skill(
        name=path if name in {skill.name for skill in before} else name,
        path=path,
        kind="listed" if problem else _kind(path, triggers),
        text=body.strip("\n"),
        description=_line(str(fields.get("description") or ""))[:MAX_DESCRIPTION],
        triggers=triggers,
        also=also,
    )
    if fields.get("agent") is not True:  # OpenHands' files name one of its agents there
        return skill, problem
    try:
        return skill.model_copy(update={"kind": "agent", "form": _agent(skill, name, fields, before)}), None
    except ValueError as exc:
        return None, f"is no micro agent that can be asked ({exc}): left out"


def _agent(skill: Skill, name: str, fields: dict[object, object], before: Sequence[Skill]) -> Form:
    """What goes into a micro agent and what comes out of it. Raises ValueError that says what is wrong."""
    if skill.name != name:
        raise ValueError("another file has the same name")
    if not _TOOL.fullmatch(name):
        raise ValueError("its name holds more than up to 60 letters, digits, `_` and `-`")
    if not skill.description or not skill.text:
        raise ValueError("it has no description, or no text")
    if len(skill.text) > MAX_PROMPT:
        raise ValueError(f"its text is longer than {MAX_PROMPT:,} characters")
    if sum(other.kind == "agent" for other in before) >= MAX_AGENTS:
        raise ValueError(f"there are {MAX_AGENTS} others before it")
    return form(fields)


def _split(text: str) -> tuple[str | None, str]:
    """Front matter, if there is any, and the rest."""
    found = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return (found[1], text[found.end() :]) if found else (None, text)


def _fields(head: str) -> dict[object, object]:
    """Raises ValueError that says what is wrong."""
    if len(head) > MAX_HEAD:
        raise ValueError(f"it is longer than {MAX_HEAD:,} characters")
    try:
        fields = yaml.safe_load(head)
    except yaml.MarkedYAMLError as exc:
        where = f", line {exc.problem_mark.line + 2}" if exc.problem_mark else ""
        raise ValueError(f"{exc.problem or 'no YAML'}{where}") from exc
    except (yaml.YAMLError, RecursionError) as exc:
        raise ValueError("no YAML") from exc
    if fields is not None and not isinstance(fields, dict):
        raise ValueError("no list of keys and values")
    return fields or {}


def _triggers(value: object) -> tuple[str, ...]:
    listed: Sequence[object] = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    words = (_line(word).lower() for word in listed if isinstance(word, str))
    return tuple(dict.fromkeys(word for word in words if 0 < len(word) <= MAX_TRIGGER))[:MAX_TRIGGERS]


def _kind(path: str, triggers: tuple[str, ...]) -> Kind:
    if triggers:
        return "triggered"
    if path.lower().endswith("/skill.md"):
        return "listed"
    if path.lower() in {name.lower() for name in ROOT} or path.startswith((".openhands/", ".agents/")):
        return "always"
    return "nested"


def _name(path: str) -> str:
    stem = posixpath.basename(path).rpartition(".")[0]
    if stem.lower() == "skill":
        return _word(posixpath.basename(posixpath.dirname(path))) or path
    return (_word(stem) or path) if path.startswith((".openhands/", ".agents/")) else path


def _word(value: object) -> str:
    """A name that a model can write back; empty when it is none."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,64}", value) else ""


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def called(skill: Skill, text: str) -> str | None:
    """The keyword of this skill that stands in the text as whole words, if one does.

    `text` is what `searchable` made of it.
    """
    return next((word for word in skill.triggers if word in text and _stands_alone(word, text)), None)


def searchable(*texts: str) -> str:
    return " ".join(" ".join(texts).lower().split())


def _stands_alone(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def pages(text: str, limit: int) -> Iterator[tuple[int, str]]:
    """The text in pieces of whole lines, at most `limit` characters each where lines allow; with the first's number."""
    number, piece, start = 1, "", 1
    for line in text.splitlines(keepends=True):
        if piece and len(piece) + len(line) > limit:
            yield start, piece
            piece, start = "", number
        piece += line
        number += 1
    yield start, piece
