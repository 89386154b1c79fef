"""Whether a test that could not even be collected at base misses what the patch adds, or fails for another reason."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from resolver.domain import Patch, Result, SuiteRun
from resolver.suites.testreport import Report
from resolver.workspace import ABSENT, Change, Workspace

MOST_FILES = 200

_SCRIPTS = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")


class Added:
    """What a patch adds to the code under test, as far as a test's complaint can name it."""

    def __init__(self, words: Mapping[str, frozenset[str]], files: frozenset[str]) -> None:
        self._words = words
        """Of each Python file: the words that it has and did not have at base."""
        self._files = files
        """Paths that are new."""

    def is_missed_by(self, message: str, printed: str = "") -> bool:
        """Whether a failure says that a module or a name is absent which the patch adds.

        `printed` by the runner: not every one repeats in its report why it could not load a file.
        """
        return (
            self._python(message)
            or self._script(f"{message}\n{printed}")
            or self._ruby(f"{message}\n{printed}")
        )

    def _python(self, message: str) -> bool:
        said = re.findall(
            r"^E?\s*(?:ImportError|ModuleNotFoundError|AttributeError): (.*)$", message, re.MULTILINE
        )
        last = re.findall(r"^E\s+(\w[\w.]*(?:Error|Exception|Warning))\b", message, re.MULTILINE)
        if not said or not last or last[-1] not in ("ImportError", "ModuleNotFoundError", "AttributeError"):
            return False
        if module := re.search(r"No module named '([\w.]+)'", said[-1]):
            path = module[1].replace(".", "/")
            new = {name.removesuffix(".py").removesuffix("/__init__") for name in self._words}
            return any(name == path or name.endswith(f"/{path}") for name in new)
        name = re.search(r"cannot import name '(\w+)'|has no attribute '(\w+)'", said[-1])
        return name is not None and any((name[1] or name[2]) in words for words in self._words.values())

    def _script(self, message: str) -> bool:
        """As node, jest and vitest say it: of a file with a relative path, whose end is that of a new one."""
        named = re.findall(
            r"(?:Cannot find module|Failed to (?:load|resolve)[\w\s]*?) ['\"]?([^'\"\s]+)", message
        )
        asked = {PurePosixPath(path).name for path in named if "/" in path}
        stems = {PurePosixPath(path).name for path in self._files if path.endswith(_SCRIPTS)}
        return any(stem == name or stem.rpartition(".")[0] == name for stem in stems for name in asked)

    def _ruby(self, message: str) -> bool:
        named = re.findall(r"cannot load such file -- (\S+)", message)
        asked = {PurePosixPath(path).name.removesuffix(".rb") for path in named}
        return any(PurePosixPath(path).stem in asked for path in self._files if path.endswith(".rb"))


async def added(workspace: Workspace, patch: Patch, product: tuple[Change, ...]) -> Added:
    """What the patch adds in these changes, all of them outside the tests."""
    words: dict[str, frozenset[str]] = {}
    for change in product[:MOST_FILES]:
        if change.path.endswith(".py") and change.mode.startswith("100"):
            new = await workspace.content(patch, change.path) or b""
            old = await workspace.read(change.path) or ""
            words[change.path] = _words(new.decode(errors="replace")) - _words(old)
    files = frozenset(change.path for change in product if change.old_mode == ABSENT)
    return Added(words, files)


def with_missing(run: SuiteRun, report: Report, added: Added, brought: frozenset[str]) -> SuiteRun:
    """A run on the base code in which an error counts only when it misses what the patch adds; else it is a skip.

    `brought` are tests that only the patch has: where one file's error ends the runner, none of them was run.
    """
    if run.problem and run.exit_code not in (0, None) and added.is_missed_by("", run.output):
        missed: dict[str, Result] = dict.fromkeys(brought, "error")
        return run.model_copy(update={"results": missed, "problem": None})

    def counts(test: str) -> bool:
        whole_file = "::" not in test
        return added.is_missed_by(report.messages.get(test, ""), run.output if whole_file else "")

    results: dict[str, Result] = {
        test: "skipped" if result == "error" and not counts(test) else result
        for test, result in run.results.items()
    }
    return run.model_copy(update={"results": results})


def _words(source: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", source))
