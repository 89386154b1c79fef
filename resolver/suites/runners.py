"""The supported test runners: how to recognize them, make them report each test, and select single tests.

This module defines what is added to a test command: either environment variables, or options directly after the
name of the runner. The runner writes its report to the path in `$PATCHWRIGHT_REPORT`, outside the work tree.
Some runners print the report or write it to their default location instead.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.reports import json_reports, text_reports
from patchwright.resolver.suites.reports.runner_report import RunnerReport, parse_junit, parse_junit_files

REPORT_VARIABLE = "PATCHWRIGHT_REPORT"
"""Environment variable with the path where a test command may write a JUnit XML report."""
REPORTER_DIR_VARIABLE = "PATCHWRIGHT_REPORTER_DIR"
"""Environment variable with the directory of a runner's `reporter_file`."""
PYTEST_PLUGIN = "patchwright_pytest"
"""Module in reporters/ that is loaded as a pytest plugin."""
MAX_SELECTED = 300  # maximum number of tests on one command line; for more, the whole suite runs

# Prefixes that do not change which program a command runs. The quantifiers are possessive. Otherwise, a long
# series of prefixes could match in very many ways.
_SHELL_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"']\S*)?"""
_COMMAND_PREFIX = (
    rf"(?P<before>(?:^|&&|\|\||[;(\n])\s*(?:\w+={_SHELL_VALUE}\s+|(?:time|exec|env|npx|bunx)\s+(?:-\S+\s+)*"
    r"|(?:bundle|pnpm|yarn|npm)\s+exec\s+(?:--\s+)?|yarn\s+(?:run\s+)?|pnpm\s+"
    rf"|(?:c8|nyc|cross-env|dotenv)\s+(?:-\S+\s+|\w+={_SHELL_VALUE}\s+)*(?:--\s+)?"
    r"|(?:poetry|uv|pdm|hatch|pipenv|rye)\s+run\s+(?:-\S+\s+)*|xvfb-run\s+(?:-\S+\s+)*)*+(?:\S*/)?)"
)
_COMMAND_END = r"(?=$|[\s;&|)])"
_PYTHON_COMMAND = r"python(?:[\d.]+)?(?:\s+-[bBEuW]\w*)*\s+"
# Options of node come before the file of the runner that node starts.
_NODE_COMMAND = r"(?:node\s+(?:-\S+\s+)*\S*/)?"

Selector = Callable[[tuple[str, ...]], str | None]
"""Returns the arguments that select these tests or files, or None if they cannot be selected."""


@dataclass(frozen=True)
class RunnerSpec:
    """How to run one test runner."""

    invocation: str
    """Regular expression for the words that start the runner, such as `pytest`."""
    parse_report: Callable[[bytes, str], RunnerReport]
    """Parses the runner's report; the second argument is the directory in which the runner ran."""
    report_options: str = ""
    """Options that are added after the words that start the runner."""
    run_all_options: str = ""
    """Options that are added as well, so that the runner runs all tests, whatever its configuration says. Old
    versions may not know them.
    """
    removed_options: str = ""
    """Regular expression for the options that stop the run at the first failure, or that choose another report. They
    are removed from the command.
    """
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the command. In their values, `{report}` stands for the report's path, and
    `{helper}` for the directory of `reporter_file`. Both paths are quoted for the shell.
    """
    environment_suffices: bool = False
    """True if the environment variables alone make the runner report each test. In that case, a script may
    start the runner.
    """
    reporter_file: str | None = None
    """A file in reporters/ that the runner needs. It is copied into a separate directory of the sandbox."""
    plain_start: str = ""
    """Another file in reporters/, which starts the runner so that code cannot easily tell that it is being tested."""
    module_path_variable: str = ""
    """Environment variable with a search path, such as PYTHONPATH. The directory of the file is added to it."""
    module_replacement: str | None = None
    """Replaces `-m` and the following word in a Python runner's command."""
    report_source: Literal["file", "output", "files"] = "file"
    """Where the report is: in one file, in the output of the command, or in several files."""
    print_variable: str = ""
    """Environment variable that makes old versions, which do not know `report_options`, print the report."""
    report_paths: str = ""
    """Pattern for `find -path`. It matches the reports that the runner writes below the work tree."""
    select_tests: Selector | None = None
    forwards_options: bool = False
    """True if a package manager can forward options to the runner. These options then come last, after the
    paths.
    """

    @property
    def command_pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{_COMMAND_PREFIX}(?P<words>{self.invocation}){_COMMAND_END}", re.MULTILINE)


def _split_test_ids(tests: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Returns the files and the test names in these ids. The id of a whole file contains no test name."""
    parts = [test.partition("::") for test in tests]
    return list(dict.fromkeys(file for file, _, _ in parts)), [name for _, _, name in parts if name]


def _select_pytest(tests: tuple[str, ...]) -> str:
    return shlex.join(tests)


def _select_unittest(tests: tuple[str, ...]) -> str:
    return f"--patchwright-only {shlex.join(tests)}"


def _file_selector(option: str = "") -> Selector:
    def select(tests: tuple[str, ...]) -> str | None:
        files, _ = _split_test_ids(tests)
        if any(file.startswith("-") for file in files):
            return None
        return f"{option} {shlex.join(files)}".strip()

    return select


def _select_go(tests: tuple[str, ...]) -> str | None:
    if any(test.endswith(".go") for test in tests):
        if not all(test.endswith("_test.go") for test in tests):
            return None
        return shlex.join(dict.fromkeys(f"./{test.rpartition('/')[0]}".rstrip("/") for test in tests))
    packages, names = _split_test_ids(tests)
    top_level = dict.fromkeys(name.partition("/")[0] for name in names)
    if len(names) != len(tests) or not all(re.fullmatch(r"\w+", name) for name in top_level):
        return None
    return f"-run '^({'|'.join(top_level)})$' {shlex.join(packages)}"


def _select_cargo(tests: tuple[str, ...]) -> str | None:
    if all(re.fullmatch(r"tests/[\w-]+\.rs", test) for test in tests):
        return " ".join(f"--test {test[6:-3]}" for test in tests)
    _, names = _split_test_ids(tests)
    if len(names) != len(tests) or not all(re.fullmatch(r"[\w:]+", name) for name in names):
        return None
    return f"-- --exact {' '.join(dict.fromkeys(names))}"


def _select_maven(tests: tuple[str, ...]) -> str | None:
    patterns = []
    for test in tests:
        if source := re.fullmatch(r"(?:.*/)?src/test/java/.*?(\w+)\.java", test):
            patterns.append(source[1])
        elif case := re.fullmatch(r"([\w.$]+)::(\w+)\b.*", test):
            patterns.append(f"{case[1].rpartition('.')[2].partition('$')[0]}#{case[2]}")
        else:
            return None
    options = "-DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false"
    return f"{options} {shlex.quote('-Dtest=' + ','.join(patterns))}"


def _select_rspec(tests: tuple[str, ...]) -> str | None:
    files, names = _split_test_ids(tests)
    name_options = [f"-e {shlex.quote(name)}" for name in names] if len(names) == len(tests) else []
    return " ".join([shlex.join(files), *name_options])


RUNNERS: dict[RunnerName, RunnerSpec] = {
    "pytest": RunnerSpec(
        invocation=rf"(?:{_PYTHON_COMMAND}-m\s+)?(?:pytest|py\.test)",
        parse_report=parse_junit,
        # xunit1 includes the file of each test
        environment={
            "PYTEST_ADDOPTS": f"-p {PYTEST_PLUGIN} --junitxml={{report}} -o junit_family=xunit1 "
            "--continue-on-collection-errors --maxfail=0"
        },
        environment_suffices=True,
        reporter_file=f"{PYTEST_PLUGIN}.py",
        plain_start="plain_start.py",
        module_path_variable="PYTHONPATH",
        select_tests=_select_pytest,
    ),
    "unittest": RunnerSpec(
        invocation=rf"(?P<python>{_PYTHON_COMMAND})-m\s+unittest",
        parse_report=json_reports.parse_json_lines,
        reporter_file="unittest_report.py",
        module_replacement=f'"${REPORTER_DIR_VARIABLE}/unittest_report.py" "${REPORT_VARIABLE}"',
        select_tests=_select_unittest,
    ),
    "jest": RunnerSpec(
        invocation=rf"{_NODE_COMMAND}jest(?:\.js)?|react-scripts\s+test|craco\s+test",
        parse_report=json_reports.parse_jest,
        run_all_options="--bail=0 --coverage=false",
        removed_options=r"--bail(?:[= ]\d+)?|-b",
        report_options=f'--json --outputFile="${REPORT_VARIABLE}"',
        select_tests=_file_selector("--runTestsByPath"),
        forwards_options=True,
    ),
    "vitest": RunnerSpec(
        invocation=r"vitest(?:\s+(?:run|--run))?",
        parse_report=json_reports.parse_jest,
        run_all_options="--bail=0",
        removed_options=r"--bail(?:[= ]\d+)?",
        report_options=f'--run --reporter=default --reporter=json --outputFile.json="${REPORT_VARIABLE}"',
        select_tests=_file_selector(),
        forwards_options=True,
    ),
    "mocha": RunnerSpec(
        invocation=rf"{_NODE_COMMAND}_?mocha(?:\.js)?",
        parse_report=json_reports.parse_mocha,
        run_all_options="--no-bail",
        removed_options=r"--bail|-b|(?:-R|--reporter)(?:=|\s+)?\S+",
        reporter_file="mocha_report.cjs",
        report_options=f'--reporter "${REPORTER_DIR_VARIABLE}/mocha_report.cjs"',
        forwards_options=True,
    ),
    "tap": RunnerSpec(
        invocation=r"tap(?:\s+run)?",
        parse_report=text_reports.parse_tap,
        run_all_options="--no-bail",
        removed_options=r"--bail|-b",
        report_options=f'--output-file="${REPORT_VARIABLE}"',
        print_variable="TAP",  # before version 10
        select_tests=_file_selector(),
        forwards_options=True,
    ),
    "tape": RunnerSpec(invocation=r"tape", parse_report=text_reports.parse_tape, report_source="output"),
    "node": RunnerSpec(
        invocation=r"node(?:\s+-\S+)*\s+--test",
        parse_report=json_reports.parse_json_lines,
        reporter_file="node_report.mjs",
        report_options=f'--test-reporter="file://${REPORTER_DIR_VARIABLE}/node_report.mjs" '
        f'--test-reporter-destination="${REPORT_VARIABLE}" --test-reporter=spec --test-reporter-destination=stdout',
        select_tests=_file_selector(),
    ),
    "go": RunnerSpec(
        invocation=r"go\s+test",
        parse_report=json_reports.parse_go,
        removed_options=r"--?failfast(?:=true)?",
        report_options="-json",
        report_source="output",
        select_tests=_select_go,
    ),
    "cargo": RunnerSpec(
        invocation=r"cargo(?:\s+\+\S+)?\s+(?:test|t)",
        parse_report=text_reports.parse_cargo,
        report_options="--no-fail-fast",
        report_source="output",
        select_tests=_select_cargo,
    ),
    "maven": RunnerSpec(
        invocation=r"(?:sh\s+\./)?(?:mvn|mvnw)(?=\s.*\b(?:test|package|verify|install)\b)",
        parse_report=parse_junit_files,
        run_all_options="-Dsurefire.skipAfterFailureCount=0",
        removed_options=r"-ff|--fail-fast",
        report_options="--batch-mode --offline --fail-at-end",
        report_source="files",
        report_paths="*/target/surefire-reports/TEST-*.xml",
        select_tests=_select_maven,
    ),
    "gradle": RunnerSpec(
        invocation=r"(?:sh\s+\./)?(?:gradle|gradlew)(?=\s.*\b(?:test|check|build)\b)",
        parse_report=parse_junit_files,
        report_options="--offline --continue",
        report_source="files",
        report_paths="*/build/test-results/*/TEST-*.xml",
    ),
    "rspec": RunnerSpec(
        invocation=r"rspec",
        parse_report=json_reports.parse_rspec,
        removed_options=r"--fail-fast(?:=\d+)?",
        environment={
            "SPEC_OPTS": "--format progress --format json --out {report} --no-fail-fast --order defined"
        },
        environment_suffices=True,
        select_tests=_select_rspec,
    ),
    "minitest": RunnerSpec(
        invocation=r"rails\s+test|ruby\s(?:[^;&|]*\s)?-I\s?\S*test\b",
        parse_report=json_reports.parse_json_lines,
        reporter_file="minitest/patchwright_plugin.rb",
        module_path_variable="RUBYLIB",
        environment_suffices=True,
    ),
    "junit": RunnerSpec(
        invocation=rf"\S*\${REPORT_VARIABLE}", parse_report=parse_junit, environment_suffices=True
    ),
}
"""All runners except `none`, by name."""


def detect_runner(command: str) -> RunnerName:
    """Returns the runner that a shell command starts. Returns `none` if the command starts no known runner, or
    more than one.
    """
    if REPORT_VARIABLE in command:
        return "junit"
    names = [name for name, runner in RUNNERS.items() for _ in runner.command_pattern.finditer(command)]
    return names[0] if len(names) == 1 else "none"
