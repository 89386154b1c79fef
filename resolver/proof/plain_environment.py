"""Repeats the tests that show a fix in a plain environment, in which code cannot easily tell that it is being tested.

For example, code may work only if the variable `CI` is set or pytest is loaded. Then a test shows no fix.
"""

from collections.abc import Awaitable, Callable

from patchwright.resolver.domain import TestRun, Verdict
from patchwright.resolver.proof.run_comparison import get_test_file, get_test_status
from patchwright.resolver.rendering.filters import list_tests
from patchwright.resolver.suites.command_options import build_plain_command
from patchwright.resolver.suites.suite import Suite

MAX_REPEATED = 50  # maximum number of tests that are repeated

RunPlain = Callable[[str, Suite, bool], Awaitable[TestRun]]
"""Gets a role, a suite, and whether the patch is applied; runs the whole suite once."""


async def require_plain_environment(verdict: Verdict, suite: Suite, run_plain: RunPlain) -> Verdict:
    """Returns the verdict, which is `unproven` if a test that shows the fix does not pass in a plain environment. The
    verdict stays as it is if the runner cannot run there.
    """
    tests = verdict.fail_to_pass[:MAX_REPEATED]
    if verdict.partial or verdict.kind not in ("fixed", "conditional") or not tests:
        return verdict
    plain = _build_plain_suite(suite, tests)
    if plain is None:
        return verdict
    for role in ("plain", "plain-again"):
        run = await run_plain(role, plain, True)
        if run.problem and not await _can_run_at_base(verdict, suite, run_plain):
            return verdict
        tests = tuple(
            test for test in tests if run.problem or get_test_status(run, test) not in ("passed", None)
        )
        if not tests:
            return verdict
    verb = "passes" if len(tests) == 1 else "pass"
    reason = f"With the patch, {list_tests(tests)} {verb} only if the code can tell that it is being tested."
    update = {"kind": "unproven", "environment_dependent": tests, "reason": reason}
    return verdict.model_copy(update=update)


async def _can_run_at_base(verdict: Verdict, suite: Suite, run_plain: RunPlain) -> bool:
    """Returns True if the plain environment can run a test file of the base commit there."""
    files = [get_test_file(test) for test in (verdict.before.results if verdict.before else {})]
    plain = _build_plain_suite(suite, tuple(files[:1]))
    return plain is not None and not (await run_plain("plain-base", plain, False)).problem


def _build_plain_suite(suite: Suite, selected: tuple[str, ...]) -> Suite | None:
    command = build_plain_command(suite.command, suite.runner, tuple(map(suite.to_local_id, selected)))
    return suite.model_copy(update={"command": command}) if command else None
