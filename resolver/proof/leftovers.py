"""What a diff holds that does not belong to a fix: debug output, scratch files, reformatting. Read from its lines."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from resolver.domain import Patch
from resolver.proof.files import is_about_tests

MOST = 10  # sentences
_FILE = re.compile(r"^diff --git a/(?P<old>.*) b/(?P<path>.*)$")

_DEBUG = {
    ".py": re.compile(
        r"\bbreakpoint\(\)|\bi?pdb\.set_trace\(|^import i?pdb\b|\bicecream\b|\bprint\(f?[\"'](DEBUG|XXX|>>>|---)"
    ),
    ".js": re.compile(r"\bdebugger\b;?\s*$|\bconsole\.(log|debug|trace)\("),
    ".rb": re.compile(r"\bbinding\.(pry|irb)\b|\bbyebug\b"),
    ".go": re.compile(r"\bspew\.Dump\(|\bfmt\.Print(ln|f)?\(\"(DEBUG|XXX|>>>)"),
    ".rs": re.compile(r"\bdbg!\("),
    ".java": re.compile(r"\bSystem\.(out|err)\.print(ln)?\(\"?(DEBUG|XXX|>>>)|\.printStackTrace\(\)"),
    ".php": re.compile(r"\bvar_dump\(|\bdd\("),
}
_SAME_AS = {
    ".jsx": ".js",
    ".ts": ".js",
    ".tsx": ".js",
    ".mjs": ".js",
    ".cjs": ".js",
    ".vue": ".js",
    ".kt": ".java",
}
_MARKER = re.compile(r"^(<{7}|>{7})( |$)")
# New files of these names were made to try something out.
_SCRATCH = re.compile(
    r"(repro(duce|duction)?|debug|scratch|tmp|temp|try(out)?|playground|foo|check|verify|run_test)[\w-]*\.\w+"
    r"|test_(issue|repro|fix|bug|debug|tmp)\w*\.py|.*\.(orig|rej|bak|swp|log|tmp|pyc)|nohup\.out|core(\.\d+)?|a\.out",
    re.IGNORECASE,
)


class _File:
    """One file of a diff."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_new = False
        self.added: list[str] = []
        self.removed: list[str] = []


def leftovers(patch: Patch) -> tuple[str, ...]:
    """One sentence for each thing in the diff that looks left over; empty: nothing does."""
    found = [sentence for file in _files(patch.diff) for sentence in _of(file)]
    return tuple(found[:MOST])


def _of(file: _File) -> Iterator[str]:
    name = PurePosixPath(file.path).name
    if file.is_new and "/" not in file.path and _SCRATCH.fullmatch(name):
        yield f"{file.path} is a new file that looks like a scratch file."
    elif file.is_new and re.fullmatch(r".*\.(orig|rej|bak|swp|log|tmp|pyc)", name):
        yield f"{file.path} is a new file that no repository keeps."
    suffix = PurePosixPath(name).suffix.lower()
    debug = _DEBUG.get(_SAME_AS.get(suffix, suffix))
    known = {line.strip() for line in file.removed}
    for line in file.added:
        if line.strip() in known:
            continue  # only moved
        if _MARKER.match(line):
            yield f"{file.path} holds a conflict marker (`{line[:60]}`)."
        elif debug and debug.search(line.strip()):
            yield f"{file.path} gained what looks like debug output: `{line.strip()[:100]}`."
    if not file.is_new and file.added and not is_about_tests(file.path) and _same_text(file):
        yield f"{file.path} is changed in its white space only."


def _same_text(file: _File) -> bool:
    """Whether a change is one of layout alone. In Python and YAML the indentation is the program."""
    if PurePosixPath(file.path).suffix in (".py", ".yml", ".yaml", ".md"):
        return [line.rstrip() for line in file.added if line.strip()] == [
            line.rstrip() for line in file.removed if line.strip()
        ]
    return "".join("".join(file.added).split()) == "".join("".join(file.removed).split())


def _files(diff: bytes) -> Iterator[_File]:
    """The files of a `git diff`, with the lines that it adds and removes."""
    file: _File | None = None
    in_hunk = False
    for line in diff.decode("utf-8", "replace").split("\n"):
        if match := _FILE.match(line):
            if file is not None:
                yield file
            file, in_hunk = _File(match["path"]), False
        elif file is None:
            continue
        elif line.startswith("@@ "):
            in_hunk = True
        elif not in_hunk:
            file.is_new = file.is_new or line.startswith("new file mode")
        elif line.startswith("+"):
            file.added.append(line[1:])
        elif line.startswith("-"):
            file.removed.append(line[1:])
    if file is not None:
        yield file
