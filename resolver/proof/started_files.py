"""Finds the changed files that a test command starts or loads before the first test, at any depth. Examples are
scripts, makefile fragments, and the modules that a test runner's configuration names.

All texts are read at the base commit. The search compares texts and executes nothing, so a file whose name is
computed is not found.
"""

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import is_runner_config, is_test_related
from patchwright.resolver.suites.project_dir import get_table, parse_json_or_empty
from patchwright.resolver.suites.suite import Suite

MAX_FILES_READ = 60  # files that are searched for further files
MAX_FILE_BYTES = 500_000  # bytes of one of these files
MAX_IMPORTERS_READ = 30  # files that are read to find out whether they import a module

# Matches a program whose argument is a file of the repository. A variable such as `$(PYTHON)` may name the program.
_STARTED = re.compile(
    r"(?:^|[\s;&|(\"'@!-])(?:node(?!\s[^\n;&|]*--test\b)|bash|sh|dash|zsh|python[\d.]*|ruby|perl|tsx|ts-node|bun"
    r"|deno run|\$+[({]?\w*(?:PYTHON|NODE|SHELL|BASH|RUBY|PERL)\w*(?:[:?=-][^)}\s]*)?[)}]?[\"']?)"
    r"(?:\s+(?:-[A-Za-z]*[oIWX]\s+[\w.:=/-]+|-\S+))*\s+(?:\./)?(?P<path>[\w.-]+(?:/[\w.-]+)*)",
    re.MULTILINE,
)
# Matches a script at the start of a command, without an interpreter. Other paths there, such as `bin/tool`, may be
# programs of the product.
_SCRIPT = re.compile(
    r"(?:^|[;&|(]|\bexec\b)[ \t@-]*(?:\w+=\S*[ \t]+)*(?P<path>(?:[\w.-]+/)*"
    r"(?:\.?ci|dev|hack|qa|scripts?|tools?|[\w.-]*(?:check|test)[\w.-]*)/[\w.-]+(?:/[\w.-]+)*)",
    re.MULTILINE,
)
# Matches a path after `./`. It may be a program, or an argument of one.
_LOCAL_PATH = re.compile(
    r"(?:^|[\s;&|(\"'@!-])(?<!\. )(?<!\. [\"'])(?<!source )(?P<path>\./[\w.-]+(?:/[\w.-]+)*)", re.MULTILINE
)
_SOURCED = re.compile(
    r"(?:^|[;&|])[ \t@-]*(?:source|\.)[ \t]+[\"']?(?:\$\(dirname [^)]*\)[\"']?/|\$\{?\w+\}?/|\./)?"
    r"(?P<path>[\w.-]+(?:/[\w.-]+)*)",
    re.MULTILINE,
)
_OPTION = re.compile(
    r"(?<!\S)(?:-[rcf]|--(?:require|import|loader|experimental-loader|config|reporter|test-reporter|file|makefile"
    r"|env-file|setup\w*|global-?setup|preset|ui|test-?environment|rcfile))[=\s]+[\"']?(?P<path>[\w@./<>-]+)",
    re.IGNORECASE,
)
_INCLUDE = re.compile(r"^[ \t]*[-s]?include[ \t]+(?P<paths>.*)$", re.MULTILINE)
_MAKE_VARIABLE = re.compile(r"\$[({]\w+[)}]/?")
_IMPORT = re.compile(
    r"(?:\brequire\s*\(|\bfrom\b|\bimport\b\s*\(?)\s*[\"'`](?P<path>\.{1,2}/[^\"'`\n]+)[\"'`]"
)
# Keys of the configurations of jest, vitest, mocha, tap and ava whose values name modules that the runner loads.
_LOADING_KEY = re.compile(
    r"(?<![\w.])[\"']?(?:setup(?:Files\w*)?|teardown|global(?:Setup|Teardown)|testEnvironment|reporters?|(?:test)?[rR]unner"
    r"|transform|snapshot\w+|resolver|preset|testResultsProcessor|testSequencer|require|import|loader|node-option"
    r"|nodeArguments|ui|file|extends|plugin|before|after|projects)[\"']?\s*[:=]"
    r"(?P<value>\s*\[[^\]]*\]|\s*\{[^}]*\}|(?:[ \t]*\n[ \t]*-[^\n]*)+|[^\n,]*)"
)
# Keys of babel. A name without a dot at its start means an installed package.
_BABEL_KEY = re.compile(r"[\"']?(?:plugins|presets)[\"']?\s*:(?P<value>\s*\[[^}]*)")
_WORD = re.compile(r"[\w@.<>-]+(?:/[\w@.<>*-]+)*")
_SUFFIXES = ("", *(f".{name}" for name in "js cjs mjs ts cts mts tsx jsx json node py rb sh mk".split()))
_NODE_SUFFIXES = (".js", ".cjs", ".mjs", ".ts")
_OPTION_FILES = (".rspec", ".rspec-local")  # They contain options as on a command line.
_SHELL_SUFFIXES = ("", ".sh", ".bash", ".mk", ".mak", ".make")


class _Reference(NamedTuple):
    path: str
    """Path as it is written, relative to a directory of the repository."""
    kind: Literal["started", "named", "sourced", "loaded", "imported"]
    """`started`: by an interpreter, or included by make. `named`: as `./path`, such as a program. `sourced`: by a
    shell script. `loaded`: a module that a runner's configuration or an option names. `imported`: by a module.
    """


async def find_started_files(
    workspace: Workspace, suites: tuple[Suite, ...], changed: frozenset[str]
) -> frozenset[str]:
    """Returns the changed paths that a test command starts or loads. A new path is returned if the command
    would find it at a path that exists at the base commit.
    """
    search = _Search(workspace, frozenset(await workspace.list_files()) | changed)
    for suite in suites:
        await search.follow_suite(suite)
    return frozenset(search.found & changed)


class _Search:
    def __init__(self, workspace: Workspace, known: frozenset[str]) -> None:
        self._workspace = workspace
        self._known = known
        """All paths at the base commit, and the changed paths."""
        self.found: set[str] = set()
        self._read: set[str] = set()

    async def follow_suite(self, suite: Suite) -> None:
        package = parse_json_or_empty(await self._read_text(posixpath.join(suite.directory, "package.json")))
        entry_points = {
            path
            for text in _list_strings(
                [package.get(key) for key in ("main", "module", "exports", "bin", "browser")]
            )
            for path in self._expand(suite.directory, _Reference(text, "imported"))
        }
        texts = [suite.command, *_find_reachable_scripts(suite.command, get_table(package, "scripts"))]
        queue = [(suite.directory, reference) for text in texts for reference in _find_shell_references(text)]
        for path in sorted(self._known):
            if is_runner_config(path) and posixpath.dirname(path) in ("", suite.directory):
                queue += await self._references_in(path)
        while queue:
            directory, reference = queue.pop()
            paths = self._expand(directory, reference) | self._expand(suite.directory, reference)
            for path in sorted(paths - self.found):
                if suite.runner in ("none", "tape") and is_test_related(path) and not is_runner_config(path):
                    continue  # The file is itself the tests. With tape, it prints only its own results.
                if reference.kind != "started" and path in entry_points:
                    continue
                if reference.kind == "imported" and await self._is_product_module(path):
                    continue
                if reference.kind == "sourced" and not (
                    suite.directory != posixpath.dirname(path) == directory
                ):
                    continue  # A helper is next to the script. Files elsewhere may be what the script tests.
                self.found.add(path)
                queue += await self._references_in(path)

    def _expand(self, directory: str, reference: _Reference) -> set[str]:
        """Returns the known paths that a reference may mean. The name of a module may lack its suffix."""
        path = posixpath.normpath(posixpath.join(directory, reference.path.removeprefix("<rootDir>/")))
        if reference.kind in ("started", "named", "sourced"):
            # Node.js finds a script without its suffix.
            names = {path} if {path} & self._known else {f"{path}{suffix}" for suffix in _NODE_SUFFIXES}
            return names & self._known
        candidates = {f"{path}{suffix}" for suffix in _SUFFIXES}
        if reference.path.startswith("."):
            candidates |= {f"{path}/index{suffix}" for suffix in _SUFFIXES}
        return candidates & self._known

    async def _references_in(self, path: str) -> list[tuple[str, _Reference]]:
        if path in self._read or len(self._read) >= MAX_FILES_READ:
            return []
        self._read.add(path)
        text = await self._read_text(path)
        return [(posixpath.dirname(path), reference) for reference in _find_references(path, text or "")]

    async def _is_product_module(self, path: str) -> bool:
        """Returns True if a test or a module of the product imports this module at the base commit."""
        stem = posixpath.basename(path).partition(".")[0]
        stem = posixpath.basename(posixpath.dirname(path)) if stem == "index" else stem
        importers = await find_mentions(self._workspace, set(self._known - self.found), {stem})
        for importer in [name for name in importers if not is_runner_config(name)][:MAX_IMPORTERS_READ]:
            for match in _IMPORT.finditer(await self._read_text(importer) or ""):
                if path in self._expand(posixpath.dirname(importer), _Reference(match["path"], "imported")):
                    return True
        return False

    async def _read_text(self, path: str) -> str | None:
        return await self._workspace.read(path, MAX_FILE_BYTES)


def _find_references(path: str, text: str) -> Iterator[_Reference]:
    name, suffix = posixpath.basename(path), posixpath.splitext(path)[1]
    if name == "package.json":
        text = "\n".join(f'"{key}": {value}' for key, value in _list_runner_tables(text))
    elif name in _OPTION_FILES or (suffix in _SHELL_SUFFIXES and not name.startswith(".")):
        yield from _find_shell_references(text)
        return
    # The keys of Python's manifests have other meanings, such as the file with the package's version.
    if is_runner_config(path) and name not in ("pyproject.toml", "setup.cfg"):
        for match in _LOADING_KEY.finditer(text):
            yield from (_Reference(word, "loaded") for word in _WORD.findall(match["value"]))
        for match in _BABEL_KEY.finditer(text):
            words = _WORD.findall(match["value"])
            yield from (_Reference(word, "imported") for word in words if word.startswith("."))
    for match in _IMPORT.finditer(text):
        yield _Reference(match["path"], "imported")


def _find_shell_references(text: str) -> Iterator[_Reference]:
    """Yields the files in commands, shell scripts, and makefiles."""
    for match in _STARTED.finditer(text):
        yield _Reference(match["path"], "started")
    for pattern in (_LOCAL_PATH, _SCRIPT):
        yield from (_Reference(match["path"], "named") for match in pattern.finditer(text))
    for match in _SOURCED.finditer(text):
        yield _Reference(match["path"], "sourced")
    for match in _OPTION.finditer(text):
        yield _Reference(match["path"], "loaded")
    for match in _INCLUDE.finditer(text):
        words = _WORD.findall(_MAKE_VARIABLE.sub("", match["paths"]))
        yield from (_Reference(word, "started") for word in words)


def _list_runner_tables(text: str) -> Iterator[tuple[str, Any]]:
    """Yields the entries of the runners' tables in package.json."""
    package = parse_json_or_empty(text)
    for runner in ("jest", "vitest", "mocha", "ava", "tap", "nyc", "c8", "babel"):
        yield from get_table(package, runner).items()


def _find_reachable_scripts(command: str, scripts: dict[str, Any]) -> list[str]:
    """Returns the texts of the scripts of package.json that a command runs, directly or through other scripts."""
    reached = {name for name in scripts if "test" in name}
    texts, queue = [], [command, *(str(scripts[name]) for name in sorted(reached))]
    while queue:
        texts.append(queue.pop())
        words = re.split(r"[\s\"'&|;()]+", texts[-1])
        for name in scripts.keys() - reached:
            names = {name, name.removeprefix("pre"), name.removeprefix("post")}
            if not names.isdisjoint(words) or any(fnmatchcase(name, word) for word in words if ":*" in word):
                reached.add(name)
                queue.append(str(scripts[name]))
    return texts


def _list_strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _list_strings(item)
