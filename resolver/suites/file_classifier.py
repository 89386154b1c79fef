"""Classifies files by their role in test runs: tests, test data, and test configuration."""

import re
import sys
from pathlib import PurePosixPath

TEST_DIRECTORIES = frozenset(
    {"test", "tests", "__tests__", "spec", "specs", "testdata", "__snapshots__", "__mocks__", "__fixtures__"}
)
# A product can have a directory such as `lab_tests`, so only the usual kinds of tests count.
_NAMED_TEST_DIRECTORY = re.compile(
    r"Tests|(?:unit|integration|functional|e2e|end[_-]to[_-]end|system|acceptance|regression|smoke|api|ui|browser)"
    r"(?:[_-]tests?|tests)"
)
TEST_FILE_NAMES = re.compile(
    r"test_.*|tests\.py|tests?\.[cm]?[jt]sx?|.*[_-](test|tests|spec)\.\w+|.*\.(test|spec|cy)\.\w+|(Test[A-Z]\w*|\w+Tests?|\w+IT)\.(java|kt|groovy|scala|cs|php)"
)
# These files decide how tests run. When a patch is verified, the base commit's version of these files is
# used.
RUNNER_FILES = re.compile(
    r"conftest\.py|\.?pytest\.(ini|toml)|tox\.(ini|toml)|noxfile\.py|\.coveragerc|setup\.cfg|pyproject\.toml"
    r"|package\.json|\.(npm|yarn|mocha|tap|nyc|c8|babel|swc)rc(\.\w+)*|\.pnpmfile\.c?js|\.pnp\..*|mocha\.opts"
    r"|[jt]sconfig(\.[\w.-]+)?\.json|bunfig\.toml|deno\.jsonc?|\.tool-versions|\.\w+-version|\.nvmrc|\.?mise(\.\w+)*\.toml"
    r"|rust-toolchain(\.toml)?|.*\.mk|(nx|turbo|lerna|angular|project)\.json|[Gg](ulp|runt)file(\.\w+)+"
    r"|(jest|vitest|vite|craco|cucumber|karma|ava|nyc|babel|playwright|cypress|wdio|mocha|web-test-runner)(\.\w+)?\.(config|conf|workspace)"
    r"\.\w+|(vitest|vite|jest)\.(setup|workspace)\.\w+|setupTests\.\w+|config-overrides\.js"
    r"|(GNU)?[Mm]akefile|[Jj]ustfile|[Tt]askfile\.ya?ml|Rakefile|\.rspec|(spec|rails|test)_helper\.rb"
    r"|\.gitattributes|junit-platform\.properties|phpunit[\w.-]*\.xml(\.dist)?|pom\.xml|.*\.gradle(\.kts)?|gradle\.properties|gradlew|mvnw|Cargo\.toml"
    r"|\.travis\.ya?ml|\.gitlab-ci\.ya?ml|azure-pipelines\.ya?ml|appveyor\.ya?ml|Jenkinsfile",
)
RUNNER_DIRECTORIES = re.compile(
    r"(^|/)(\.github|\.circleci|\.cargo|\.mvn|\.config|\.yarn|node_modules|buildSrc|rakelib)/(?!.*\.md$)"
)
# A language loads these files before its test runner, or instead of a part of it.
SHADOWING_FILES = re.compile(
    r"(^|/)((site|user)customize(\.[^/]+|/.*)|[^/]+\.(pth|egg-link|py[co])|[^/]+\.(dist|egg)-info/.*)$"
    r"|^(src/)?(_?pytest|pluggy)(\.py$|/)"
    r"|(^|/)minitest/[^/]+_plugin\.rb$|(^|/)META-INF/services/org\.junit[^/]*$"
)
# A directory or file of this name comes before the packages of a test runner for Java, Kotlin, or Ruby.
RUNNER_PACKAGES = re.compile(
    r"(?:.*/)?(?:src/main/\w+/(?:org/(?:junit|hamcrest|assertj|mockito|testng)|junit|kotlin/test)|lib/(?:rspec|minitest))(?=/|\.rb$)"
)
# pytest imports these modules before it opens a test. A file of the same name that is found earlier on the
# import path would replace a module.
RUNNER_MODULES = frozenset(sys.stdlib_module_names) | {
    *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments"),
    *("colorama", "py", "attr", "attrs", "xdist", "execnet"),
    "patchwright_pytest",  # our own plugin, in resolver/suites/reporters
}


def is_test_file(path: str) -> bool:
    """Returns True if the file contains tests according to its path."""
    *directories, name = PurePosixPath(path).parts
    is_named_test = name == "test.py" and not TEST_DIRECTORIES.isdisjoint(directories)
    return (is_named_test or TEST_FILE_NAMES.fullmatch(name) is not None) and not is_runner_config(path)


def is_runner_config(path: str) -> bool:
    """Returns True if a test runner reads the file before it runs any test."""
    return (
        RUNNER_FILES.fullmatch(PurePosixPath(path).name) is not None
        or RUNNER_DIRECTORIES.search(path) is not None
        or SHADOWING_FILES.search(path) is not None
    )


def is_shadowing_runner(path: str, directory: str = "") -> bool:
    """Returns True if this file would replace a module of the standard library or the test runner when Python
    is started in `directory`.
    """
    parts = PurePosixPath(path).relative_to(directory).parts if path.startswith(directory) else ()
    first = parts[1] if len(parts) > 1 and parts[0] == "src" else parts[0] if parts else ""
    return path.endswith((".py", ".so", ".pyd")) and first.partition(".")[0] in RUNNER_MODULES


def is_test_related(path: str) -> bool:
    """Returns True if the file is a test, test data, or test configuration."""
    *directories, name = PurePosixPath(path).parts
    has_test_name = is_runner_config(path) or TEST_FILE_NAMES.fullmatch(name) is not None
    in_tests = any(map(is_test_directory, directories)) or directories[:1] == ["testing"]
    return has_test_name or in_tests


def is_test_directory(name: str) -> bool:
    """Returns True if a directory of this name usually contains tests."""
    return name in TEST_DIRECTORIES or _NAMED_TEST_DIRECTORY.fullmatch(name) is not None
