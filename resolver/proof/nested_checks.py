"""Finds tests whose checks in callbacks do not decide with the patch, although the tests show the fix.

Code can avoid such a check instead of passing it: it does not call the callback, calls it in another thread, or catches
its failure. So a copy of the test runs in which these checks always fail. A test that still passes is no evidence.
"""

import ast
import secrets
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath

from patchwright.resolver.domain import Patch, TestRun, Verdict
from patchwright.resolver.git.new_file import add_file
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.proof.canaries import name_sibling
from patchwright.resolver.proof.run_comparison import get_test_file, get_test_function
from patchwright.resolver.rendering.filters import list_tests
from patchwright.resolver.suites.suite import Suite


async def require_nested_checks(
    workspace: Workspace,
    patch: Patch,
    suite: Suite,
    verdict: Verdict,
    run_tests: Callable[[str, Patch, tuple[str, ...]], Awaitable[TestRun]],
) -> Verdict:
    """Returns the verdict without the tests that also pass if all their checks fail. It is `unproven` if no other test
    shows the fix. `run_tests` gets a role, a patch, and the test files to run.
    """
    is_shown = verdict.kind in ("fixed", "conditional") and not verdict.partial
    if not is_shown or suite.runner not in ("pytest", "unittest") or not suite.can_select_files:
        return verdict
    copied: dict[str, str] = {}
    for path in dict.fromkeys(map(get_test_file, verdict.fail_to_pass)):
        text = await workspace.read_patched(patch, path) if path.endswith(".py") else None
        failing, names = _break_nested_checks((text or b"").decode(errors="replace"))
        sibling = name_sibling(PurePosixPath(path).name, secrets.token_hex(8))
        if names and sibling:
            copy = str(PurePosixPath(path).with_name(sibling))
            patch = add_file(patch, copy, failing)
            tests = [test for test in verdict.fail_to_pass if get_test_file(test) == path]
            in_names = [test for test in tests if get_test_function(test).removeprefix(f"{path}::") in names]
            copied |= {test: f"{copy}{test.removeprefix(path)}" for test in in_names}
    if not copied:
        return verdict
    run = await run_tests("nested-checks", patch, tuple(sorted(set(map(get_test_file, copied.values())))))
    unchecked = tuple(test for test, copy in copied.items() if run.results.get(copy) == "passed")
    shown = tuple(test for test in verdict.fail_to_pass if test not in unchecked)
    if shown or not unchecked:
        return verdict.model_copy(update={"fail_to_pass": shown})
    verb, them = ("passes", "its") if len(unchecked) == 1 else ("pass", "their")
    reason = f"With the patch, {list_tests(unchecked)} also {verb} if {them} checks fail, so no test shows the fix."
    return verdict.model_copy(update={"kind": "unproven", "fail_to_pass": (), "reason": reason})


def _break_nested_checks(text: str) -> tuple[str, frozenset[str]]:
    """Returns the module with checks in nested functions that always fail, and the names of the tests that have only
    such checks, such as `TestSum::test_add`.
    """
    try:
        tree = ast.parse(text)
        names = _break_checks(tree)
        return f"{ast.unparse(tree)}\n", names
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", frozenset()


def _break_checks(tree: ast.Module) -> frozenset[str]:
    names = set[str]()
    for node in tree.body:
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                breaker = _CheckBreaker()
                breaker.generic_visit(function)
                names |= {f"{prefix}{function.name}"} if breaker.has_only_nested_checks else set()
    return frozenset(names)


class _CheckBreaker(ast.NodeTransformer):
    """Replaces the checks in the functions that a test defines. What always fails, such as `assert False`, stays."""

    def __init__(self) -> None:
        self._depth = 0
        self._depths = set[int]()

    @property
    def has_only_nested_checks(self) -> bool:
        return bool(self._depths) and 0 not in self._depths

    def visit(self, node: ast.AST) -> ast.AST:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        self._depth += is_function
        self.generic_visit(node)
        self._depth -= is_function
        if not _is_check(node):
            return node
        self._depths.add(self._depth)
        return (
            ast.Assert(test=ast.Constant(value=False)) if self._depth and isinstance(node, ast.stmt) else node
        )


def _is_check(node: ast.AST) -> bool:
    match node:
        case ast.Assert(test=test):
            return not isinstance(test, ast.Constant)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name))):
            return name.startswith(("assert", "check"))
        case ast.withitem(context_expr=ast.Call(func=ast.Attribute(attr=name))):
            return name.startswith(("raises", "warns", "assertRaises", "assertWarns", "assertLogs"))
    return False
