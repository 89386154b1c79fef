"""The patches of a pair: the upstream change, and four wrong patches that are made from it by rule."""

import ast
import difflib
import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from patchwright.evaluation.file_kinds import is_product, is_test
from patchwright.evaluation.release_pairs import Files, Registry

MAX_BROKEN = 3  # functions that a patch breaks
_COMMENT: dict[Registry, str] = {"pypi": "#", "npm": "//"}
_JS_FUNCTION = re.compile(
    r"(?:function\s+(?P<name>\w+)|(?P<key>\w+)\s*[=:]\s*(?:async\s+)?function(?:\s+\w+)?)\s*\([^()]*\)\s*\{"
)
_CONTROL_WORDS = frozenset({"if", "for", "while", "switch", "catch", "function"})
_PASSING_PYTHON_TEST = b"""\
import unittest


class Fix(unittest.TestCase):
    def test_fix(self):
        self.assertTrue(True)
"""

Tree = dict[str, bytes]


def make_patches(registry: Registry, old: Files, new: Files) -> dict[str, Tree]:
    """Returns the resulting files of each patch, by the patch's name."""
    changed_tests = {path for path in {*old, *new} if old.get(path) != new.get(path) and is_test(path)}
    tests_only = {path: text for path, text in old.items() if path not in changed_tests} | {
        path: new[path] for path in changed_tests if path in new
    }
    commented = _comment_out(registry, old, new)
    patches = {
        "upstream": new,
        "only_tests": tests_only,
        "without_effect": tests_only | commented,
    }
    if broken := _break_functions(registry, old, new):
        patches["breaks_others"] = new | broken
    if added := _add_passing_test(registry, old, changed_tests):
        patches["passing_test"] = old | commented | added
    return patches


def _comment_out(registry: Registry, old: Files, new: Files) -> Tree:
    """Returns the changed product files with the code of the old release, and the new lines as comments."""
    mark = _COMMENT[registry]
    changed = {}
    for path in sorted({*old, *new}):
        if not is_product(path, registry) or old.get(path) == new.get(path) or path not in new:
            continue
        before, after = (files.get(path, b"").decode().splitlines(keepends=True) for files in (old, new))
        rows: list[str] = []
        for kind, start, end, new_start, new_end in difflib.SequenceMatcher(
            None, before, after, autojunk=False
        ).get_opcodes():
            rows += before[start:end]
            if kind != "equal":
                rows += [f"{mark} {row}" for row in after[new_start:new_end]]
        changed[path] = "".join(rows).encode()
    return changed


def _break_functions(registry: Registry, old: Files, new: Files) -> Tree:
    """Returns the product files of the new release in which functions raise an error that the tests of the old
    release mention and the upstream change leaves alone. The files that the change touches come first.
    """
    words = set(
        re.findall(
            r"\w+", "\n".join(text.decode(errors="replace") for path, text in old.items() if is_test(path))
        )
    )
    broken: Tree = {}
    paths = [path for path in new if is_product(path, registry) and path in old]
    for path in sorted(paths, key=lambda path: (old[path] == new[path], path)):
        before, after = (files[path].decode(errors="replace").replace("\r\n", "\n") for files in (old, new))
        rows = after.splitlines()
        find = _python_functions if registry == "pypi" else _js_functions
        for name, row, text, source in sorted(find(after), key=lambda found: -found[1]):
            if name in words and source in before and len(broken) < MAX_BROKEN:
                rows.insert(row, text)
                broken[path] = "\n".join([*rows, ""]).encode()
        if len(broken) >= MAX_BROKEN:
            break
    return broken


def _python_functions(text: str) -> Iterator[tuple[str, int, str, str]]:
    """Yields for each function its name, the number of its first row after the signature, the row that breaks
    it, and its source.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    rows = text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0]
            indent = rows[first.lineno - 1][: first.col_offset]
            if indent.strip():  # for example, the end of a long signature stands before `...`
                continue
            source = ast.get_source_segment(text, node) or ""
            yield node.name, first.lineno - 1, f'{indent}raise RuntimeError("broken")', source


def _js_functions(text: str) -> Iterator[tuple[str, int, str, str]]:
    for found in _JS_FUNCTION.finditer(text):
        name = found["name"] or found["key"]
        if name not in _CONTROL_WORDS:
            row = text.count("\n", 0, found.end()) + 1
            if text[found.end() : found.end() + 1] == "\n":
                yield name, row, "throw new Error('broken');", found[0]


def _add_passing_test(registry: Registry, old: Files, changed_tests: set[str]) -> Tree:
    """Returns a new test that passes with any code, beside a test file of the old release."""
    suffixes = (".py",) if registry == "pypi" else (".js", ".cjs", ".mjs", ".ts")
    tests = [path for path in sorted(old) if is_test(path) and path.endswith(suffixes)]
    tests = [path for path in tests if path in changed_tests] or tests
    tests = [path for path in tests if re.search(r"test|spec", PurePosixPath(path).name)] or tests
    if not tests:
        return {}
    path = PurePosixPath(tests[0])
    if registry == "pypi":
        return {str(path.with_name("test_the_fix.py")): _PASSING_PYTHON_TEST}
    stem = path.name.partition(".")[0]
    name = path.name.replace(stem, "the_fix", 1)
    return {
        str(path.with_name(name)): _passing_js_test(old, old[str(path)].decode(errors="replace")).encode()
    }


def _passing_js_test(old: Files, example: str) -> str:
    is_module = "import " in example and "require(" not in example
    for name, use in (
        ("tape", "test('fix', (t) => { t.ok(true); t.end(); });"),
        ("tap", "test.test('fix', (t) => { t.ok(true); t.end(); });"),
        ("ava", "test('fix', (t) => { t.pass(); });"),
        ("node:test", "test('fix', () => {});"),
        ("vitest", "test('fix', () => {});"),
    ):
        if re.search(rf"""['"]{name}['"]""", example):
            braces = name in ("node:test", "vitest")
            if is_module:
                return f"import {'{ test }' if braces else 'test'} from '{name}';\n{use}\n"
            return f"const {'{ test }' if braces else 'test'} = require('{name}');\n{use}\n"
    scripts = json.loads(old.get("package.json", b"{}")).get("scripts", {}).get("test", "")
    if "jest" in scripts or "mocha" in scripts:
        return "it('fix', () => {});\n"
    return "require('assert').ok(true);\n"
