"""Finds the Python modules of a patch that a test runner loads before the tests: plugins that the configuration names,
and new modules that replace installed ones.
"""

import re
from itertools import product
from pathlib import PurePosixPath

from patchwright.resolver.errors import VerificationUnavailable
from patchwright.resolver.git.workspaces import ABSENT, SYMLINK, FileChange, Workspace
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import is_test_related
from patchwright.resolver.suites.suite import Suite
from patchwright.runtime.actions import Execute
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.observations import ExecuteResult
from patchwright.runtime.sandbox import Sandboxes

CONFIG_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_PYTHON_PATH = re.compile(r"\bpythonpath\s*=\s*([^\n]*(?:\n[ \t]+[^\n]*)*)", re.IGNORECASE)
_PROGRAM = re.compile(r"(?<!\S)\S*python[\d.]*(?!\S)")
# Prints the arguments that are modules which exist outside the work tree.
_LIST_INSTALLED = """
import importlib.util, os, sys
root = os.path.realpath(sys.argv[1]) + os.sep
sys.path = [place for place in sys.path if place and not (os.path.realpath(place) + os.sep).startswith(root)]
for name in sys.argv[2:]:
    try:
        if importlib.util.find_spec(name):
            print(name)
    except (ImportError, ValueError):
        print(name)
"""


# Matches `-p name` in a command or in pytest's options, and the names of plugins in a module.
_PLUGIN_OPTION = re.compile(r"(?<![\w-])-p(?:[ =]|\"\s*,\s*\")?(?!no:)([A-Za-z_][\w.]*)")
_PLUGIN_LIST = re.compile(r"\bpytest_plugins\s*(?::[^=\n]*)?=\s*([\[(][^\])]*|[^\n]*)")
_PLUGIN_VARIABLE = re.compile(r"\bPYTEST_PLUGINS\s*=\s*[\"']?([\w.,]+)")


async def find_plugin_modules(workspace: Workspace, changed: frozenset[str], suite: Suite) -> frozenset[str]:
    """Returns the changed files whose module pytest loads as a plugin, because an option or a test names it."""
    if suite.runner != "pytest":
        return frozenset()
    options = [suite.command, *await _read_config(workspace, suite)]
    names = {match[1] for text in options for match in _PLUGIN_OPTION.finditer(text)}
    names |= {
        name for text in options for match in _PLUGIN_VARIABLE.findall(text) for name in match.split(",")
    }
    tests = {path for path in await workspace.list_files() if path.endswith(".py") and is_test_related(path)}
    for path in await find_mentions(workspace, tests, {"pytest_plugins"}):
        for match in _PLUGIN_LIST.finditer(await workspace.read(path) or ""):
            names |= set(re.findall(r"[\"']([\w.]+)[\"']", match[1]))
    stems = {
        PurePosixPath(place, *name.split("."))
        for place in await _list_import_directories(workspace, suite)
        for name in names
    }
    files = {f"{stem}{ending}" for stem in stems for ending in (".py", "/__init__.py")}
    return frozenset(files & changed)


async def find_shadowing_modules(
    workspace: Workspace,
    changes: tuple[FileChange, ...],
    suites: tuple[Suite, ...],
    sandboxes: Sandboxes,
    run_name: str,
) -> frozenset[str]:
    """Returns the new paths whose module would replace an installed one, or one of the repository in another directory
    of the path. A sandbox is opened only if the patch adds a top-level module.

    Raises VerificationUnavailable if the sandbox failed.
    """
    python_suites = tuple(suite for suite in suites if suite.runner in ("pytest", "unittest"))
    added, doubled = await _find_added_modules(workspace, changes, python_suites)
    if not added:
        return frozenset()
    program = _PROGRAM.search(python_suites[0].command)
    try:
        async with sandboxes.open(f"{run_name}-modules") as sandbox:
            argv = (program[0] if program else "python3", "-c", _LIST_INSTALLED, sandbox.root, *sorted(added))
            result = await sandbox.act(Execute(argv=argv, cwd=sandbox.scratch, timeout=60))
    except SandboxError as exc:
        raise VerificationUnavailable(f"The test sandbox failed: {exc}") from exc
    installed = result.stdout.decode().split() if isinstance(result, ExecuteResult) else ()
    return frozenset(path for name in (*installed, *doubled) for path in added.get(name, ()))


async def _find_added_modules(
    workspace: Workspace, changes: tuple[FileChange, ...], suites: tuple[Suite, ...]
) -> tuple[dict[str, set[str]], set[str]]:
    """Returns the new paths by the name of the new top-level module, and the names that another directory has, too."""
    existing = frozenset(await workspace.list_files() if suites else ())
    kept = existing - {change.path for change in changes if change.mode == ABSENT}
    added: dict[str, set[str]] = {}
    doubled = set[str]()
    for suite in suites:
        places = await _list_import_directories(workspace, suite)
        known = {place: {_get_module(path, place) for path in existing} for place in places}
        modules = {_get_module(path, place) for place in places for path in kept}
        for place, change in product(places, changes):
            name = _get_module(get_module_path(change), place)
            if change.old_mode == ABSENT and name.isidentifier() and name not in known[place]:
                added.setdefault(name, set()).add(change.path)
                doubled |= {name} & modules
    return added, doubled


async def _list_import_directories(workspace: Workspace, suite: Suite) -> set[str]:
    """Returns the directories of the repository from which the suite probably imports modules."""
    named = (
        word
        for text in (suite.command, *await _read_config(workspace, suite))
        for match in _PYTHON_PATH.finditer(text)
        for word in re.findall(r"[\w./-]+", match[1].split(" -")[0])
    )
    places = {"", suite.directory, *(str(PurePosixPath(suite.directory, word)) for word in ("src", *named))}
    return {place.removeprefix("./").removesuffix(".").strip("/") for place in places}


async def _read_config(workspace: Workspace, suite: Suite) -> list[str]:
    paths = [str(PurePosixPath(suite.directory, name)) for name in CONFIG_FILES]
    return [await workspace.read(path) or "" for path in paths]


def get_module_path(change: FileChange) -> str:
    """Returns the path of a changed file, or of a module in the directory to which a changed link may point."""
    return f"{change.path}/__init__.py" if change.mode == SYMLINK else change.path


def _get_module(path: str, directory: str) -> str:
    """Returns the name of the top-level module that Python finds in a directory because of this file."""
    if directory and not path.startswith(f"{directory}/"):
        return ""
    parts = PurePosixPath(path.removeprefix(f"{directory}/") if directory else path).parts
    return parts[0].partition(".")[0] if path.endswith((".py", ".pyc", ".so", ".pyd")) else ""
