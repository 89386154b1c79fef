"""Finds the tests of a changed file that the patch leaves as they are.

If a changed test file cannot be loaded on the code at base, none of its tests runs there. This says nothing about
the tests that the patch does not change: their results at base are known. Only Python's tests are compared; in other
languages, all tests that the base commit has count as unchanged.
"""

import ast

from patchwright.resolver.domain import Patch, TestRun
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.proof.run_comparison import get_test_file, get_test_function

MAX_FILE_BYTES = 1_000_000  # maximum bytes of a test file


async def restore_known_results(
    workspace: Workspace, patch: Patch, at_base: TestRun, before: TestRun, files: tuple[str, ...]
) -> TestRun:
    """Returns a run of the patch's tests at base, with the known results of the tests that did not run there and that
    the patch does not change. `before` is the run of the repository's own tests. `files` are the test files that
    ran, or empty if all ran.
    """
    missing = {
        test: result
        for test, result in before.results.items()
        if test not in at_base.results and (not files or get_test_file(test) in files)
    }
    unchanged: set[str] = set()
    for path in {get_test_file(test) for test in missing if get_test_file(test).endswith(".py")}:
        old = await workspace.read(path, MAX_FILE_BYTES) or ""
        new = (await workspace.read_patched(patch, path) or b"").decode(errors="replace")
        before_functions, after_functions = _parse_functions(path, old), _parse_functions(path, new)
        unchanged |= {name for name, code in before_functions.items() if after_functions.get(name) == code}
    known = {
        test: result
        for test, result in missing.items()
        if get_test_function(test) in unchanged or not get_test_file(test).endswith(".py")
    }
    return at_base.model_copy(update={"results": {**at_base.results, **known}})


def _parse_functions(path: str, source: str) -> dict[str, str]:
    """Returns the code of each test function by its id, such as `tests/test_a.py::TestA::test_b`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    functions: dict[str, str] = {}
    queue: list[tuple[str, ast.Module | ast.ClassDef]] = [(path, tree)]
    while queue:
        prefix, parent = queue.pop()
        for node in parent.body:
            if isinstance(node, ast.ClassDef):
                queue.append((f"{prefix}::{node.name}", node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[f"{prefix}::{node.name}"] = ast.dump(node)
    return functions
