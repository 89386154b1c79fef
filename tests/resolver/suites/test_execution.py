"""Runs of a repository's tests: discovery, results, and problems."""

import re

import pytest

from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.suite import Suite, Suites
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, TESTS

# --- discovery ----------------------------------------------------------------------------------------------


async def test_pytest_is_found_by_the_names_of_test_files(open_verifier) -> None:
    async with open_verifier(
        {"calc.py": BUG, "tests/test_calc.py": TESTS, "pkg/more_test.py": ""}
    ) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
    assert suite is not None and (suite.command, suite.runner) == ("python3 -m pytest", "pytest")
    assert (
        suite.command_reason
        == "No test command is configured, and pkg/more_test.py and 1 more can be run by pytest."
    )


async def test_code_below_src_is_made_importable(open_verifier) -> None:
    async with open_verifier({"src/calc.py": FIXED, "tests/test_calc.py": FAILING}) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        assert suite is not None
        run = await verifier.run(suite)
    assert (run.command, run.problem, run.passed_count) == ("PYTHONPATH=src python3 -m pytest", None, 2)
    assert (
        run.command_reason
        == suite.command_reason
        == "No test command is configured, and tests/test_calc.py can be run by pytest."
    )


async def test_a_repository_without_tests_has_no_suite(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/data.txt": "", "conftest.py": ""}) as verifier:
        assert await find_suites(verifier.workspace, RepoConfig()) == Suites()


# --- results ------------------------------------------------------------------------------------------------


async def test_a_run_has_the_result_of_each_test_by_pytest_id(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        run = await verifier.run()
    assert run.results == {"tests/test_calc.py::test_one": "passed", "tests/test_calc.py::test_add": "failed"}
    assert (run.exit_code, run.problem, run.passed_count, run.failed_count) == (1, None, 1, 1)
    assert "assert -1 == 3" in run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "command", "problem"),
    [
        ({"a.py": ""}, "python3 -m pytest", r"pytest found no tests; set `test_command` in \.github/"),
        (
            {"conftest.py": "1/0"},
            "python3 -m pytest",
            r"pytest stopped before any test \(ZeroDivisionError: division",
        ),
        (
            {"tox.ini": "[pytest]\naddopts = --maxfail=many"},
            "python3 -m pytest",
            r"pytest stopped before any test \(argument --maxfail: invalid int value: 'many'\); add",
        ),
        (
            {"conftest.py": "import nothing_like.it"},
            "python3 -m pytest",
            r"no test ran, because the Python module `nothing_like` is not installed in the sandbox; install it",
        ),
        (
            {"conftest.py": "def pytest_sessionstart(session):\n    session.nothing"},
            "python3 -m pytest",
            r"pytest stopped before any test \(AttributeError: 'Session' object has no attribute 'nothing'\)",
        ),
        (
            {"a.py": ""},
            "no-such-pytest",
            r"`no-such-pytest` was not found in the sandbox; set `image` to an image that has it",
        ),
        ({"a.py": ""}, "/dev/null # pytest", r"the test command was not found or cannot be run; set `test_"),
        ({"a.py": ""}, "python3 -S -m pytest", r"pytest is not installed in the sandbox; add it to"),
        (
            {"a.py": ""},
            "kill -9 $$ # pytest",
            r"the test command was killed, perhaps because it used too much memory",
        ),
        (
            {"test_a.py": "import os\ndef test_a(): os._exit(0)"},
            "python3 -m pytest",
            r"the command wrote no test report \(exit code 0: ",
        ),
        (
            {"test_a.py": "def test_a(): pass"},
            "python3 -m pytest && kill -SEGV $$",
            r"the test command was killed by SIGSEGV",
        ),
    ],
)
async def test_a_failed_test_run_says_why_and_what_to_do(open_verifier, files, command, problem) -> None:
    async with open_verifier({"README": "", **files}) as verifier:
        run = await verifier.run(Suite(command=command, runner="pytest", command_reason=""))
    assert run.problem is not None and re.match(problem, run.problem), run.problem
    assert run.results == {}


async def test_a_command_that_fails_after_its_tests_passed_has_results(open_verifier) -> None:
    async with open_verifier({"test_a.py": "def test_a(): pass"}) as verifier:
        run = await verifier.run(
            Suite(command="python3 -m pytest && exit 3", runner="pytest", command_reason="")
        )
    assert (run.results, run.problem) == ({"test_a.py::test_a": "passed"}, None)
    assert (run.exit_code, run.unexplained_exit_code) == (3, 3)


@pytest.mark.slow
async def test_a_suite_that_hangs_is_killed_at_its_limit(open_verifier) -> None:
    async with open_verifier({"test_a.py": "import time\ndef test_a(): time.sleep(600)\n"}) as verifier:
        run = await verifier.run(seconds=2)
    assert (run.exit_code, run.problem) == (None, "the tests did not finish within 2 s and were killed")


async def test_a_file_that_cannot_be_collected_does_not_hide_the_others(open_verifier) -> None:
    async with open_verifier(
        {"test_a.py": "import nothing_like_it", "test_b.py": "def test_b(): pass"}
    ) as verifier:
        run = await verifier.run()
    assert run.results == {"test_a.py": "error", "test_b.py::test_b": "passed"}


async def test_a_command_may_leave_its_own_report(open_verifier) -> None:
    lines = (
        "<testsuite tests='2' failures='1'><testcase classname='a' name='b'/><testcase name='c'><failure/>"
    )
    command = f'echo "{lines}</testcase></testsuite>" >"$PATCHWRIGHT_REPORT"; false'
    async with open_verifier({"a": ""}) as verifier:
        run = await verifier.run(Suite(command=command, runner="junit", command_reason=""))
    assert (run.results, run.problem) == ({"a::b": "passed", "c": "failed"}, None)


async def test_a_suite_in_a_directory_runs_there_and_its_tests_are_named_by_it(open_verifier) -> None:
    suite = Suite(command="python3 -m pytest", runner="pytest", command_reason="", directory="packages/a")
    files = {"packages/a/calc.py": BUG, "packages/a/test_calc.py": FAILING, "test_other.py": TESTS}
    async with open_verifier(files) as verifier:
        run = await verifier.run(suite)
    assert run.command == "cd packages/a && python3 -m pytest"
    name = "packages/a/test_calc.py::test_"
    assert run.results == {f"{name}one": "passed", f"{name}add": "failed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "command", "problem"),
    [
        ("jest", 'jest() { printf "[" >"$PATCHWRIGHT_REPORT"; }; jest', "the test report is not valid ("),
        (
            "jest",
            "jest() { echo no jest here; false; }; jest",
            "the command wrote no test report (exit code 1: no ",
        ),
        (
            "jest",
            'jest() { head -c 20000001 /dev/zero >"$PATCHWRIGHT_REPORT"; }; jest',
            "the test report is larger",
        ),
        (
            "jest",
            'jest() { echo "{}" >"$PATCHWRIGHT_REPORT"; kill -9 $$; }; jest',
            "the test command was killed",
        ),
        (
            "cargo",
            "cargo() { echo running 2 tests; echo test a ... ok; }; cargo test",
            "the test report ends before",
        ),
        ("go", "go() { yes | head -c 200000000; }; go test", "the test report is larger than 20 MB"),
        ("go", "go() { echo nothing; }; go test", "the test report contains no tests"),
        ("maven", "mvn() { echo done; }; mvn test", "the command wrote no test report (exit code 0: done)"),
    ],
)
async def test_invalid_reports_of_other_runners_are_problems(open_verifier, kind, command, problem) -> None:
    planted = "<testsuite><testcase name='planted'/></testsuite>"
    async with open_verifier({"target/surefire-reports/TEST-a.xml": planted}) as verifier:
        run = await verifier.run(Suite(command=command, runner=kind, command_reason=""))
    assert run.problem is not None and run.problem.startswith(problem), run.problem
    assert run.results == {}


@pytest.mark.slow
async def test_huge_test_output_is_truncated(open_verifier) -> None:
    async with open_verifier({"a": ""}) as verifier:
        run = await verifier.run(
            Suite(command="yes | head -c 200000000; echo end", runner="none", command_reason="")
        )
    assert run.exit_code == 0 and run.output.endswith("y\nend\n") and len(run.output) <= 20_000


async def test_colors_and_progress_are_removed_from_the_output(open_verifier) -> None:
    command = r"printf '\033[32mok\033[0m\n1%%\r50%%\r100%%\n'"
    async with open_verifier({"a": ""}) as verifier:
        run = await verifier.run(Suite(command=command, runner="none", command_reason=""))
    assert run.output == "ok\n100%\n"


async def test_a_report_planted_in_the_repository_is_not_read(open_verifier) -> None:
    planted = "<testsuite><testcase name='all'/></testsuite>"
    config = "[pytest]\naddopts = --junitxml=report.xml -o junit_family=xunit2\n"
    files = {"report.xml": planted, "pytest.ini": config, "calc.py": BUG, "test_calc.py": FAILING}
    async with open_verifier(files) as verifier:
        run = await verifier.run()
    assert run.results == {"test_calc.py::test_one": "passed", "test_calc.py::test_add": "failed"}
