"""Finds out why a test could not be collected at the base commit. The test may need code that the patch adds,
or may have an unrelated problem.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from patchwright.resolver.domain import Patch, TestRun, TestStatus
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.suites.reports.runner_report import RunnerReport

MAX_FILES = 200

_JAVASCRIPT_SUFFIXES = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")
_CODE_SUFFIXES = (".py", *_JAVASCRIPT_SUFFIXES, ".go", ".rs", ".java", ".kt")
# The names that the compilers of Go, Rust, Java and Kotlin do not find.
_UNKNOWN_NAMES = re.compile(
    r"\bundefined: (?:\w+\.)?(\w+)|\b(?:field or method|unknown field) (\w+)"
    r"|\b(?:find(?: [\w, ]+)?|no(?: field)?) `(\w+)` (?:in|on)\b|\bnamed `(\w+)`"
    r"|\bsymbol: +\w+ (\w+)|\b[Uu]nresolved reference:? '?(\w+)"
)
# The process of the tests was killed at its time limit, or by SIGILL, SIGABRT, SIGBUS, SIGFPE or SIGSEGV.
_CRASHES = (None, *(code for number in (4, 6, 7, 8, 11) for code in (-number, 128 + number)))


class AddedSymbols:
    """The names and files that a patch adds to the code under test."""

    def __init__(self, identifiers: Mapping[str, frozenset[str]], files: frozenset[str]) -> None:
        self._identifiers = identifiers
        """The identifiers that the patch adds to each file with code."""
        self._files = files
        """Paths of new files."""

    def explains(self, message: str, output: str = "") -> bool:
        """Returns True if the failure message says that a module or name is missing and if the patch adds
        that module or name.

        `output` is the runner's output. This output is needed because some reports do not say why a file
        could not be loaded.
        """
        return (
            self._explains_python(message)
            or self._explains_javascript(f"{message}\n{output}")
            or self._explains_ruby(f"{message}\n{output}")
            or any(
                name in words
                for match in _UNKNOWN_NAMES.finditer(f"{message}\n{output}")
                for name in filter(None, match.groups())
                for words in self._identifiers.values()
            )
        )

    def _explains_python(self, message: str) -> bool:
        import_errors = re.findall(
            r"^E?\s*(?:ImportError|ModuleNotFoundError|AttributeError): (.*)$", message, re.MULTILINE
        )
        error_names = re.findall(  # pytest marks these lines with an E, unittest does not
            r"^(?:E\s+)?(\w[\w.]*(?:Error|Exception|Warning))(?=:|$)", message, re.MULTILINE
        )
        if (
            not import_errors
            or not error_names
            or error_names[-1] not in ("ImportError", "ModuleNotFoundError", "AttributeError")
        ):
            return False
        if module := re.search(r"No module named '([\w.]+)'", import_errors[-1]):
            path = module[1].replace(".", "/")
            new_modules = {name.removesuffix(".py").removesuffix("/__init__") for name in self._identifiers}
            return any(name == path or name.endswith(f"/{path}") for name in new_modules)
        name = re.search(r"cannot import name '(\w+)'|has no attribute '(\w+)'", import_errors[-1])
        return name is not None and any((name[1] or name[2]) in words for words in self._identifiers.values())

    def _explains_javascript(self, message: str) -> bool:
        """Returns True if a message of node, jest or vitest says that a file or an export is missing and if the
        patch adds it. The message contains a relative path. Only the file name in this path is compared, with or
        without its suffix.
        """
        paths = re.findall(
            r"(?:Cannot find module|Failed to (?:load url|resolve import)) ['\"]?([^'\"\s]+)", message
        )
        missing = {PurePosixPath(path).name for path in paths if "/" in path}
        exports = re.findall(r"does not provide an export named '([\w$]+)'", message)
        if any(name in words for name in exports for words in self._identifiers.values()):
            return True
        stems = {PurePosixPath(path).name for path in self._files if path.endswith(_JAVASCRIPT_SUFFIXES)}
        return any(stem == name or stem.rpartition(".")[0] == name for stem in stems for name in missing)

    def _explains_ruby(self, message: str) -> bool:
        paths = re.findall(r"cannot load such file -- (\S+)", message)
        missing = {PurePosixPath(path).name.removesuffix(".rb") for path in paths}
        return any(PurePosixPath(path).stem in missing for path in self._files if path.endswith(".rb"))


async def find_added_symbols(
    workspace: Workspace, patch: Patch, code_changes: tuple[FileChange, ...]
) -> AddedSymbols:
    """Returns the names and files that the patch adds. `code_changes` are the patch's changes outside the tests."""
    identifiers: dict[str, frozenset[str]] = {}
    for change in code_changes[:MAX_FILES]:
        if change.path.endswith(_CODE_SUFFIXES) and change.mode.startswith("100"):
            new = await workspace.read_patched(patch, change.path) or b""
            old = await workspace.read(change.path) or ""
            identifiers[change.path] = _find_identifiers(new.decode(errors="replace")) - _find_identifiers(
                old
            )
    files = frozenset(change.path for change in code_changes if change.old_mode == ABSENT)
    return AddedSymbols(identifiers, files)


def skip_unrelated_errors(
    run: TestRun, report: RunnerReport, added: AddedSymbols, patch_tests: frozenset[str]
) -> TestRun:
    """Marks tests as skipped if they could not be collected at the base commit, and the patch does not explain why.

    The patch explains an error that says that a module or name is missing, if it adds this module or name. Such an
    error in one file may stop the runner before it runs any test, and so can a test that crashes or hangs. In that
    case, all of `patch_tests`, the tests that exist only in the patch, get the result "error".
    """
    if run.problem and (run.exit_code in _CRASHES or (run.exit_code and added.explains("", run.output))):
        errors: dict[str, TestStatus] = dict.fromkeys(patch_tests, "error")
        return run.model_copy(update={"results": errors, "problem": None})

    def is_relevant(test: str) -> bool:
        whole_file = "::" not in test
        return added.explains(report.messages.get(test, ""), run.output if whole_file else "")

    results: dict[str, TestStatus] = {
        test: "skipped" if result == "error" and not is_relevant(test) else result
        for test, result in run.results.items()
    }
    return run.model_copy(update={"results": results})


def _find_identifiers(source: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", source))
