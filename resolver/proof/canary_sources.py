"""The test files with the two canary tests, by runner. Their texts are in the directory `canary_tests`.

The test `$good` must pass, and the test `$bad` must fail. If an assertion accepts everything, `$bad` passes.
"""

from pathlib import Path

from patchwright.resolver.runner_names import RunnerName

_CHECKS: dict[RunnerName, str] = {
    "pytest": "python_checks",
    "unittest": "python_checks",
    "mocha": "node_checks",
    "node": "node_checks",
    "jest": "expect_checks",
    "vitest": "expect_checks",
}
"""The checks that the tests of a runner use. The runners of tap, tape and other languages are not supported."""


def _read(name: str) -> str:
    return (Path(__file__).with_name("canary_tests") / f"{name}.txt").read_text()


CANARY_SOURCES = {runner: _read(checks) + _read(runner) for runner, checks in _CHECKS.items()}
