"""One run of the repository's own tests: how they are found, what they show, and when they show nothing."""

import re

import pytest

from resolver.settings.settings import RepoConfig
from resolver.suites.find import find_suites
from resolver.suites.suite import Suite, Suites
from tests.resolver.proofs import BUG, FAILING, MENDED, TESTS

# --- how to test --------------------------------------------------------------------------------------------


async def test_pytest_is_found_by_the_names_of_test_files(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS, "pkg/more_test.py": ""}) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
    assert suite is not None and (suite.command, suite.report) == ("python3 -m pytest", "pytest")
    assert suite.why == "No test command is configured, and pkg/more_test.py and 1 more can be run by pytest."


async def test_code_below_src_is_made_importable(proven) -> None:
    async with proven({"src/calc.py": MENDED, "tests/test_calc.py": FAILING}) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        assert suite is not None
        run = await proof.run(suite)
    assert (run.command, run.problem, run.passed) == ("PYTHONPATH=src python3 -m pytest", None, 2)
    assert (
        run.why == suite.why == "No test command is configured, and tests/test_calc.py can be run by pytest."
    )


async def test_a_repository_without_tests_has_no_suite(proven) -> None:
    async with proven({"calc.py": BUG, "tests/data.txt": "", "conftest.py": ""}) as proof:
        assert await find_suites(proof.workspace, RepoConfig()) == Suites()


# --- one run ------------------------------------------------------------------------------------------------


async def test_a_run_has_the_outcome_of_each_test_by_pytest_s_own_ids(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        run = await proof.run()
    assert run.results == {"tests/test_calc.py::test_one": "passed", "tests/test_calc.py::test_add": "failed"}
    assert (run.exit_code, run.problem, run.passed, run.failed) == (1, None, 1, 1)
    assert "assert -1 == 3" in run.output


@pytest.mark.parametrize(
    ("files", "command", "problem"),
    [
        ({"a.py": ""}, "python3 -m pytest", r"pytest found no tests; set `test_command` in \.github/"),
        (
            {"conftest.py": "1/0"},
            "python3 -m pytest",
            r"pytest ended before any test \(ZeroDivisionError: division",
        ),
        (
            {"tox.ini": "[pytest]\naddopts = --cov"},
            "python3 -m pytest",
            r".* \(unrecognized arguments: --cov\); add",
        ),
        (
            {"a.py": ""},
            "no-such-pytest",
            r"`no-such-pytest` was not found in the sandbox; name an image that has it in the",
        ),
        ({"a.py": ""}, "/dev/null # pytest", r"the test command was not found or cannot be run; set `test_"),
        ({"a.py": ""}, "python3 -S -m pytest", r"pytest is not installed in the sandbox; add it to"),
        ({"a.py": ""}, "kill -9 $$ # pytest", r"the test command was killed, perhaps for its memory"),
        (
            {"test_a.py": "import os\ndef test_a(): os._exit(0)"},
            "python3 -m pytest",
            r"the command left no test report \(exit code 0: ",
        ),
        (
            {"test_a.py": "def test_a(): pass"},
            "python3 -m pytest && exit 3",
            r"the test command ended with 3, though its report shows no failure",
        ),
    ],
)
async def test_what_is_no_test_run_says_why_and_what_to_do(proven, files, command, problem) -> None:
    async with proven({"README": "", **files}) as proof:
        run = await proof.run(Suite(command=command, report="pytest", why=""))
    assert run.problem is not None and re.match(problem, run.problem), run.problem
    assert run.results == {}


async def test_a_suite_that_hangs_is_killed_at_its_limit(proven) -> None:
    async with proven({"test_a.py": "import time\ndef test_a(): time.sleep(600)\n"}) as proof:
        run = await proof.run(seconds=2)
    assert (run.exit_code, run.problem) == (None, "they did not end within 2 s and were killed")
    assert run.seconds < 10


async def test_a_file_that_cannot_be_collected_does_not_hide_the_others(proven) -> None:
    async with proven({"test_a.py": "import nothing_like_it", "test_b.py": "def test_b(): pass"}) as proof:
        run = await proof.run()
    assert run.results == {"test_a.py": "error", "test_b.py::test_b": "passed"}


async def test_a_command_may_leave_its_own_report(proven) -> None:
    lines = (
        "<testsuite tests='2' failures='1'><testcase classname='a' name='b'/><testcase name='c'><failure/>"
    )
    command = f'echo "{lines}</testcase></testsuite>" >"$PATCHWRIGHT_REPORT"; false'
    async with proven({"a": ""}) as proof:
        run = await proof.run(Suite(command=command, report="junit", why=""))
    assert (run.results, run.problem) == ({"a::b": "passed", "c": "failed"}, None)


async def test_a_suite_in_a_directory_runs_there_and_its_tests_are_named_by_it(proven) -> None:
    suite = Suite(command="python3 -m pytest", report="pytest", why="", directory="packages/a")
    files = {"packages/a/calc.py": BUG, "packages/a/test_calc.py": FAILING, "test_other.py": TESTS}
    async with proven(files) as proof:
        run = await proof.run(suite)
    assert run.command == "cd packages/a && python3 -m pytest"
    name = "packages/a/test_calc.py::test_"
    assert run.results == {f"{name}one": "passed", f"{name}add": "failed"}


@pytest.mark.parametrize(
    ("kind", "command", "problem"),
    [
        ("jest", 'jest() { printf "[" >"$PATCHWRIGHT_REPORT"; }; jest', "the test report cannot be read ("),
        (
            "jest",
            "jest() { echo no jest here; false; }; jest",
            "the command left no test report (exit code 1: no ",
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
        ("go", "go() { echo nothing; }; go test", "the test report names no tests"),
        ("maven", "mvn() { echo done; }; mvn test", "the command left no test report (exit code 0: done)"),
    ],
)
async def test_what_another_runner_leaves_is_believed_no_sooner(proven, kind, command, problem) -> None:
    planted = "<testsuite><testcase name='planted'/></testsuite>"
    async with proven({"target/surefire-reports/TEST-a.xml": planted}) as proof:
        run = await proof.run(Suite(command=command, report=kind, why=""))
    assert run.problem is not None and run.problem.startswith(problem), run.problem
    assert run.results == {}


async def test_a_gigabyte_of_output_is_clipped(proven) -> None:
    async with proven({"a": ""}) as proof:
        run = await proof.run(Suite(command="yes | head -c 200000000; echo end", report="none", why=""))
    assert run.exit_code == 0 and run.output.endswith("y\nend\n") and len(run.output) <= 20_000


async def test_a_report_planted_in_the_repository_is_not_read(proven) -> None:
    planted = "<testsuite><testcase name='all'/></testsuite>"
    config = "[pytest]\naddopts = --junitxml=report.xml -o junit_family=xunit2\n"
    files = {"report.xml": planted, "pytest.ini": config, "calc.py": BUG, "test_calc.py": FAILING}
    async with proven(files) as proof:
        run = await proof.run()
    assert run.results == {"test_calc.py::test_one": "passed", "test_calc.py::test_add": "failed"}
