"""What the text of a change adds that a reviewer should look at, because tests cannot judge it: it can end the process
that tests it, change what is imported, or write the report.

Words are looked for, not understood: what is found need not be wrong, and code can do the same in other words.
"""

import re
from collections import Counter

from resolver.domain import Patch
from resolver.proof.files import is_about_tests
from resolver.summary import clip
from resolver.workspace import ABSENT, Change, Workspace

MOST_FILES = 100
MOST_BYTES = 1_000_000  # of one file

EXITS_AT_ONCE = re.compile(
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
KINDS = (
    (EXITS_AT_ONCE, True, "can end the process that runs it, tests or not"),
    (EXITS, False, "can end the process that runs it"),
    (IMPORTS, True, "can change what is loaded when code or tests start"),
    (REPORTS, True, "names what the tests' report is made with"),
)
"""What to look for, whether also in tests, and what to say of it."""


async def in_text(workspace: Workspace, patch: Patch, changes: tuple[Change, ...]) -> list[str]:
    """One sentence for each file and kind; what was there before is not counted."""
    files = [change for change in changes if change.mode.startswith("100")]
    read = [change for change in files if change.size <= MOST_BYTES][:MOST_FILES]
    sentences = []
    for change in read:
        new = (await workspace.content(patch, change.path) or b"").decode(errors="replace")
        old = "" if change.old_mode == ABSENT else await workspace.read(change.path) or ""
        sentences += told(change.path, old, new)
    if unread := len(files) - len(read):
        sentences.append(
            f"{unread} of the files are too many or too large to be looked through for such words."
        )
    return sentences


def told(path: str, old: str, new: str) -> list[str]:
    """What the lines that `new` has and `old` had not bring, a sentence for each kind."""
    known = Counter(map(str.strip, old.splitlines()))
    added = []
    for number, line in enumerate(new.splitlines(), start=1):
        if known[line.strip()] > 0:
            known[line.strip()] -= 1
        else:
            added.append((number, line))
    found = (
        (what, next(((number, match) for number, line in added if (match := words.search(line))), None))
        for words, everywhere, what in KINDS
        if everywhere or not is_about_tests(path)
    )
    return [
        f"{path}, line {first[0]}, {what}: `{_around(first[1])}`"
        for what, first in found
        if first is not None
    ]


def _around(match: re.Match[str]) -> str:
    """The words with some of their line, however long that is."""
    line = match.string[max(0, match.start() - 30) : match.end() + 30]
    return clip(line.strip(), 80).replace("`", "'")
