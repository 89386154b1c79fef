"""Python: pytest and unittest, as tox.ini, noxfile.py or others say, else by the names of test files."""

import ast
import re
import shlex
from collections.abc import Iterator
from typing import Any

from resolver.suites.part import MOST_CHARACTERS, Family, Part, Said, as_ini, as_toml, quoted, table
from resolver.suites.runners import kind_of
from resolver.suites.suite import Suite

TESTS = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")
MANIFESTS = re.compile(r"pyproject\.toml|setup\.(?:py|cfg)|tox\.ini|pytest\.ini|noxfile\.py")
SOURCE = re.compile(r"src/[^/]+(?:/__init__)?\.py")

# They need what may not be there, or write where nobody looks: `coverage run -m`, `--cov=x`, `-n auto`.
_AROUND = re.compile(
    r"^(?:(?:poetry|uv|pdm|hatch|pipenv|rye) run (?:--?\S+ )*|xvfb-run (?:-\S+ )*"
    r"|(?:python[\d.]* -m )?coverage run (?:--?(?!m\b)\S+ )*(?=-m ))"
)
_DROPPED = re.compile(
    r"\s--(?:cov|junit-?xml|html|color|timeout|reruns|dist|numprocesses|durations)\b[\w-]*(?:=\S+|\s+(?!-)\S+)?"
    r"|\s-n[ =]?(?:\d+|auto|logical)\b"
)
_POSARGS = re.compile(r"\{posargs(?::([^{}]*))?\}")


def find(part: Part) -> Suite | None:
    said = next(_said(part), None) or part.said_by("pytest", "unittest")
    tests = part.named(TESTS)
    source = "PYTHONPATH=src " if part.named(SOURCE) else ""
    if said and (command := plain(said.command)):
        return part.suite(source + command, said.kind, said.why)
    if not tests:
        return None
    reads = [part.texts[path] for path in tests if path in part.texts]
    if reads and all(_is_unittest(text) for text in reads) and not _names_pytest(part):
        start = _start(tests, frozenset(part.files))
        if start is not None:
            command = f"{source}python3 -m unittest{f' discover -s {shlex.quote(start)}' if start else ''}"
            return part.suite(
                command, "unittest", f"No test command is configured, and {quoted(tests)} use unittest."
            )
    return part.suite(
        f"{source}python3 -m pytest",
        "pytest",
        f"No test command is configured, and {quoted(tests)} can be run by pytest.",
    )


def covers(part: Part) -> bool:
    """Whether pytest is configured here, for everything below."""
    return (
        "pytest.ini" in part.texts
        or "pytest" in table(as_toml(part.texts.get("pyproject.toml")), "tool")
        or as_ini(part.texts.get("tox.ini")).has_section("pytest")
        or as_ini(part.texts.get("setup.cfg")).has_section("tool:pytest")
    )


PYTHON = Family("python", MANIFESTS, TESTS, (".py", ".pyi", ".pyx"), find, covers)


def plain(command: str) -> str | None:
    """The command as it runs where the dependencies are installed; None: it cannot be said."""
    command = _AROUND.sub("", " ".join(command.split()))
    command = re.sub(r"^-m ", "python3 -m ", command)
    command = re.sub(r"^python[\d.]* ", "python3 ", command)
    command = re.sub(r"^(?:pytest|py\.test)\b", "python3 -m pytest", command)
    command = _DROPPED.sub("", command)
    return command if re.match(r"python3 -m (?:pytest|unittest)\b", command) else None


def _said(part: Part) -> Iterator[Said]:
    for where, command in (*_tox(part), *_nox(part.texts.get("noxfile.py", ""))):
        command = command[:MOST_CHARACTERS]
        if (kind := kind_of(plain(command) or "")) in ("pytest", "unittest"):
            yield Said(command, kind, where)


def _tox(part: Part) -> Iterator[tuple[str, str]]:
    project = as_toml(part.texts.get("pyproject.toml"))
    inside = table(project, "tool", "tox").get("legacy_tox_ini")
    for name, text in (("tox.ini", part.texts.get("tox.ini")), ("pyproject.toml", inside)):
        ini = as_ini(text if isinstance(text, str) else "")
        commands = ini.get("testenv", "commands", fallback="") or ""
        for line in commands.replace("\\\n", " ").splitlines():
            line = _POSARGS.sub(lambda found: found[1] or "", line.strip().lstrip("-! "))
            line = line.replace("{envpython}", "python3").replace("{toxinidir}/", "")
            if line and "{" not in line:
                yield f"The `[testenv]` of {name}", line
    for line in _lists(table(project, "tool", "tox", "env_run_base").get("commands")):
        yield "The `env_run_base` of tox in pyproject.toml", line


def _lists(commands: object) -> Iterator[str]:
    for command in commands if isinstance(commands, list) else ():
        words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
        if words:
            yield shlex.join(words)


def _nox(text: str) -> Iterator[tuple[str, str]]:
    """What the sessions of a noxfile run; it is read, never executed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in ast.walk(function):
            match call:
                case ast.Call(func=ast.Attribute(attr="run"), args=[*words]):
                    command = shlex.join(_constants(words))
                    yield f"The session `{function.name}` of noxfile.py", command


def _constants(words: list[Any]) -> Iterator[str]:
    for word in words:
        match word:
            case ast.Constant(value=str(value)):
                yield value


def _is_unittest(text: str) -> bool:
    return re.search(r"\bunittest\b", text) is not None and re.search(r"\bpytest\b", text) is None


def _names_pytest(part: Part) -> bool:
    """Whether a manifest asks for pytest, or a conftest.py wants it."""
    manifests = (text for path, text in part.texts.items() if "/" not in path and not TESTS.fullmatch(path))
    return any("pytest" in text for text in manifests) or any(
        path.rpartition("/")[2] == "conftest.py" for path in part.files
    )


def _start(tests: tuple[str, ...], files: frozenset[str]) -> str | None:
    """Where `unittest discover` has to start to find all of these; empty: here. None: it would not find them."""
    if any(not path.rpartition("/")[2].startswith("test") for path in tests):
        return None
    directories = {path.rpartition("/")[0] for path in tests}
    loose = {directory for directory in directories if directory and f"{directory}/__init__.py" not in files}
    if not loose:
        return ""
    return loose.pop() if len(directories) == 1 else None
