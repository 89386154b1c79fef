"""Finds added lines that a reviewer should check because they can deceive test runs. Such code ends the test
process, changes imports, or writes the test report.

The patterns match words; the code is not parsed. A match can be harmless. Code with the same effect but other
words is not found.
"""

import re
from collections import Counter

from patchwright.resolver.domain import Patch
from patchwright.resolver.proof.file_classifier import is_test_related
from patchwright.resolver.summary import clip_line
from patchwright.resolver.text.filters import list_names
from patchwright.resolver.workspaces import ABSENT, FileChange, Workspace

MAX_FILES = 100
MAX_FILE_BYTES = 1_000_000  # bytes per file
MAX_NOTES = 3  # notes for each pattern; further files are only named
MAX_NAMES = 10  # further files that are named

IMMEDIATE_EXITS = re.compile(
    r"\bos\._exit\b|\bos\.abort\b|\bos\.kill(?:pg)?\(\s*os\.get|\batexit\b|\bat_exit\b|\bexit!|\bprocess\.(?:abort|reallyExit|kill)\b"
    r"|\bRuntime\.getRuntime\(\)\.halt\b|\bfaulthandler\b|\bsignal\.(?:alarm|setitimer)\b|\b_exit\("
)
EXITS = re.compile(
    r"\bsys\.exit\b|\bSystemExit\b|(?<![\w.])(?:exit|quit)\(|\bprocess\.(?:exit|exitCode)\b|\bprocess\.on\(\s*['\"]exit"
    r"|\bos\.Exit\(|\bprocess::(?:exit|abort)\b|\bSystem\.exit\("
)
IMPORTS = re.compile(
    r"\bsys\.(?:meta_path|path_hooks|path_importer_cache|modules\s*\[|settrace|setprofile|monitoring)"
    r"|\b(?:site|user)customize\b|\bsite-packages\b|\baddsitedir\b|\bbuiltins\.__import__|\b__builtins__\b|\bimportlib\.(?:abc|machinery)\b"
    r"|\bNODE_OPTIONS\b|\bModule\._(?:load|resolveFilename|extensions|compile)\b|\brequire\.(?:extensions|cache)\b"
    r"|\bmodule\.register\(|\bLD_PRELOAD\b|\bPYTHON(?:PATH|STARTUP|HOME)\b|\bRUBYOPT\b|\bJAVA_TOOL_OPTIONS\b"
    r"|\bCARGO_TARGET_\w+_RUNNER\b|\bRUSTC_WRAPPER\b|\bGOFLAGS\b"
)
REPORTS = re.compile(
    r"\bPATCHWRIGHT_\w+|\bPYTEST_(?:ADDOPTS|PLUGINS|CURRENT_TEST)\b|\bjunit_?xml\b|\bpytest_(?:runtest|sessionfinish|report|collection)\w*"
    r"|\bTestReport\b|\breport\.xml\b|\bJEST_JUNIT_\w+|\bMOCHA_FILE\b|\bTAP_\w*REPORT\w*",
    re.IGNORECASE,
)
PATTERNS = (
    (IMMEDIATE_EXITS, True, "can end the process that runs it, even during tests"),
    (EXITS, False, "can end the process that runs it"),
    (IMPORTS, True, "can change what is loaded when code or tests start"),
    (REPORTS, True, "mentions how the test report is written"),
)
"""Tuples of three values: a pattern, whether the pattern also applies to test files, and the text of the
note.
"""


async def find_review_notes(workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...]) -> list[str]:
    """Returns one sentence for each file and pattern that matches. Only added lines are searched. If a pattern
    matches in many files, one more sentence names the other files.
    """
    files = [change for change in changes if change.mode.startswith("100")]
    scanned = [change for change in files if change.size <= MAX_FILE_BYTES][:MAX_FILES]
    notes: dict[str, dict[str, str]] = {note: {} for _, _, note in PATTERNS}
    for change in scanned:
        new = (await workspace.read_patched(patch, change.path) or b"").decode(errors="replace")
        old = "" if change.old_mode == ABSENT else await workspace.read(change.path) or ""
        for note, sentence in scan_added_lines(change.path, old, new).items():
            notes[note][change.path] = sentence
    sentences = [sentence for by_path in notes.values() for sentence in _limit_notes(by_path)]
    if skipped_count := len(files) - len(scanned):
        sentences.append(
            f"{skipped_count} changed files were not scanned for code that can deceive test runs, "
            "because they are too many or too large."
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


def scan_added_lines(path: str, old: str, new: str) -> dict[str, str]:
    """Compares two versions of a file. Returns one sentence for each pattern that matches an added line. The
    keys are the notes of the patterns.
    """
    old_lines = Counter(map(str.strip, old.splitlines()))
    added = []
    for number, line in enumerate(new.splitlines(), start=1):
        if old_lines[line.strip()] > 0:
            old_lines[line.strip()] -= 1
        else:
            added.append((number, line))
    sentences = {}
    for pattern, in_tests, note in PATTERNS:
        if in_tests or not is_test_related(path):
            matches = [(number, match) for number, line in added if (match := pattern.search(line))]
            if matches:
                numbers = list_names([str(number) for number, _ in matches])
                subject = f"line{'s' if len(matches) > 1 else ''} {numbers}"
                sentences[note] = f"{path}, {subject}, {note}: `{_get_excerpt(matches[0][1])}`"
    return sentences


def _get_excerpt(match: re.Match[str]) -> str:
    """Returns the match with the surrounding text of its line, shortened to at most 80 characters."""
    line = match.string[max(0, match.start() - 30) : match.end() + 30]
    return clip_line(line.strip(), 80).replace("`", "'")
