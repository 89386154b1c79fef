"""Which files take part in judging: tests, what belongs to them, and what decides how they run."""

import re
from pathlib import PurePosixPath

TEST_DIRECTORIES = frozenset({"test", "tests", "testing", "__tests__", "spec"})
TEST_NAMES = re.compile(r"test_.*|.*_test\.\w+|.*[.](test|spec)[.]\w+")
# They decide how tests run, so the base code is put under the patch's version of them as well.
RUNNER_FILES = frozenset(
    {"conftest.py", "pytest.ini", "pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml"}
    | {"noxfile.py", "package.json", "Makefile"}
)
# Python imports these before, or instead of, the runner that is to judge.
INTRUDERS = re.compile(r"(^|/)((site|user)customize\.py|[^/]+\.pth)$|^(src/)?(_?pytest|pluggy)(\.py$|/)")


def is_test(path: str) -> bool:
    """Whether pytest would collect the file by its name."""
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def decides_how_tests_run(path: str) -> bool:
    """Whether a test runner reads the file before it runs any test."""
    return PurePosixPath(path).name in RUNNER_FILES or INTRUDERS.search(path) is not None


def is_about_tests(path: str) -> bool:
    """Whether the file is a test, its data, or decides how tests run."""
    *directories, name = PurePosixPath(path).parts
    named = decides_how_tests_run(path) or TEST_NAMES.fullmatch(name) is not None
    return named or not TEST_DIRECTORIES.isdisjoint(directories)
