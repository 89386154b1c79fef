"""The proof: the repository's own tests, before and after, in sandboxes that the agent never touched."""

import re
from collections.abc import Awaitable

from resolver.domain import Patch, Result, SuiteRun, Verdict
from resolver.proof_files import INTRUDERS, is_about_tests, is_test
from resolver.suites.run import run_suite, run_with_report
from resolver.suites.suite import Suite
from resolver.verdict import failures, judge
from resolver.workspace import ABSENT, Change, Workspace
from runtime.sandbox import Sandboxes


async def prove(
    workspace: Workspace,
    patch: Patch,
    suite: Suite | None,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    before: SuiteRun | Awaitable[SuiteRun | None] | None,
) -> Verdict:
    """The verdict on a patch, by at most three test runs more. Raises ProofUnavailable, WorkspaceError."""
    if patch.empty or suite is None:
        return judge(patch, None, None)
    base = await before if isinstance(before, Awaitable) else before
    if base is None:
        return judge(patch, None, None)
    after = await run_suite(workspace, patch, suite, sandboxes, f"{name}-after", seconds)
    again = None
    suspects = failures(base, after)
    if suspects or after.problem or (not after.results and after.exit_code != 0):
        only = suspects if suite.selects and not after.problem else ()
        again = await run_suite(workspace, patch, suite, sandboxes, f"{name}-again", seconds, only)
        if only and again.problem:  # not every runner finds a test by the id that it reported
            again = await run_suite(workspace, patch, suite, sandboxes, f"{name}-again", seconds)
    changes = await workspace.changes(patch)
    new_at_base = None
    if any(is_about_tests(change.path) for change in changes) and _improves(base, after):
        new_at_base = await _tests_at_base(workspace, patch, changes, suite, sandboxes, name, seconds, base)
    verdict = judge(patch, base, after, again, new_at_base)
    added = (change.path for change in changes if change.old_mode == ABSENT)
    intruder = next((path for path in added if INTRUDERS.search(path)), None)
    if verdict.kind == "fixed" and intruder:
        reason = f"The patch adds {intruder}, which can decide what the test runner reports."
        return verdict.model_copy(update={"kind": "unproven", "reason": reason})
    return verdict


def _improves(before: SuiteRun, after: SuiteRun) -> bool:
    """Whether there is anything to find out about new or changed tests."""
    if not after.results:
        return after.exit_code == 0
    return any(
        result == "passed" and before.results.get(test) != "passed" for test, result in after.results.items()
    )


async def _tests_at_base(
    workspace: Workspace,
    patch: Patch,
    changes: tuple[Change, ...],
    suite: Suite,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    before: SuiteRun,
) -> SuiteRun:
    """The base code under the tests as the patch has them; what is no failure of it is marked skipped."""
    about_tests = tuple(change.path for change in changes if is_about_tests(change.path))
    tests = tuple(change.path for change in changes if is_test(change.path) and change.mode != ABSENT)
    for_all = {path for path in about_tests if not is_test(path)}
    only = tests if suite.selects and not for_all else ()
    part = await workspace.part(patch, about_tests)
    run, report = await run_with_report(
        workspace, part, suite, sandboxes, f"{name}-tests-at-base", seconds, only
    )
    added = await _added_code(workspace, patch, changes)
    results: dict[str, Result] = {
        test: "skipped"
        if result == "error" and not _is_missing_feature(report.messages.get(test, ""), added)
        else result
        for test, result in run.results.items()
    }
    if only:
        untouched = {
            test: result for test, result in before.results.items() if test.partition("::")[0] not in tests
        }
        results = {**untouched, **results}
    return run.model_copy(update={"results": results})


async def _added_code(
    workspace: Workspace, patch: Patch, changes: tuple[Change, ...]
) -> dict[str, frozenset[str]]:
    """The words that each of the patch's Python files outside the tests has and did not have at base."""
    added: dict[str, frozenset[str]] = {}
    for change in changes[:200]:
        if change.path.endswith(".py") and not is_about_tests(change.path) and change.mode.startswith("100"):
            new = await workspace.content(patch, change.path) or b""
            old = await workspace.read(change.path) or ""
            added[change.path] = _words(new.decode(errors="replace")) - _words(old)
    return added


def _words(source: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", source))


def _is_missing_feature(message: str, added: dict[str, frozenset[str]]) -> bool:
    """Whether the last exception of a traceback misses a module or a name that is in what the patch added."""
    said = re.findall(
        r"^E?\s*(?:ImportError|ModuleNotFoundError|AttributeError): (.*)$", message, re.MULTILINE
    )
    last = re.findall(r"^E\s+(\w[\w.]*(?:Error|Exception|Warning))\b", message, re.MULTILINE)
    if not said or not last or last[-1] not in ("ImportError", "ModuleNotFoundError", "AttributeError"):
        return False
    if module := re.search(r"No module named '([\w.]+)'", said[-1]):
        path = module[1].replace(".", "/")
        new = {name.removesuffix(".py").removesuffix("/__init__") for name in added}
        return any(name == path or name.endswith(f"/{path}") for name in new)
    name = re.search(r"cannot import name '(\w+)'|has no attribute '(\w+)'", said[-1])
    return name is not None and any((name[1] or name[2]) in words for words in added.values())
