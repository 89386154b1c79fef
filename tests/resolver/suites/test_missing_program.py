"""Test runs that fail because a program is missing in the sandbox."""

import pytest

from patchwright.resolver.domain import TestRun
from patchwright.resolver.suites.missing_program import (
    find_missing_program,
    has_failed_to_start,
    is_runner_missing,
)


@pytest.mark.parametrize(
    ("output", "program"),
    [
        ("bash: line 1: go: command not found\n", "go"),
        ("> calc@1.0.0 test\n> jest\n\nsh: 1: jest: not found\n", "jest"),
        ("/bin/sh: cargo: not found", "cargo"),
        ("./run-tests: line 12: bundle: command not found", "bundle"),
        ("env: ‘ruby’: No such file or directory", "ruby"),
        ("make: go: No such file or directory\nmake: *** [Makefile:2: test] Error 127\n", "go"),
        ("bash: line 3: ./gradlew: No such file or directory", "./gradlew"),
        ("bash: line 1: cd: nowhere: No such file or directory", ""),
        ("page: not found\n1 failed\n", ""),
        ("", ""),
    ],
)
def test_the_missing_program_is_found_in_the_output(output: str, program: str) -> None:
    assert find_missing_program(output) == program


def run(code: int | None, output: str = "", problem: str | None = "p", **results: str) -> TestRun:
    return TestRun(command="c", results=results, exit_code=code, seconds=1, output=output, problem=problem)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "known"),
    [
        (run(127), True),
        (run(2, "make: *** [Makefile:2: test] Error 127\n"), True),
        (run(1, "/usr/bin/python3: No module named pytest\n"), True),
        (run(127, problem=None), False),
        (run(127, a="passed"), False),  # one of several suites could run
        (run(2, "make: *** [Makefile:2: test] Error 1\n"), False),
        (run(None), False),  # killed: another run may be faster
        (None, False),
    ],
)
def test_a_run_that_did_not_start_shows_that_the_runner_is_missing(
    shown: TestRun | None, known: bool
) -> None:
    assert is_runner_missing(shown) is known


def test_under_make_the_output_shows_the_missing_program() -> None:
    assert has_failed_to_start(2, "gmake[1]: *** [test] Error 127") and not has_failed_to_start(
        2, "Error 127 of the API"
    )
