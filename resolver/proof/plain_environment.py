"""Repeats the tests that show a fix in a plain environment, in which code cannot easily tell that it is being tested.

For example, code may work only if the variable `CI` is set or pytest is loaded. Then a test shows no fix.
"""

from collections.abc import Awaitable, Callable
from functools import partial

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
    tests = tuple(filter(partial(_can_repeat, suite), verdict.fail_to_pass))[:MAX_REPEATED]
    if verdict.partial or verdict.kind not in ("fixed", "conditional") or not tests:
        return verdict
    plain = _build_plain_suite(suite, tests)
    if plain is None:
        return verdict
    for role in ("plain", "plain-again"):
        run = await run_plain(role, plain, True)
        tests = tuple(
            test for test in tests if run.problem or get_test_status(run, test) not in ("passed", None)
        )
        if not tests:
            return verdict
    before = verdict.before
    known = tuple(filter(partial(_can_repeat, suite), before.results)) if before else ()
    if before and known:
        files = set(map(get_test_file, tests))
        beside = tuple(test for test in known if get_test_file(test) in files)
        if not await _works_at_base(before, suite, beside or known, run_plain):
            return verdict
    elif run.problem:  # Nothing shows that the environment can run tests.
        return verdict
    verb = "passes" if len(tests) == 1 else "pass"
    reason = f"With the patch, {list_tests(tests)} {verb} only if the code can tell that it is being tested."
    update = {"kind": "unproven", "environment_dependent": tests, "reason": reason}
    return verdict.model_copy(update=update)


async def _works_at_base(before: TestRun, suite: Suite, known: tuple[str, ...], run_plain: RunPlain) -> bool:
    """Returns True if tests pass at the base commit, where no patch can deceive, in the plain environment as they do
    in the normal one.
    """
    known = known[:MAX_REPEATED]
    plain = _build_plain_suite(suite, known)
    if plain is None:
        return False
    run = await run_plain("plain-base", plain, False)
    return not run.problem and not any(
        get_test_status(before, test) == "passed" and get_test_status(run, test) not in ("passed", None)
        for test in known
    )


def _can_repeat(suite: Suite, test: str) -> bool:
    """Returns False if the id does not start with a file, as in a report that names the module of the test."""
    return suite.runner != "pytest" or get_test_file(test).endswith(".py")


def _build_plain_suite(suite: Suite, tests: tuple[str, ...]) -> Suite | None:
    """Returns the suite with a command for these tests. pytest runs their whole files, because an id that it does not
    know, such as one with a time in it, would end the run.
    """
    selected = tuple(dict.fromkeys(map(get_test_file, tests))) if suite.runner == "pytest" else tests
    command = build_plain_command(suite.command, suite.runner, tuple(map(suite.to_local_id, selected)))
    return suite.model_copy(update={"command": command}) if command else None
