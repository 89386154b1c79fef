"""Loads the instructions and skills that the maintainers wrote for coding agents. They are read only from the
base commit.

Formats: agents.md (AGENTS.md), agentskills.io (SKILL.md), docs.openhands.dev (micro agents), and the files
that other assistants read.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from patchwright.resolver.git.repository import SYMLINK, TreeEntry, Workspace
from patchwright.resolver.json_schemas import AgentSchema, parse_agent_schema
from patchwright.resolver.settings.run_settings import McpServer
from patchwright.resolver.skills.front_matter import (
    Author,
    one_line,
    parse_front_matter,
    parse_servers,
    parse_tools,
    split_front_matter,
)
from patchwright.runtime.frozen_model import FrozenModel

MAX_BYTES = 100_000  # bytes per file; longer files are skipped
MAX_FILES = 200
MAX_SYMLINKS = 8  # symbolic links in a row; Linux follows 40
MAX_TRIGGERS = 50  # per skill
MAX_TRIGGER_LENGTH = 100  # characters
MAX_DESCRIPTION = 500  # characters; agentskills.io allows 1,024, but descriptions cost tokens in every run
MAX_AGENTS = 10  # micro agents per repository; their schemas also cost tokens in every run
MAX_PROMPT = 20_000  # characters of a micro agent's instructions

ROOT_FILES = ("AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md", ".cursorrules", "repo.md")
"""Names of files that are always included, in this order. The case of the names does not matter."""

_SKILL_PATHS = re.compile(
    r"(?:.*/)?(?:AGENTS|CLAUDE)\.md|\.github/copilot-instructions\.md|\.cursorrules|repo\.md"
    r"|\.openhands/microagents/.+\.md|\.(?:openhands|agents)/skills/(?:[^/]+|[^/]+/SKILL)\.md",
    re.IGNORECASE | re.DOTALL,
)
_EXCLUDED_PATHS = re.compile(
    r"(?:.*/)?(?:node_modules|vendor|third_party|site-packages)/.*|.*/README\.md", re.IGNORECASE
)

_TOOL_NAME = re.compile(
    r"[A-Za-z0-9_-]{1,60}"
)  # every provider accepts the tool name `ask_` plus such a name

SkillKind = Literal["always", "triggered", "listed", "nested", "agent"]


class RepoSkill(FrozenModel):
    """One file of instructions."""

    name: str
    path: str
    kind: SkillKind
    """How the instructions are used:

    - `always`: included in every run
    - `triggered`: included if one of the keywords is in the thread
    - `listed`: listed with the description
    - `nested`: applies to one directory
    - `agent`: the instructions of a micro agent, which is called as a tool
    """
    text: str
    """Text without the front matter."""
    description: str = ""
    triggers: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other paths with the same text."""
    form: AgentSchema | None = None
    """Input and output schemas of a micro agent; None for other skills."""
    edits: bool = False
    """True if a micro agent may edit the work tree of the agent that calls it."""
    author: Author = "maintainers"
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict)
    """MCP servers of runs whose first message contains the skill."""
    tools: tuple[str, ...] = ()
    """Names of installed tools of runs whose first message contains the skill."""

    @property
    def directory(self) -> str:
        return posixpath.dirname(self.path) + "/"


class RepoSkills(FrozenModel):
    """All skills of a repository."""

    skills: tuple[RepoSkill, ...] = ()
    problems: tuple[str, ...] = ()
    """One line for each file that could not be used, with the reason."""

    @property
    def agents(self) -> tuple[RepoSkill, ...]:
        """The micro agents."""
        return tuple(skill for skill in self.skills if skill.kind == "agent")

    def find(self, name: str) -> RepoSkill | None:
        """Returns the skill with this name or path, or None."""
        wanted = name.strip().removeprefix("./")
        by_name = (skill for skill in self.skills if skill.name == wanted)
        by_path = (skill for skill in self.skills if wanted in (skill.path, *skill.aliases))
        return next(by_name, None) or next(by_path, None)


async def load_skills(workspace: Workspace, earlier: RepoSkills | None = None) -> RepoSkills:
    """Loads the skills at the base commit, and appends them to `earlier`. Unusable files are reported in `problems`."""
    entries = [
        entry
        for entry in await workspace.find_entries(_SKILL_PATHS)
        if not _EXCLUDED_PATHS.fullmatch(entry.path)
    ]
    entries.sort(key=_sort_key)
    # A name that contains a line break or cannot be printed is unusable.
    problems = list(earlier.problems if earlier else ())
    problems += [
        f"{one_line(entry.path)} has a name that cannot be printed."
        for entry in entries
        if not entry.path.isprintable()
    ]
    entries = [entry for entry in entries if entry.path.isprintable()]
    if len(entries) > MAX_FILES:
        problems.append(
            f"{len(entries) - MAX_FILES} instruction files are ignored; only the first {MAX_FILES} are read."
        )
    by_content: dict[str, list[TreeEntry]] = {}
    for entry in entries[:MAX_FILES]:
        target = await _resolve_symlink(workspace, entry)
        if isinstance(target, str):
            problems.append(f"{entry.path} {target}.")
        else:
            by_content.setdefault(target.id, []).append(entry)
    paths_by_id = {
        id: [entry.path for entry in sorted(same_content, key=_path_priority)]
        for id, same_content in by_content.items()
    }
    contents = await workspace.read_blobs(tuple(paths_by_id), MAX_BYTES)
    skills = list(earlier.skills if earlier else ())
    for id, (path, *aliases) in paths_by_id.items():
        text, problem = _decode_text(contents.get(id))
        if text is not None and not text.strip():
            text, problem = None, "is empty"
        if text is not None and (reference := _find_reference(text, path, paths_by_id)):
            text = None if reference in {skill.path for skill in skills} else text
        if text is not None:
            skill, skill_problem = parse_skill(path, tuple(aliases), text, skills)
            skills += [skill] if skill else []
            problem = problem or skill_problem
        if problem:
            problems.append(f"{path} {problem}.")
    return RepoSkills(skills=tuple(skills), problems=tuple(problems))


def _path_priority(entry: TreeEntry) -> tuple[bool, bool]:
    """Returns a sort key for paths of files with the same text. Files that are always included come before
    other files. In both groups, symbolic links come last.
    """
    return entry.path.lower() not in {name.lower() for name in ROOT_FILES}, entry.mode == SYMLINK


def _sort_key(entry: TreeEntry) -> tuple[int, int, str]:
    """Returns a sort key: root files in their listed order, then other files by depth."""
    names = [name.lower() for name in ROOT_FILES]
    path = entry.path.lower()
    return (names.index(path) if path in names else len(names), path.count("/"), entry.path)


async def _resolve_symlink(workspace: Workspace, entry: TreeEntry) -> TreeEntry | str:
    """Returns the file that a symlink points to, or the reason why the file cannot be used."""
    current = entry
    for _ in range(MAX_SYMLINKS):
        if current.mode != SYMLINK:
            return current
        content = (await workspace.read_blobs((current.id,), 4096)).get(current.id)
        link = content.decode(errors="replace") if isinstance(content, bytes) else ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(current.path), link))
        if not link or link.startswith("/") or target.startswith(".."):
            return "is a symbolic link that points outside the repository"
        next_entry = await workspace.get_entry(target)
        if next_entry is None:
            return "is a symbolic link to a missing file"
        current = next_entry
    return "is a circular symbolic link"


def _decode_text(content: bytes | int | None) -> tuple[str | None, str | None]:
    """Returns the text of a file and a description of its problem. The text is None if the file is unusable.
    The problem is None if the file has none.
    """
    if content is None:
        return None, "is not in this clone: skipped"
    if isinstance(content, int):
        return None, f"has {content:,} bytes, more than the limit of {MAX_BYTES:,}: skipped"
    if b"\0" in content:
        return None, "is a binary file: skipped"
    try:
        return content.decode("utf-8-sig"), None
    except UnicodeDecodeError:
        return content.decode(errors="replace"), "is not UTF-8: invalid bytes are shown as \ufffd"


def _find_reference(text: str, path: str, named: dict[str, list[str]]) -> str | None:
    """Returns the path of the file that this text refers to. Returns None if the text is not a single
    reference such as `@AGENTS.md`.
    """
    match = re.fullmatch(r"@(\S+)", text.strip())
    if match is None:
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
    return next((paths[0] for paths in named.values() if target in paths), None)


def parse_skill(
    path: str,
    aliases: tuple[str, ...],
    text: str,
    earlier: Sequence[RepoSkill],
    author: Author = "maintainers",
) -> tuple[RepoSkill | None, str | None]:
    """Returns the skill in a file and a description of the file's problem. The skill is None if the file
    describes an unusable micro agent. The problem is None if the file has none.
    """
    head, body = split_front_matter(text)
    fields: dict[object, object] = {}
    problem = None
    if head is not None:
        try:
            fields = parse_front_matter(head)
        except ValueError as exc:
            problem = f"has invalid front matter ({exc})"
    servers: dict[str, McpServer] = {}
    tools: tuple[str, ...] = ()
    try:
        servers, tools = (
            parse_servers(fields.get("mcp_servers"), author),
            parse_tools(fields.get("tools"), author),
        )
    except ValueError as exc:
        problem = problem or f"brings no tools ({exc})"
    triggers = _parse_triggers(fields.get("triggers"))
    name = _valid_name(fields.get("name")) or _default_name(path)
    skill = RepoSkill(
        name=path if name in {skill.name for skill in earlier} else name,
        path=path,
        kind="listed" if problem and not fields else _detect_kind(path, triggers),
        text=body.strip("\n"),
        description=one_line(str(fields.get("description") or ""))[:MAX_DESCRIPTION],
        triggers=triggers,
        aliases=aliases,
        author=author,
        mcp_servers=servers,
        tools=tools,
    )
    if (
        fields.get("agent") is not True
    ):  # in OpenHands' own files, the field `agent` contains the name of an agent
        return skill, problem
    try:
        return skill.model_copy(
            update={
                "kind": "agent",
                "form": _parse_agent_form(skill, name, fields, earlier),
                "edits": fields.get("edits") is True,
            }
        ), None
    except ValueError as exc:
        return None, f"is not a usable micro agent ({exc}): skipped"


def _parse_agent_form(
    skill: RepoSkill, name: str, fields: dict[object, object], earlier: Sequence[RepoSkill]
) -> AgentSchema:
    """Returns a micro agent's input and output schema. Raises ValueError with the problem."""
    if skill.name != name:
        raise ValueError("another file has the same name")
    if not _TOOL_NAME.fullmatch(name):
        raise ValueError("the name may contain only letters, digits, `_` and `-`, and at most 60 characters")
    if not skill.description or not skill.text:
        raise ValueError("the description or the text is missing")
    if len(skill.text) > MAX_PROMPT:
        raise ValueError(f"the text is longer than {MAX_PROMPT:,} characters")
    if sum(other.kind == "agent" for other in earlier) >= MAX_AGENTS:
        raise ValueError(f"only the first {MAX_AGENTS} micro agents are used")
    return parse_agent_schema(fields)


def _parse_triggers(value: object) -> tuple[str, ...]:
    values: Sequence[object] = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    words = (one_line(word).lower() for word in values if isinstance(word, str))
    return tuple(dict.fromkeys(word for word in words if 0 < len(word) <= MAX_TRIGGER_LENGTH))[:MAX_TRIGGERS]


def _detect_kind(path: str, triggers: tuple[str, ...]) -> SkillKind:
    if triggers:
        return "triggered"
    if path.lower().endswith("/skill.md"):
        return "listed"
    if path.lower() in {name.lower() for name in ROOT_FILES} or path.startswith((".openhands/", ".agents/")):
        return "always"
    return "nested"


def _default_name(path: str) -> str:
    stem = posixpath.basename(path).rpartition(".")[0]
    if stem.lower() == "skill":
        return _valid_name(posixpath.basename(posixpath.dirname(path))) or path
    return (_valid_name(stem) or path) if path.startswith((".openhands/", ".agents/")) else path


def _valid_name(value: object) -> str:
    """Returns the name if it is usable, or an empty string."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,64}", value) else ""


def find_trigger(skill: RepoSkill, text: str) -> str | None:
    """Returns the first keyword of this skill that is in the text as whole words, or None if there is none.

    `text` is the result of `normalize_text`.
    """
    return next((word for word in skill.triggers if word in text and _is_whole_word(word, text)), None)


def normalize_text(*texts: str) -> str:
    return " ".join(" ".join(texts).lower().split())


def _is_whole_word(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def split_pages(text: str, limit: int) -> Iterator[tuple[int, str]]:
    """Yields the text in pieces of whole lines, each with the number of its first line. A piece has at most
    `limit` characters, unless a single line is longer.
    """
    line_number, page, start = 1, "", 1
    for line in text.splitlines(keepends=True):
        if page and len(page) + len(line) > limit:
            yield start, page
            page, start = "", line_number
        page += line
        line_number += 1
    yield start, page
