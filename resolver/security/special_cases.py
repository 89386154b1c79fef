"""Finds added code that may satisfy only the tests that show the fix. For example, it compares its input with values of
a test, counts its calls, or asks for a setting that only the tests make.

The search compares texts: what the patch adds to the product, and the tests that show the fix. A match can be harmless,
so a reviewer has to decide. Code with the same effect but other words is not found.
"""

import ast
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.security.added_lines import AddedLine, describe_lines, find_added_lines
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import is_runner_config, is_test_file, is_test_related
from patchwright.resolver.suites.product_files import SUFFIXES, find_product_files

CODE_SUFFIXES = (*SUFFIXES, ".go", ".rs", ".java", ".kt")
MAX_TESTS = 50  # tests whose texts are read
MAX_FILES = 50  # changed files, and files of the test configuration, that are read
MAX_FILE_BYTES = 1_000_000

VALUES = "gives special results for values of the tests that show the fix"
COUNTER = "counts, so it may work only for its first calls"
UNUSED = "is used only by the tests that show the fix"
EXPECTED = "changes a value that the tests that show the fix take from it"
SETTING = "depends on a setting that only the test configuration makes"
READ = "is read as text by a test that shows the fix"

# Each pattern needs a time that is linear in the length of a line, because a patch may contain very long lines.
_LITERAL = r"(?:(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])|'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)"
_LITERALS = re.compile(rf"(?<![\w.]){_LITERAL}")
_VALUES = rf"{_LITERAL}(?:\s*,\s*{_LITERAL}){{0,20}}"
_SPECIAL_CASE = re.compile(
    rf"(?:[=!]==?|\b(?:in|is|case|when)\b|\.(?:equals|eql\?)\()\s*(?:[\[({{]+\s*)?(?P<values>{_VALUES})"
    rf"|(?P<first>{_LITERAL})\s*[=!]==?"
    rf"|[{{(\[,\s](?P<key>{_VALUES})[)\]]?\s*(?::|=>)\s*(?={_LITERAL})"
)
_COMMON_VALUES = frozenset({"0", "1", "-1", "2", "", "utf-8"})
_INCREMENT = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)\s*(?:[+-]=\s*1\b|\+\+|--)|(?:\+\+|--)([A-Za-z_][\w.]*)")
_COMPARED = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)(?:\+\+)?\s*(?:[<>]=?|[=!]==?|%)\s*\d")
_PATH = re.compile(r"[\w.]+")
_FUNCTION = re.compile(r"\b(?:def|function)[ \t]+(\w+)")
# Names outside of functions, and names that functions declare as global
_KEPT = re.compile(
    r"^(?:(?:let|var|static|final|global)[ \t]+)?([A-Za-z_][\w.]*)|^[ \t]+global[ \t](.*)", re.MULTILINE
)
_CONSTANT = re.compile(
    r"^(?:(?:pub |export |static |const |let |var |final )*|(?:module\.)?exports\.)(?P<name>[A-Za-z_]\w*)\s*(?::[^=]+)?"
    r"=(?![=>])(?!.*(?:\blambda\b|\bfunction\b|=>|\w\())"
)
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?(?:const\s+|let\s+|var\s+)?(\w{3,})\s*(?::[^=]*)?=(?!=)")
_SET_BY_TESTS = re.compile(
    r"\benviron\[\s*['\"](\w+)['\"]\s*\]\s*=(?!=)|\b(?:setdefault|setenv|putenv|Setenv|setattr)\((?:\w+,\s*)?['\"](\w+)['\"]"
    r"|\bprocess\.env\.(\w+)\s*=(?!=)|\bENV\[['\"](\w+)['\"]\]\s*=(?!=)"
    r"|^[ \t]*(?!self\.)\w+(?:\.\w+)*\.([A-Z]\w+)\s*=(?!=)",
    re.MULTILINE,
)
_READS_CODE = re.compile(r"\bread_text\(|\bread_bytes\(|\bopen\(|\breadFile\w*\(|\bFile\.read")


class _ChangedFile(NamedTuple):
    path: str
    old: str
    new: str
    added: list[AddedLine]


async def find_special_cases(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...], fail_to_pass: tuple[str, ...]
) -> list[str]:
    """Returns one sentence for each changed file and kind of code that may satisfy only the tests. `fail_to_pass` are
    the tests that show the fix; if there are none, the changed test files are searched instead.
    """
    product = await find_product_files(workspace, changes)
    files = [
        await _read_change(workspace, patch, change)
        for change in changes[:MAX_FILES]
        if change.path in product or not is_test_related(change.path)
        if change.path.endswith(CODE_SUFFIXES) and change.mode != ABSENT and change.size <= MAX_FILE_BYTES
    ]
    if not files:
        return []
    tests = await _read_tests(workspace, patch, changes, fail_to_pass)
    settings = await _find_settings(workspace)
    sentences = []
    for file in files:
        others = [other.new for other in files if other is not file]
        for note, lines in (
            (VALUES, _find_values(file, tests)),
            (COUNTER, _find_counters(file)),
            (UNUSED, _find_unused_names(file, others, tests)),
            (EXPECTED, _find_expected_values(file, tests)),
            (SETTING, [line for line in file.added if settings.search(line.text)]),
        ):
            if lines:
                sentences.append(describe_lines(file.path, lines, note))
        if any(_reads_file(test, PurePosixPath(file.path)) for test in tests):
            sentences.append(f"{file.path} {READ}.")
    return sentences


async def _read_change(workspace: Workspace, patch: Patch, change: FileChange) -> _ChangedFile:
    new = (await workspace.read_patched(patch, change.path) or b"").decode(errors="replace")
    old = "" if change.old_mode == ABSENT else await workspace.read(change.path, MAX_FILE_BYTES) or ""
    return _ChangedFile(change.path, old, new, find_added_lines(old, new))


async def _read_tests(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...], fail_to_pass: tuple[str, ...]
) -> list[str]:
    """Returns the texts of the tests that show the fix, as the patch leaves them."""
    changed = {change.path for change in changes}
    texts: dict[str, str] = {}

    async def read(path: str) -> str:
        if path not in texts and path in changed:
            texts[path] = (await workspace.read_patched(patch, path) or b"").decode(errors="replace")
        elif path not in texts:
            texts[path] = await workspace.read(path, MAX_FILE_BYTES) or ""
        return texts[path]

    if not fail_to_pass:
        return [await read(path) for path in sorted(changed) if is_test_file(path)]
    known = changed.union(await workspace.list_files())
    found = []
    for test in fail_to_pass[:MAX_TESTS]:
        path, _, name = test.partition("::")
        name = re.split(r"::| > | › ", re.sub(r"(?s)\[.*", "", name or path))[-1].strip()
        paths = [path] if path in known else await find_mentions(workspace, set(known), {name})
        found += [_extract_test(await read(each), name) for each in paths[:3]]
    return found


def _extract_test(text: str, name: str) -> str:
    """Returns the part of a file that begins with the first line that contains the name, and ends before the next line
    that is not indented more. Decorators belong to it. Returns the whole text if no line contains the name.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if name in line), None)
    if start is None:
        return text
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and (
        not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
    ):
        end += 1
    while start and lines[start - 1].strip():
        start -= 1
    return "\n".join(lines[start : end + 1])


def _reads_file(test: str, file: PurePosixPath) -> bool:
    """Returns True if the text of a test reads the text of a module."""
    name = file.stem if "inspect.getsource" in test else file.name if _READS_CODE.search(test) else ""
    return bool(name) and re.search(rf"\b{re.escape(name)}\b", test) is not None


def _list_literals(text: str) -> set[str]:
    return {match.strip("'\"`") for match in _LITERALS.findall(text)}


def _find_values(file: _ChangedFile, tests: list[str]) -> list[AddedLine]:
    """Returns the added lines that compare with values of one test and lead to another value of it."""
    found = []
    literals = [_list_literals(test) for test in tests]
    for index, line in enumerate(file.added):
        compared = {
            value for match in _SPECIAL_CASE.finditer(line.text) for value in _list_literals(match[0])
        }
        following = [each for each in file.added[index + 1 : index + 2] if each.number == line.number + 1]
        results = set().union(*(_list_literals(each.text) for each in (line, *following))) - compared
        special = (compared | results) - _COMMON_VALUES
        if any(
            compared <= test and special & results & test and special <= test for test in literals if compared
        ):
            found.append(line)
    return found


def _find_counters(file: _ChangedFile) -> list[AddedLine]:
    """Returns the added lines that compare the number of calls, kept outside of a function, with a constant."""
    names = {first or second for line in file.added for first, second in _INCREMENT.findall(line.text)}
    functions = set(_FUNCTION.findall(file.new))
    kept = sorted(name for found in _KEPT.findall(file.new) for part in found for name in _PATH.findall(part))

    def is_kept(name: str) -> bool:
        first = bisect_left(kept, name)  # `name` itself, or the first of its attributes, if there are any
        is_known = any(f"{path}.".startswith(f"{name}.") for path in kept[first : first + 1])
        return is_known or name.partition(".")[0] in functions

    counters = set(filter(is_kept, names))
    return [line for line in file.added if counters.intersection(_COMPARED.findall(line.text))]


def _list_words(*texts: str) -> Counter[str]:
    return Counter(word for text in texts for word in re.findall(r"\w+", text))


def _find_unused_names(file: _ChangedFile, others: list[str], tests: list[str]) -> list[AddedLine]:
    """Returns the added lines that define a constant that only tests use."""
    new, elsewhere, tested = _list_words(file.new), _list_words(file.old, *others), _list_words(*tests)
    constants = [(line, match["name"]) for line in file.added if (match := _CONSTANT.match(line.text))]
    return [line for line, name in constants if new[name] <= 1 and name not in elsewhere and name in tested]


def _find_expected_values(file: _ChangedFile, tests: list[str]) -> list[AddedLine]:
    """Returns the added lines that change constants whose names the tests contain."""
    old, new, tested = (
        _list_constants(file.path, file.old),
        _list_constants(file.path, file.new),
        _list_words(*tests),
    )
    changed = [name for name in old.keys() & new.keys() & tested.keys() if old[name][0] != new[name][0]]
    numbers = {number for name in changed for number in new[name][1]}
    return [line for line in file.added if line.number in numbers]


def _list_constants(path: str, text: str) -> dict[str, tuple[str, range]]:
    """Returns the values and lines of constants, by name. Returns none if Python cannot parse the text."""
    try:
        return dict(_iter_constants(path, text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _iter_constants(path: str, text: str) -> Iterator[tuple[str, tuple[str, range]]]:
    """Yields the names of constants with their values and lines."""
    if not path.endswith(".py"):
        for number, line in enumerate(text.splitlines(), start=1):
            if match := _CONSTANT.match(line):
                yield match["name"], (line, range(number, number + 1))
        return
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        names = [
            target.id for target in targets if isinstance(target, ast.Name) and target.id != "__version__"
        ]
        if not any(isinstance(inner, ast.Lambda | ast.Call) for inner in ast.walk(value)):
            yield from ((name, (ast.dump(value), lines)) for name in names)


async def _find_settings(workspace: Workspace) -> re.Pattern[str]:
    """Returns a pattern of the settings that the test configuration makes, and of the names that the product gives
    them. It matches nothing if there are none.
    """
    files = await workspace.list_files()
    config = [path for path in files if path.endswith(CODE_SUFFIXES) and is_runner_config(path)][:MAX_FILES]
    texts = [await workspace.read(path, MAX_FILE_BYTES) or "" for path in config]
    names = {name for text in texts for match in _SET_BY_TESTS.findall(text) for name in match if name}
    product = {path for path in files if path.endswith(CODE_SUFFIXES) and not is_test_related(path)}
    readers = await find_mentions(workspace, product, names) if names else []
    derived = set[str]()
    for path in readers[:MAX_FILES]:
        for line in (await workspace.read(path, MAX_FILE_BYTES) or "").splitlines():
            if (assigned := _ASSIGNED.match(line)) and names.intersection(re.findall(r"\w+", line)):
                derived.add(assigned[1])
    return re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, names | derived))) or '(?!)'})\b")
