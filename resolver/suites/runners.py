"""Each test runner: how it is made to tell every outcome, and to run some tests only.

What is added to a command comes from here alone: options after the runner's words, or variables. Reports are
written outside of the work tree, to the file that `$PATCHWRIGHT_REPORT` names, or where the runner leaves them.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from resolver.suites.kind import Kind
from resolver.suites.reports import in_json, in_text
from resolver.suites.reports.junit_files import junit, junit_files
from resolver.suites.testreport import Report

REPORT = "PATCHWRIGHT_REPORT"
"""Variable that names the file where a test command may leave a JUnit XML report."""
HELPER = "PATCHWRIGHT_HELPER"
"""Variable that names the directory of a runner's `helper`."""
MOST_SELECTED = 300  # tests on one command line; more than that, and everything is run

# What may stand before a command without changing what is run; possessive, for many would match in many ways.
_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"']\S*)?"""
_BEFORE = (
    rf"(?P<before>(?:^|&&|\|\||[;(\n])\s*(?:\w+={_VALUE}\s+|(?:time|exec|env|npx|bunx)\s+(?:-\S+\s+)*"
    r"|(?:bundle|pnpm|yarn|npm)\s+exec\s+(?:--\s+)?|yarn\s+(?:run\s+)?|pnpm\s+"
    rf"|(?:c8|nyc|cross-env|dotenv)\s+(?:-\S+\s+|\w+={_VALUE}\s+)*(?:--\s+)?"
    r"|(?:poetry|uv|pdm|hatch|pipenv|rye)\s+run\s+(?:-\S+\s+)*|xvfb-run\s+(?:-\S+\s+)*)*+(?:\S*/)?)"
)
_ENDS = r"(?=$|[\s;&|)])"
_PYTHON = r"python(?:[\d.]+)?(?:\s+-[bBEuW]\w*)*\s+"
# Options of node itself go before the file of a runner that it is to start.
_BY_NODE = r"(?:node\s+(?:-\S+\s+)*\S*/)?"

Select = Callable[[tuple[str, ...]], str | None]
"""The words that name these tests, or files, at the end of the command; None: they cannot be named."""


@dataclass(frozen=True)
class Runner:
    """One test runner."""

    words: str
    """A pattern of the words that start it."""
    read: Callable[[bytes, str], Report]
    """Its report becomes results; the second is the directory in which it ran."""
    options: str = ""
    """Put after its words."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Set for the command; `{report}` is the report's path, `{helper}` the directory of `helper`, both quoted."""
    wherever: bool = False
    """Whether variables suffice, so that the runner may be hidden in a script."""
    helper: str | None = None
    """A file of reporters/ that is put into the sandbox, and where, below a directory of its own."""
    instead: str | None = None
    """Takes the place of `-m` and what follows it in a Python runner's words."""
    source: Literal["file", "output", "files"] = "file"
    """output: what the command prints is the report."""
    files: str = ""
    """Where, below the work tree, the runner leaves its reports: a pattern of `find -path`."""
    select: Select | None = None
    forward: bool = False
    """Whether a package manager may hand its options on: they come last then, after paths."""

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{_BEFORE}(?P<words>{self.words}){_ENDS}", re.MULTILINE)


def _named(tests: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The files of these tests, and the names in them; a file that is named alone has none."""
    parts = [test.partition("::") for test in tests]
    return list(dict.fromkeys(file for file, _, _ in parts)), [name for _, _, name in parts if name]


def _pytest(tests: tuple[str, ...]) -> str:
    return shlex.join(tests)


def _unittest(tests: tuple[str, ...]) -> str:
    return f"--patchwright-only {shlex.join(tests)}"


def _files(option: str = "") -> Select:
    def select(tests: tuple[str, ...]) -> str | None:
        files, _ = _named(tests)
        if any(file.startswith("-") for file in files):
            return None
        return f"{option} {shlex.join(files)}".strip()

    return select


def _go(tests: tuple[str, ...]) -> str | None:
    if any(test.endswith(".go") for test in tests):
        if not all(test.endswith("_test.go") for test in tests):
            return None
        return shlex.join(dict.fromkeys(f"./{test.rpartition('/')[0]}".rstrip("/") for test in tests))
    packages, names = _named(tests)
    top = dict.fromkeys(name.partition("/")[0] for name in names)
    if len(names) != len(tests) or not all(re.fullmatch(r"\w+", name) for name in top):
        return None
    return f"-run '^({'|'.join(top)})$' {shlex.join(packages)}"


def _cargo(tests: tuple[str, ...]) -> str | None:
    if all(re.fullmatch(r"tests/[\w-]+\.rs", test) for test in tests):
        return " ".join(f"--test {test[6:-3]}" for test in tests)
    _, names = _named(tests)
    if len(names) != len(tests) or not all(re.fullmatch(r"[\w:]+", name) for name in names):
        return None
    return f"-- --exact {' '.join(dict.fromkeys(names))}"


def _maven(tests: tuple[str, ...]) -> str | None:
    chosen = []
    for test in tests:
        if source := re.fullmatch(r"(?:.*/)?src/test/java/.*?(\w+)\.java", test):
            chosen.append(source[1])
        elif case := re.fullmatch(r"([\w.$]+)::(\w+)\b.*", test):
            chosen.append(f"{case[1].rpartition('.')[2].partition('$')[0]}#{case[2]}")
        else:
            return None
    ours = "-DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false"
    return f"{ours} {shlex.quote('-Dtest=' + ','.join(chosen))}"


def _rspec(tests: tuple[str, ...]) -> str | None:
    files, names = _named(tests)
    each = [f"-e {shlex.quote(name)}" for name in names] if len(names) == len(tests) else []
    return " ".join([shlex.join(files), *each])


RUNNERS: dict[Kind, Runner] = {
    "pytest": Runner(
        words=rf"(?:{_PYTHON}-m\s+)?(?:pytest|py\.test)",
        read=junit,
        # xunit1 names the file of a test
        variables={
            "PYTEST_ADDOPTS": "--junitxml={report} -o junit_family=xunit1 --continue-on-collection-errors"
        },
        wherever=True,
        select=_pytest,
    ),
    "unittest": Runner(
        words=rf"(?P<python>{_PYTHON})-m\s+unittest",
        read=in_json.lines,
        helper="unittest_report.py",
        instead=f'"${HELPER}/unittest_report.py" "${REPORT}"',
        select=_unittest,
    ),
    "jest": Runner(
        words=rf"{_BY_NODE}jest(?:\.js)?|react-scripts\s+test|craco\s+test",
        read=in_json.jest,
        options=f'--json --outputFile="${REPORT}"',
        select=_files("--runTestsByPath"),
        forward=True,
    ),
    "vitest": Runner(
        words=r"vitest(?:\s+(?:run|--run))?",
        read=in_json.jest,
        options=f'--run --reporter=default --reporter=json --outputFile.json="${REPORT}"',
        select=_files(),
        forward=True,
    ),
    "mocha": Runner(
        words=rf"{_BY_NODE}_?mocha(?:\.js)?",
        read=in_json.mocha,
        options=f'--reporter json --reporter-option output="${REPORT}"',
        forward=True,
    ),
    "tap": Runner(
        words=r"tap(?:\s+run)?",
        read=in_text.tap,
        options=f'--output-file="${REPORT}"',
        select=_files(),
        forward=True,
    ),
    "tape": Runner(words=r"tape", read=in_text.tape, source="output"),
    "node": Runner(
        words=r"node(?:\s+-\S+)*\s+--test",
        read=in_json.lines,
        helper="node_report.mjs",
        options=f'--test-reporter="file://${HELPER}/node_report.mjs" '
        f'--test-reporter-destination="${REPORT}" --test-reporter=spec --test-reporter-destination=stdout',
        select=_files(),
    ),
    "go": Runner(
        words=r"go\s+test",
        read=in_json.go,
        options="-json",
        source="output",
        select=_go,
    ),
    "cargo": Runner(
        words=r"cargo(?:\s+\+\S+)?\s+(?:test|t)",
        read=in_text.cargo,
        options="--no-fail-fast",
        source="output",
        select=_cargo,
    ),
    "maven": Runner(
        words=r"(?:sh\s+\./)?(?:mvn|mvnw)(?=\s.*\b(?:test|package|verify|install)\b)",
        read=junit_files,
        options="--batch-mode --offline --fail-at-end",
        source="files",
        files="*/target/surefire-reports/TEST-*.xml",
        select=_maven,
    ),
    "gradle": Runner(
        words=r"(?:sh\s+\./)?(?:gradle|gradlew)(?=\s.*\b(?:test|check|build)\b)",
        read=junit_files,
        options="--offline --continue",
        source="files",
        files="*/build/test-results/*/TEST-*.xml",
    ),
    "rspec": Runner(
        words=r"rspec",
        read=in_json.rspec,
        variables={"SPEC_OPTS": "--format progress --format json --out {report}"},
        wherever=True,
        select=_rspec,
    ),
    "minitest": Runner(
        words=r"rails\s+test|ruby\s(?:[^;&|]*\s)?-I\s?\S*test\b",
        read=in_json.lines,
        helper="minitest/patchwright_plugin.rb",
        variables={"RUBYLIB": "{helper}"},
        wherever=True,
    ),
    "junit": Runner(words=rf"\S*\${REPORT}", read=junit, wherever=True),
}
"""By kind, all but `none`."""


def kind_of(command: str) -> Kind:
    """The runner that a shell command starts, once; `none` when there is none, or more than one."""
    if REPORT in command:
        return "junit"
    found = [kind for kind, runner in RUNNERS.items() for _ in runner.pattern.finditer(command)]
    return found[0] if len(found) == 1 else "none"
