"""What a patch takes away from tests that stay: read from their text, told to reviewers, and in the way of `fixed`.

It compares words, so it can be deceived; that is why the tests as they were at base are run as well.
"""

import ast
import re
from collections import Counter

from resolver.domain import Patch
from resolver.proof.files import is_test_file
from resolver.workspace import ABSENT, Change, Workspace

LARGEST = 1_000_000  # bytes of a test file that is looked into
MOST = 20  # files that are told of

_CHECKS = re.compile(
    r"\bassert\w*!?|\b(?:self|this)\.(?:assert|fail)\w*|\bexpect\s*\(|\.should\b|\bshould\.|\b(?:must|wont)_\w+"
    r"|\bt\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow|ok|equal|same|is|not|throws|match|rejects)\b|\brequire\.[A-Z]\w+"
    r"|\bpytest\.(?:raises|warns|fail)\b|\bpanic!"
)
_SKIPS = re.compile(
    r"\b(?:skip|skipif|skipIf|skipUnless|xfail|importorskip|expectedFailure|skipTest|SkipTest)\b"
    r"|\.(?:skip|only|todo|failing)\b|\b(?:xit|xdescribe|xtest|xcontext|fit|fdescribe|pending)\b"
    r"|\bt\.Skip\w*|#\[ignore|@(?:Ignore|Disabled)\b"
)
_COMMENTS = re.compile(r"(?m)^\s*(?:#(?!\[)|//).*$|/\*.*?\*/", re.DOTALL)


async def weakened(workspace: Workspace, patch: Patch, changes: tuple[Change, ...]) -> tuple[str, ...]:
    """One sentence for each changed file with tests that checks less than it did at base."""
    found: list[str] = []
    for change in changes:
        if change.old_mode == ABSENT or change.mode == ABSENT or max(change.size, change.old_size) > LARGEST:
            continue
        if not (is_test_file(change.path) or change.path.endswith(".rs")):  # Rust has tests beside its code
            continue
        new = await workspace.content(patch, change.path)
        if sentence := compared(change.path, await workspace.read(change.path, LARGEST) or "", new or b""):
            found.append(sentence)
    return tuple(found[:MOST])


def compared(path: str, old: str, new: bytes) -> str | None:
    """What the new text of a test file checks less than the old one; None: nothing that is seen."""
    text = new.decode(errors="replace")
    before, after = _checks(path, old, text)
    lost = {
        name: before[name] - after[name] for name in before if name in after and before[name] > after[name]
    }
    skips = len(_SKIPS.findall(_COMMENTS.sub("", text))) - len(_SKIPS.findall(_COMMENTS.sub("", old)))
    parts = []
    if lost:
        where = ", ".join(sorted(filter(None, lost))[:3])
        parts.append(f"{_number(sum(lost.values()), 'check')} fewer{f' in {where}' if where else ''}")
    if skips > 0:
        parts.append(f"{_number(skips, 'skip')} more")
    return f"{path} has {' and '.join(parts)}." if parts else None


def _checks(path: str, old: str, new: str) -> tuple[Counter[str], Counter[str]]:
    """Checks by the name of their test, before and after; under no name where tests cannot be told apart."""
    if path.endswith(".py"):
        try:
            trees = ast.parse(old), ast.parse(new)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        else:
            before, after = (
                Counter({name: _of_function(node) for name, node in _tests(tree)}) for tree in trees
            )
            return before, after
    before, after = (Counter({"": len(_CHECKS.findall(_COMMENTS.sub("", text)))}) for text in (old, new))
    return before, after


def _tests(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    found: list[tuple[str, ast.AST]] = []
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                found.append((f"{prefix}{inner.name}", inner))
    return found


def _of_function(function: ast.AST) -> int:
    count = 0
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            # What is compared counts too: `assert add` says less than `assert add(1, 2) == 3`.
            compared = sum(isinstance(inner, ast.Compare) for inner in ast.walk(node.test))
            count += 0 if _is_always_true(node.test) else 1 + compared
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            count += name.startswith("assert") or name in ("raises", "warns", "fail", "expect")
    return count


def _is_always_true(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.Or)
        and any(map(_is_always_true, test.values))
    )


def _number(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
