"""Finds added lines that a reviewer should check because they can deceive test runs. For example, such code ends
the test process, finds out that it is being tested, or writes the test report.

`review_patterns.toml` is the table for all languages.

The patterns match words; the code is not parsed. A match can be harmless. Code with the same effect but other
words is not found.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.rendering.filters import list_names
from patchwright.resolver.security.added_lines import describe_lines, find_added_lines, get_excerpt
from patchwright.resolver.suites.file_classifier import is_test_related
from patchwright.resolver.suites.product_files import find_product_files

MAX_FILES = 100
MAX_FILE_BYTES = 1_000_000  # bytes per file
MAX_NOTES = 3  # notes for each pattern; further files are only named
MAX_NAMES = 10  # further files that are named

# Matches a line of a check, or of a script that fails. A part of the tests may lose it without a test name in its path.
REMOVED_CHECKS = re.compile(
    r"^\s*assert\b|\bassert\w*\s*[(!]|\bAssertionError\b|\bexpect\(|\bSystemExit\b|\b(?:sys|process|os)\.exit\("
    r"|\bexit [1-9]|\|\| exit|\bset -e|^\s*(?:diff|cmp)\b|\bgrep -q|^\s*\[\[?\s.*\s\]\]?\s*(?:$|\|\||&&)"
)
GO_FILE_NAMES = re.compile(
    r".*_(?:aix|android|darwin|dragonfly|freebsd|illumos|ios|js|linux|netbsd|openbsd|plan9|solaris|wasip1|windows|386|amd64"
    r"|arm|arm64|loong64|mips\w*|ppc64\w*|riscv64|s390x|wasm)\.go"
)


class _ReviewPattern(NamedTuple):
    pattern: re.Pattern[str]
    in_tests: bool
    """True if the pattern also applies to tests and documentation."""
    note: str


def _load_patterns() -> dict[str, _ReviewPattern]:
    tables = tomllib.loads(Path(__file__).with_name("review_patterns.toml").read_text())
    return {
        name: _ReviewPattern(
            re.compile("".join(table["parts"]), re.IGNORECASE if table.get("ignore_case") else 0),
            bool(table.get("in_tests")),
            table["note"],
        )
        for name, table in tables.items()
    }


PATTERNS = _load_patterns()
BUILD_VARIANTS, _, VARIANT = PATTERNS["build_variants"]
TEST_SUPPORT_PATHS = re.compile(
    r"(?:.*/)?_*(?:testing|tests?|ci|test[-_]?(?:utils?|helpers?|support|tools?|kit|case|cases|data)|fixtures?|mocks?|fakes?|stubs?)(?:\.\w+|/.*)"
)
TEST_LIBRARIES = re.compile(
    r"^\s*(?:import|from)\s+(?:pytest|unittest|hypothesis|doctest)\b"
    r"|(?:\brequire\(|\bfrom|\bimport\(?)\s*['\"`](?:node:test|node:assert|assert|jest|@jest/|vitest|mocha|chai|sinon)\b"
    # Go, Java and Kotlin, Ruby
    r"|^\s*(?:import\s+)?(?:\w+\s+)?\"(?:testing(?:/\w+)?|github\.com/stretchr/testify/\w+)\"\s*$"
    r"|^\s*import\s+(?:static\s+)?(?:org\.(?:junit|assertj|hamcrest|mockito|testng)|kotlin\.test)\b"
    r"|^\s*require\s+['\"](?:minitest|rspec|test/unit)\b",
    re.MULTILINE,
)
REMOVED_CHECK = "loses a check, which may be one of the tests"
TEST_SUPPORT = "seems to help tests, which ran with the changed version"
PROSE_SUFFIXES = (".md", ".rst", ".adoc")


async def find_review_notes(workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...]) -> list[str]:
    """Returns one sentence for each file and pattern that matches. Only added lines are searched. If a pattern
    matches in many files, one more sentence names the other files.
    """
    files = [change for change in changes if change.mode.startswith("100")]
    scanned = [change for change in files if change.size <= MAX_FILE_BYTES][:MAX_FILES]
    product = await find_product_files(workspace, changes)
    kinds = (*(note for _, _, note in PATTERNS.values()), REMOVED_CHECK, TEST_SUPPORT)
    notes: dict[str, dict[str, str]] = {note: {} for note in kinds}
    for change in scanned:
        new = (await workspace.read_patched(patch, change.path) or b"").decode(errors="replace")
        old = "" if change.old_mode == ABSENT else await workspace.read(change.path) or ""
        for note, sentence in scan_added_lines(change.path, old, new, change.path in product).items():
            notes[note][change.path] = sentence
    sentences = [sentence for by_path in notes.values() for sentence in _limit_notes(by_path)]
    if skipped_count := len(files) - len(scanned):
        verb = "file was" if skipped_count == 1 else "files were"
        sentences.append(
            f"{skipped_count} changed {verb} not scanned for code that can deceive test runs, because the change has "
            "too many files or too large ones."
        )
    return sentences


def _limit_notes(notes: dict[str, str]) -> list[str]:
    """Returns the first notes of one kind, and a sentence with the paths of the others. `notes` maps paths to
    notes.
    """
    sentences, others = [*notes.values()][:MAX_NOTES], [*notes][MAX_NOTES:]
    return (
        [*sentences, f"There are more such lines in {list_names(others, MAX_NAMES)}."]
        if others
        else sentences
    )


def scan_added_lines(path: str, old: str, new: str, is_product: bool = False) -> dict[str, str]:
    """Compares two versions of a file. Returns one sentence for each pattern that matches an added line, and one if
    the file is part of the product but seems to help tests. The keys are the notes of the patterns. `is_product` is set
    if the file is part of the product although its path says that it belongs to the tests.
    """
    added = find_added_lines(old, new)
    sentences = {}
    is_product |= not is_test_related(path) and not path.lower().endswith(PROSE_SUFFIXES)
    for pattern, in_tests, note in PATTERNS.values():
        if in_tests or is_product:
            matches = [(line, match) for line in added if (match := pattern.search(line.text))]
            if matches:
                lines = [line for line, _ in matches]
                sentences[note] = describe_lines(path, lines, note, matches[0][1])
    texts = old.splitlines() if path.endswith(".go") else ()
    constraints = (GO_FILE_NAMES.fullmatch(path), *map(BUILD_VARIANTS.search, texts))
    if is_product and (constraint := next(filter(None, constraints), None)):
        sentences[VARIANT] = f"{path} {VARIANT}: `{get_excerpt(constraint)}`"
    removed = (REMOVED_CHECKS.search(line.text) for line in find_added_lines(new, old) if is_product)
    if removed_check := next(filter(None, removed), None):
        sentences[REMOVED_CHECK] = f"{path} {REMOVED_CHECK}: `{get_excerpt(removed_check)}`"
    if is_product and old and (TEST_SUPPORT_PATHS.fullmatch(path) or TEST_LIBRARIES.search(old)):
        sentences[TEST_SUPPORT] = f"{path} {TEST_SUPPORT}."
    return sentences
