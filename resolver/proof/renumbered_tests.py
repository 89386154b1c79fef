"""Finds tests whose ids changed only because the patch adds parameters.

pytest numbers the ids of parameters that it cannot write as text: `test_add[case0]`. If a patch inserts a parameter
before others, their numbers change, and the old id disappears although its test still runs.

In doubt, a test does not count as renumbered. It is then reported as a test that is not run any more.
"""

import ast
from collections import Counter
from math import prod

from patchwright.resolver.domain import Patch, TestRun
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.proof.run_comparison import get_test_file, get_test_function

MAX_FILE_BYTES = 1_000_000  # maximum bytes of a test file


async def find_renumbered_tests(
    workspace: Workspace, patch: Patch, before: TestRun, after: TestRun
) -> frozenset[str]:
    """Returns the tests of `before` that have no result in `after`, but still run there with another number.

    `before` is the run of the repository's own tests, and `after` the run of the patch's tests.
    """
    gone = {
        test for test in before.results if test.endswith("]") and test not in after.results
        if get_test_file(test).endswith(".py")
    }  # fmt: skip
    counts = Counter(map(get_test_function, before.results)), Counter(map(get_test_function, after.results))
    not_passed = {get_test_function(test) for test, result in after.results.items() if result != "passed"}
    kept: set[str] = set()
    for path in {get_test_file(test) for test in gone}:
        old = await workspace.read(path, MAX_FILE_BYTES) or ""
        new = (await workspace.read_patched(patch, path) or b"").decode(errors="replace")
        try:
            trees = ast.parse(old), ast.parse(new)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if _list_shared_parameters(trees[0]) != _list_shared_parameters(trees[1]):
            continue
        for function in {get_test_function(test) for test in gone if get_test_file(test) == path}:
            lists = [_list_parameters(tree, function) for tree in trees]
            # Otherwise, other parameters contribute to the ids, and one of them may be gone.
            are_complete = all(
                counted[function] == prod(map(len, found.values()))
                for counted, found in zip(counts, lists, strict=True)
            )
            if are_complete and function not in not_passed and _contains_all(*lists):
                kept.add(function)
    return frozenset(test for test in gone if get_test_function(test) in kept)


def _list_shared_parameters(tree: ast.Module) -> list[str]:
    """Returns the code that can add parameters to several tests, or change their values: fixtures, decorators of
    classes, marks of the module, and the values of its names.
    """
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found += map(ast.dump, node.decorator_list)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_fixture = any("fixture" in ast.dump(decorator) for decorator in node.decorator_list)
            found += [ast.dump(node)] if is_fixture or node.name == "pytest_generate_tests" else []
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            is_shared = node in tree.body or "pytestmark" in ast.dump(node)
            found += [ast.dump(node)] if is_shared else []
    return found


def _list_parameters(tree: ast.Module, function: str) -> dict[str, list[str]]:
    """Returns the code of each parameter of a test function, by the code of the parameters' names.

    Returns nothing if the function has other decorators, or parameters whose ids are not generated from a list in the
    code.
    """
    parent: ast.Module | ast.ClassDef = tree
    *classes, name = function.split("::")[1:]
    for class_name in classes:
        found = [node for node in parent.body if isinstance(node, ast.ClassDef) and node.name == class_name]
        if len(found) != 1:
            return {}
        parent = found[0]
    functions = [
        node
        for node in parent.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    parameters: dict[str, list[str]] = {}
    for decorator in functions[0].decorator_list if len(functions) == 1 else ():
        match decorator:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[names, ast.List(elts=values) | ast.Tuple(elts=values)],
                keywords=[],
            ) if not any(isinstance(value, ast.Starred) for value in values):
                parameters[ast.dump(names)] = [ast.dump(value) for value in values]
            case _:
                return {}
    return parameters


def _contains_all(old: dict[str, list[str]], new: dict[str, list[str]]) -> bool:
    """Returns True if the new lists contain all old parameters, in the same order."""
    if not old or list(old) != list(new):
        return False
    for names, values in old.items():
        remaining = iter(new[names])
        if not all(value in remaining for value in values):
            return False
    return True
