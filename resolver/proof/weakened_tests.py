"""Finds existing tests that a patch weakens by removing checks or adding skips. These tests are reported to
reviewers and prevent the verdict `fixed`.

This comparison of texts can be deceived. Verification therefore also runs the base version of the tests.
"""

import ast
import re
from collections import Counter

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace

MAX_FILE_BYTES = 1_000_000  # maximum bytes of a test file
MAX_FILES = 20  # maximum number of files that are reported

_ASSERTIONS = re.compile(
    r"\bassert\w*!?|\b(?:self|this)\.(?:assert|fail)\w*|\bexpect\s*\(|\.should\b|\bshould\.|\b(?:must|wont)_\w+"
    r"|\bt\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow|ok|equal|same|is|not|throws|match|rejects)\b|\brequire\.[A-Z]\w+"
    r"|\bpytest\.(?:raises|warns|fail)\b|\bpanic!"
)
_SKIP_MARKERS = re.compile(
    r"\b(?:skip|skipif|skipIf|skipUnless|xfail|importorskip|expectedFailure|skipTest|SkipTest)\b"
    r"|\.(?:skip|only|todo|failing)\b|\b(?:xit|xdescribe|xtest|xcontext|fit|fdescribe|pending)\b"
    r"|\bt\.Skip\w*|#\[ignore|@(?:Ignore|Disabled)\b"
)
_COMMENTS = re.compile(r"(?m)^\s*(?:#(?!\[)|//).*$|/\*.*?\*/", re.DOTALL)


async def find_weakened_tests(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...], tests: frozenset[str]
) -> tuple[str, ...]:
    """Returns one sentence for each changed file that checks less than at the base commit, if it is one of `tests`."""
    sentences: list[str] = []
    for change in changes:
        if (
            change.old_mode == ABSENT
            or change.mode == ABSENT
            or max(change.size, change.old_size) > MAX_FILE_BYTES
        ):
            continue
        # Rust source files contain their tests
        if not (change.path in tests or change.path.endswith(".rs")):
            continue
        new = await workspace.read_patched(patch, change.path)
        if sentence := compare_test_file(
            change.path, await workspace.read(change.path, MAX_FILE_BYTES) or "", new or b""
        ):
            sentences.append(sentence)
    return tuple(sentences[:MAX_FILES])


def compare_test_file(path: str, old: str, new: bytes) -> str | None:
    """Returns a sentence that says which checks a test file lost. Returns None if the file still checks at
    least as much as before.
    """
    text = new.decode(errors="replace")
    before, after = _count_assertions(path, old, text)
    removed_checks = {
        name: before[name] - after[name] for name in before if name in after and before[name] > after[name]
    }
    skips = len(_SKIP_MARKERS.findall(_COMMENTS.sub("", text))) - len(
        _SKIP_MARKERS.findall(_COMMENTS.sub("", old))
    )
    parts = []
    if removed_checks:
        test_names = ", ".join(sorted(filter(None, removed_checks))[:3])
        parts.append(
            f"{_pluralize(sum(removed_checks.values()), 'check')} fewer{f' in {test_names}' if test_names else ''}"
        )
    if skips > 0:
        parts.append(f"{_pluralize(skips, 'skip')} more")
    return f"{path} has {' and '.join(parts)}." if parts else None


def _count_assertions(path: str, old: str, new: str) -> tuple[Counter[str], Counter[str]]:
    """Counts the checks in each test, before and after the change. If the code of single tests cannot be
    identified, all checks are counted under an empty name.
    """
    if path.endswith(".py"):
        try:
            trees = ast.parse(old), ast.parse(new)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        else:
            before, after = (
                Counter({name: _count_in_function(node) for name, node in _test_functions(tree)})
                for tree in trees
            )
            return before, after
    before, after = (Counter({"": len(_ASSERTIONS.findall(_COMMENTS.sub("", text)))}) for text in (old, new))
    return before, after


def _test_functions(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    functions: list[tuple[str, ast.AST]] = []
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                functions.append((f"{prefix}{inner.name}", inner))
    return functions


def _count_in_function(function: ast.AST) -> int:
    count = 0
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            # Comparisons are counted, too, because `assert add` checks less than `assert add(1, 2) == 3`.
            compared = sum(isinstance(inner, ast.Compare) for inner in ast.walk(node.test))
            count += 0 if _is_always_true(node.test) else 1 + compared
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            count += name.startswith("assert") or name in ("fail", "expect")
            count += 2 * (name in ("raises", "warns"))  # as much as an assertion with a comparison
    return count


def _is_always_true(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.Or)
        and any(map(_is_always_true, test.values))
    )


def _pluralize(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
