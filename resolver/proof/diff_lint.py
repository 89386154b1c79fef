"""Finds parts of a diff that do not belong to a fix: debug output, scratch files and changes of
whitespace.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from patchwright.resolver.domain import Patch
from patchwright.resolver.proof.diff_parser import FileDiff, parse_diff
from patchwright.resolver.suites.file_classifier import is_test_related

MAX_FINDINGS = 10  # maximum number of sentences

_DEBUG_OUTPUT = {
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
_SUFFIX_ALIASES = {
    ".jsx": ".js",
    ".ts": ".js",
    ".tsx": ".js",
    ".mjs": ".js",
    ".cjs": ".js",
    ".vue": ".js",
    ".kt": ".java",
}
_CONFLICT_MARKER = re.compile(r"^(<{7}|>{7})( |$)")
# New files with these names were probably made to try something out.
_SCRATCH_FILES = re.compile(
    r"(repro(duce|duction)?|debug|scratch|tmp|temp|try(out)?|playground|foo|check|verify|run_test)[\w-]*\.\w+"
    r"|test_(issue|repro|fix|bug|debug|tmp)\w*\.py|.*\.(orig|rej|bak|swp|log|tmp|pyc)|nohup\.out|core(\.\d+)?|a\.out",
    re.IGNORECASE,
)


def lint_diff(patch: Patch) -> tuple[str, ...]:
    """Returns one sentence for each part of the diff that does not belong to a fix."""
    findings = [sentence for file in parse_diff(patch.diff) for sentence in _lint_file(file)]
    return tuple(findings[:MAX_FINDINGS])


def _lint_file(file: FileDiff) -> Iterator[str]:
    name = PurePosixPath(file.path).name
    if file.is_new and "/" not in file.path and _SCRATCH_FILES.fullmatch(name):
        yield f"{file.path} is a new file that looks like a scratch file."
    elif file.is_new and re.fullmatch(r".*\.(orig|rej|bak|swp|log|tmp|pyc)", name):
        yield f"{file.path} is a new file of a kind that does not belong in a repository."
    suffix = PurePosixPath(name).suffix.lower()
    debug = _DEBUG_OUTPUT.get(_SUFFIX_ALIASES.get(suffix, suffix))
    removed_lines = {line.strip() for line in file.removed}
    for line in file.added:
        if line.strip() in removed_lines:
            continue  # the line was only moved
        if _CONFLICT_MARKER.match(line):
            yield f"{file.path} contains a conflict marker (`{line[:60]}`)."
        elif debug and debug.search(line.strip()):
            yield f"{file.path} contains what looks like new debug output: `{line.strip()[:100]}`."
    if not file.is_new and file.added and not is_test_related(file.path) and _is_whitespace_only(file):
        yield f"{file.path} changes only whitespace."


def _is_whitespace_only(file: FileDiff) -> bool:
    """Returns True if only whitespace changed. In Python, YAML and Markdown files, a changed indentation is a
    real change.
    """
    if PurePosixPath(file.path).suffix in (".py", ".yml", ".yaml", ".md"):
        return [line.rstrip() for line in file.added if line.strip()] == [
            line.rstrip() for line in file.removed if line.strip()
        ]
    return "".join("".join(file.added).split()) == "".join("".join(file.removed).split())
