"""Which files take part in judging: tests, what belongs to them, and what decides how they run."""

import re
import sys
from pathlib import PurePosixPath

TEST_DIRECTORIES = frozenset(
    {"test", "tests", "__tests__", "spec", "specs", "testdata", "__snapshots__", "__mocks__", "__fixtures__"}
)
TEST_NAMES = re.compile(
    r"test_.*|.*[_-](test|tests|spec)\.\w+|.*\.(test|spec|cy)\.\w+|(Test[A-Z]\w*|\w+Tests?|\w+IT)\.(java|kt|groovy|scala|cs|php)"
)
# They decide how tests run, so a patch is judged with the base's version of them.
RUNNER_FILES = re.compile(
    r"conftest\.py|\.?pytest\.(ini|toml)|tox\.(ini|toml)|noxfile\.py|\.coveragerc|setup\.cfg|pyproject\.toml"
    r"|package\.json|\.(npm|yarn|mocha|tap|nyc|c8|babel|swc)rc(\.\w+)*|\.pnpmfile\.c?js"
    r"|(jest|vitest|vite|karma|ava|babel|playwright|cypress|wdio|mocha|web-test-runner)(\.\w+)?\.(config|conf|workspace)"
    r"\.\w+|(vitest|vite|jest)\.(setup|workspace)\.\w+"
    r"|(GNU)?[Mm]akefile|[Jj]ustfile|[Tt]askfile\.ya?ml|Rakefile|\.rspec|(spec|rails|test)_helper\.rb"
    r"|phpunit[\w.-]*\.xml(\.dist)?|pom\.xml|(build|settings)\.gradle(\.kts)?|gradle\.properties|gradlew|mvnw|Cargo\.toml"
    r"|\.travis\.ya?ml|\.gitlab-ci\.ya?ml|azure-pipelines\.ya?ml|appveyor\.ya?ml|Jenkinsfile",
)
RUNNER_DIRECTORIES = re.compile(r"(^|/)(\.github|\.circleci|\.cargo|\.mvn|\.config)/")
# Python imports these before, or instead of, the runner that is to judge.
INTRUDERS = re.compile(r"(^|/)((site|user)customize\.py|[^/]+\.pth)$|^(src/)?(_?pytest|pluggy)(\.py$|/)")
# What pytest imports before it opens a test; a module of that name where Python looks first comes in its place.
IMPORTED_FIRST = frozenset(sys.stdlib_module_names) | {
    *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments"),
    *("colorama", "py", "attr", "attrs", "xdist", "execnet"),
}


def is_test(path: str) -> bool:
    """Whether pytest would collect the file by its name."""
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def is_test_file(path: str) -> bool:
    """Whether the file holds tests, by its name: some runner would collect it."""
    name = PurePosixPath(path).name
    return TEST_NAMES.fullmatch(name) is not None and not decides_how_tests_run(path)


def decides_how_tests_run(path: str) -> bool:
    """Whether a test runner reads the file before it runs any test."""
    return (
        RUNNER_FILES.fullmatch(PurePosixPath(path).name) is not None
        or RUNNER_DIRECTORIES.search(path) is not None
        or INTRUDERS.search(path) is not None
    )


def comes_before_the_runner(path: str, directory: str = "") -> bool:
    """Whether Python, started in that directory, would take the file for a module of its own or of the runner's."""
    parts = PurePosixPath(path).relative_to(directory).parts if path.startswith(directory) else ()
    first = parts[1] if len(parts) > 1 and parts[0] == "src" else parts[0] if parts else ""
    return path.endswith((".py", ".so")) and first.partition(".")[0] in IMPORTED_FIRST


def is_about_tests(path: str) -> bool:
    """Whether the file is a test, its data, or decides how tests run."""
    *directories, name = PurePosixPath(path).parts
    named = decides_how_tests_run(path) or TEST_NAMES.fullmatch(name) is not None
    in_tests = not TEST_DIRECTORIES.isdisjoint(directories) or directories[:1] == ["testing"]
    return named or in_tests
