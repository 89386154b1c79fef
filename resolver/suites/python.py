"""Finds Python test suites (pytest and unittest). The test command comes from tox.ini, noxfile.py or a similar
file. If these files contain no test command, the test files determine it.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from typing import Any

from patchwright.resolver.suites.file_classifier import is_shadowing_runner
from patchwright.resolver.suites.project_dir import (
    MAX_COMMAND_LENGTH,
    DeclaredCommand,
    LanguageSupport,
    ProjectDir,
    get_table,
    parse_ini_or_empty,
    parse_toml_or_empty,
    summarize_files,
)
from patchwright.resolver.suites.runners import detect_runner
from patchwright.resolver.suites.suite import Suite

TEST_FILES = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")
# pytest collects these modules only if the command names them. If there is a `manage.py`, it runs them.
TEST_MODULES = re.compile(r"(?:.*/)?tests\.py|(?:(?:.*/)?tests?/)?test\.py")
# Elsewhere, `test.py` can be a module of the product, so its text has to contain tests.
PACKAGE_TEST_MODULES = re.compile(r"(?:[^/]+/)+test\.py")
SCRIPT_TESTS = re.compile(r".*/(?:test|test_[^/]*|[^/]*_test)\.py")
MAX_TEST_MODULES = 20
MANIFESTS = re.compile(r"pyproject\.toml|setup\.(?:py|cfg)|tox\.ini|pytest\.ini|noxfile\.py")
SRC_LAYOUT_FILES = re.compile(r"src/[^/]+(?:/__init__)?\.py")

# Wrappers and options, such as `--cov=x`, `-n auto` and `coverage run -m`. They need tools that may be
# missing, or write additional files.
_COMMAND_WRAPPERS = re.compile(
    r"^(?:(?:poetry|uv|pdm|hatch|pipenv|rye) run (?:--?\S+ )*|xvfb-run (?:-\S+ )*"
    r"|(?:python[\d.]* -m )?coverage run (?:--?(?!m\b)\S+ )*(?=-m ))"
)
_DROPPED_OPTIONS = re.compile(
    r"\s--(?:cov|junit-?xml|html|color|timeout|reruns|dist|numprocesses|durations)\b[\w-]*(?:=\S+|\s+(?!-)\S+)?"
    r"|\s-n[ =]?(?:\d+|auto|logical)\b"
)
_TEST_CODE = re.compile(r"^\s*def test|^class .*\bTestCase\b", re.MULTILINE)
_IMPORTED = re.compile(r"^\s*(?:from\s+(\w+)[\w.]*\s+import|import\s+(\w+))", re.MULTILINE)
_POSARGS = re.compile(r"\{posargs(?::([^{}]*))?\}")


def find_suite(project: ProjectDir) -> Suite | None:
    declared = next(_find_declared_commands(project), None) or project.find_declared("pytest", "unittest")
    tests = project.match_files(TEST_FILES)
    source = _find_import_path(project)
    settings = _old_setup_cfg_options(project)
    if declared and (command := normalize_command(declared.command)):
        command = command.replace("python3 -m pytest", f"python3 -m pytest{settings}", 1)
        return project.make_suite(source + command, declared.runner, declared.command_reason)
    if not tests:
        return _find_test_modules(project, f"{source}python3 -m pytest{settings}")
    test_texts = [project.contents[path] for path in tests if path in project.contents]
    if test_texts and all(_uses_unittest(text) for text in test_texts) and not _mentions_pytest(project):
        start = _discovery_start(tests, frozenset(project.files))
        if start is not None:
            command = f"{source}python3 -m unittest{f' discover -s {shlex.quote(start)}' if start else ''}"
            return project.make_suite(
                command,
                "unittest",
                f"No test command is configured, and {summarize_files(tests)} use unittest.",
            )
    return project.make_suite(
        f"{source}python3 -m pytest{settings}",
        "pytest",
        f"No test command is configured, and {summarize_files(tests)} can be run by pytest.",
    )


def _find_test_modules(project: ProjectDir, pytest: str) -> Suite | None:
    modules = tuple(
        path
        for path in project.files
        if TEST_MODULES.fullmatch(path)
        or (PACKAGE_TEST_MODULES.fullmatch(path) and _TEST_CODE.search(project.contents.get(path, "")))
    )[:MAX_TEST_MODULES]
    if not modules or "manage.py" in project.files:
        return None
    return project.make_suite(
        f"{pytest} {' '.join(map(shlex.quote, modules))}",
        "pytest",
        f"No test command is configured, and {summarize_files(modules)} can be run by pytest.",
    )


def _find_import_path(project: ProjectDir) -> str:
    """Returns the start of a command that sets the directories from which tests import modules of the project, besides
    the project's own one. Returns an empty text if there are none.

    Tests in a package may import the modules next to them as if the package were no package, because people start
    such tests as scripts. A test that imports the package, or a module that a manifest names, is no such test.
    """
    files = frozenset(project.files)
    directories = {"src"} if project.match_files(SRC_LAYOUT_FILES) else set[str]()
    manifests = (text for path, text in project.contents.items() if not SCRIPT_TESTS.fullmatch(path))
    named = {word for text in manifests for word in re.findall(r"\w+", text)}
    for path in filter(SCRIPT_TESTS.fullmatch, project.contents):
        directory = path.rpartition("/")[0]
        imported = {first or second for first, second in _IMPORTED.findall(project.contents[path])}
        modules = {file.removeprefix(f"{directory}/") for file in files if file.startswith(f"{directory}/")}
        neighbors = {
            name for name in imported - named if f"{name}.py" in modules and f"{name}.py" not in files
        }
        is_package = (
            "__init__.py" in modules and directory.rpartition("/")[2] not in imported
        )  # else pytest finds them
        if is_package and neighbors and not any(map(is_shadowing_runner, modules)):
            directories.add(directory)
    return f"PYTHONPATH={':'.join(map(shlex.quote, sorted(directories)))} " if directories else ""


def _old_setup_cfg_options(project: ProjectDir) -> str:
    """Returns options with the settings in the section `[pytest]` of setup.cfg. pytest 4 and later stop because of this
    section, so it must not read the file.
    """
    ini = parse_ini_or_empty(project.contents.get("setup.cfg"))
    if is_pytest_configured(project) or not ini.has_section("pytest"):
        return ""
    settings = dict(ini.items("pytest"))
    options = ["", "-c /dev/null", "--rootdir=.", settings.pop("addopts", None) or ""]
    options += [f"-o {shlex.quote(f'{name}={value or str()}')}" for name, value in settings.items()]
    return " ".join(options)


def is_pytest_configured(project: ProjectDir) -> bool:
    """Returns True if pytest is configured for this directory and everything below it."""
    return (
        "pytest.ini" in project.contents
        or "pytest" in get_table(parse_toml_or_empty(project.contents.get("pyproject.toml")), "tool")
        or parse_ini_or_empty(project.contents.get("tox.ini")).has_section("pytest")
        or parse_ini_or_empty(project.contents.get("setup.cfg")).has_section("tool:pytest")
    )


PYTHON = LanguageSupport(
    "python", MANIFESTS, TEST_FILES, (".py", ".pyi", ".pyx"), find_suite, is_pytest_configured
)


def normalize_command(command: str) -> str | None:
    """Returns the command without wrappers such as `poetry run`, and without options such as `--cov`. Returns
    None if the command does not run pytest or unittest.
    """
    command = _COMMAND_WRAPPERS.sub("", " ".join(command.split()))
    command = re.sub(r"^-m ", "python3 -m ", command)
    command = re.sub(r"^python[\d.]* ", "python3 ", command)
    command = re.sub(r"^(?:pytest|py\.test)\b", "python3 -m pytest", command)
    command = _DROPPED_OPTIONS.sub("", command)
    return command if re.match(r"python3 -m (?:pytest|unittest)\b", command) else None


def _find_declared_commands(project: ProjectDir) -> Iterator[DeclaredCommand]:
    for source, command in (*_tox_commands(project), *_nox_commands(project.contents.get("noxfile.py", ""))):
        command = command[:MAX_COMMAND_LENGTH]
        if (runner := detect_runner(normalize_command(command) or "")) in ("pytest", "unittest"):
            yield DeclaredCommand(command, runner, source)


def _tox_commands(project: ProjectDir) -> Iterator[tuple[str, str]]:
    pyproject = parse_toml_or_empty(project.contents.get("pyproject.toml"))
    legacy_ini = get_table(pyproject, "tool", "tox").get("legacy_tox_ini")
    for name, text in (("tox.ini", project.contents.get("tox.ini")), ("pyproject.toml", legacy_ini)):
        ini = parse_ini_or_empty(text if isinstance(text, str) else "")
        commands = ini.get("testenv", "commands", fallback="") or ""
        for line in commands.replace("\\\n", " ").splitlines():
            line = _POSARGS.sub(lambda match: match[1] or "", line.strip().lstrip("-! "))
            line = line.replace("{envpython}", "python3").replace("{toxinidir}/", "")
            if line and "{" not in line:
                yield f"The `[testenv]` of {name}", line
    for line in _join_command_lists(get_table(pyproject, "tool", "tox", "env_run_base").get("commands")):
        yield "The `env_run_base` of tox in pyproject.toml", line


def _join_command_lists(commands: object) -> Iterator[str]:
    for command in commands if isinstance(commands, list) else ():
        words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
        if words:
            yield shlex.join(words)


def _nox_commands(text: str) -> Iterator[tuple[str, str]]:
    """Yields the commands in the sessions of a noxfile. The noxfile is parsed and never executed."""
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
                    command = shlex.join(_string_constants(words))
                    yield f"The session `{function.name}` of noxfile.py", command


def _string_constants(words: list[Any]) -> Iterator[str]:
    for word in words:
        match word:
            case ast.Constant(value=str(value)):
                yield value


def _uses_unittest(text: str) -> bool:
    return re.search(r"\bunittest\b", text) is not None and re.search(r"\bpytest\b", text) is None


def _mentions_pytest(project: ProjectDir) -> bool:
    """Returns True if a manifest mentions pytest or there is a conftest.py."""
    manifests = (
        text for path, text in project.contents.items() if "/" not in path and not TEST_FILES.fullmatch(path)
    )
    return any("pytest" in text for text in manifests) or any(
        path.rpartition("/")[2] == "conftest.py" for path in project.files
    )


def _discovery_start(tests: tuple[str, ...], files: frozenset[str]) -> str | None:
    """Returns the directory from which `unittest discover` finds all these tests, or None if there is no such
    directory.

    An empty string means the project's directory itself.
    """
    if any(not path.rpartition("/")[2].startswith("test") for path in tests):
        return None
    directories = {path.rpartition("/")[0] for path in tests}
    without_init = {
        directory for directory in directories if directory and f"{directory}/__init__.py" not in files
    }
    if not without_init:
        return ""
    return without_init.pop() if len(directories) == 1 else None
