"""Finds changed files that may belong to the tests although nothing says so, if the fix depends on them."""

from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath

from patchwright.resolver.domain import Patch, TestRun, Verdict
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.proof.run_comparison import get_test_file
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import is_runner_config
from patchwright.resolver.suites.suite import Suite

SOURCE_SUFFIXES = frozenset(
    ".c .cc .cjs .cpp .cs .css .cts .cxx .go .groovy .h .hpp .java .js .jsx .kt .kts .m .mjs .mts .php .pl .pm .py "
    ".pyi .pyx .rb .rs .scala .scss .sh .svelte .swift .ts .tsx .vue".split()
)
PROSE_SUFFIXES = frozenset({".adoc", ".md", ".rst"})


async def find_unusual_files(
    workspace: Workspace,
    patch: Patch,
    code_changes: tuple[FileChange, ...],
    suite: Suite,
    verdict: Verdict,
    run_tests: Callable[[str, Patch, tuple[str, ...]], Awaitable[TestRun]],
) -> tuple[str, ...]:
    """Returns the changed files that are new or not source code, if the tests do not show the fix without them.

    `patch` is the patch without its changes to the test configuration. `run_tests` gets a role, a patch, and the test
    files to run.
    """
    files = dict.fromkeys(map(get_test_file, verdict.fail_to_pass))
    if verdict.partial or verdict.kind not in ("fixed", "conditional"):
        return ()
    read_prose = await _find_read_prose(workspace, code_changes)
    unusual = sorted(
        change.path
        for change in code_changes
        if change.path in files or change.path in read_prose or _is_unusual(change)
    )
    if not unusual:
        return ()
    rest = await workspace.revert_paths(patch, frozenset(unusual))
    only = tuple(files) if suite.can_select_files and all(files) else ()
    run = await run_tests("without-unusual-files", rest, only)
    passes = all(run.results.get(test) == "passed" for test in verdict.fail_to_pass)
    is_shown = passes and not run.problem and (files or run.exit_code == 0)
    return () if is_shown else tuple(unusual)


async def _find_read_prose(workspace: Workspace, changes: tuple[FileChange, ...]) -> frozenset[str]:
    """Returns the changed prose that code names at the base commit: it may be the output that tests expect."""
    prose = {change.path for change in changes if PurePosixPath(change.path).suffix.lower() in PROSE_SUFFIXES}
    readers = {
        path
        for path in (await workspace.list_files() if prose else ())
        if PurePosixPath(path).suffix.lower() not in PROSE_SUFFIXES
    }
    named = [path for path in prose if await find_mentions(workspace, readers, {PurePosixPath(path).name})]
    return frozenset(named)


def _is_unusual(change: FileChange) -> bool:
    """Returns False for source code that exists before and after the change, for prose, and for manifests."""
    suffix = PurePosixPath(change.path).suffix.lower()
    is_existing_code = suffix in SOURCE_SUFFIXES and ABSENT not in (change.old_mode, change.mode)
    return not is_existing_code and suffix not in PROSE_SUFFIXES and not is_runner_config(change.path)
