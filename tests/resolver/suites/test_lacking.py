"""What is said of a program that is not in the sandbox."""

import pytest

from resolver.domain import SuiteRun
from resolver.suites.lacking import cannot_be_run, is_unstarted, lacked


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
def test_the_program_that_was_not_found_is_read_from_the_output(output: str, program: str) -> None:
    assert lacked(output) == program


def run(code: int | None, output: str = "", problem: str | None = "p", **results: str) -> SuiteRun:
    return SuiteRun(command="c", results=results, exit_code=code, seconds=1, output=output, problem=problem)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "known"),
    [
        (run(127), True),
        (run(2, "make: *** [Makefile:2: test] Error 127\n"), True),
        (run(1, "/usr/bin/python3: No module named pytest\n"), True),
        (run(127, problem=None), False),
        (run(127, a="passed"), False),  # of several suites one could be run
        (run(2, "make: *** [Makefile:2: test] Error 1\n"), False),
        (run(None), False),  # killed: another time they may be faster
        (None, False),
    ],
)
def test_that_nothing_can_run_the_tests_is_known_from_a_run_that_did_not_start(
    seen: SuiteRun | None, known: bool
) -> None:
    assert cannot_be_run(seen) is known


def test_what_was_printed_decides_where_make_started_the_program() -> None:
    assert is_unstarted(2, "gmake[1]: *** [test] Error 127") and not is_unstarted(2, "Error 127 of the API")
