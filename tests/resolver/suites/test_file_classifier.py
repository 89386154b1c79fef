"""Which files are tests or their configuration, and which could replace a module of the test runner."""

import re
from importlib.metadata import requires

import pytest

from patchwright.resolver.suites.file_classifier import (
    is_runner_config,
    is_shadowing_runner,
    is_test_related,
)


def test_a_file_named_like_a_package_that_pytest_requires_would_replace_it() -> None:
    needed = [
        re.split(r"[^\w.-]", line)[0].lower() for line in requires("pytest") or () if "extra ==" not in line
    ]
    assert {"pluggy", "iniconfig"} <= set(needed)  # the control
    assert [
        name for name in (*needed, "pytest", "_pytest", "json") if not is_shadowing_runner(f"{name}.py")
    ] == []


@pytest.mark.parametrize("path", ["exceptiongroup/__init__.py", "src/tomli.py", "json.so"])
def test_packages_a_source_directory_and_compiled_modules_count(path: str) -> None:
    assert is_shadowing_runner(path)


@pytest.mark.parametrize("path", ["calc.py", "pluggy.txt", "vendor/pluggy.py"])
def test_other_files_do_not_count(path: str) -> None:
    assert not is_shadowing_runner(path)


@pytest.mark.parametrize(
    "path",
    ["src/setupTests.ts", "craco.config.js", "config-overrides.js", "cucumber.config.mjs", "gradle/tests.gradle.kts",
     "buildSrc/src/main/kotlin/Tests.kt", "rakelib/test.rake", "lib/minitest/calc_plugin.rb", "a/.gitattributes",
     "src/main/resources/META-INF/services/org.junit.platform.launcher.TestExecutionListener"],
)  # fmt: skip
def test_a_file_that_a_runner_loads_by_its_name_is_configuration(path: str) -> None:
    assert is_runner_config(path)


@pytest.mark.parametrize("directory", ["unit_tests", "a/integration-test", "apitests", "Tests"])
def test_a_directory_named_after_a_kind_of_tests_belongs_to_them(directory: str) -> None:
    assert is_test_related(f"{directory}/helper.py")


@pytest.mark.parametrize("directory", ["lab_tests", "contests", "unittest", "latest"])
def test_a_directory_of_the_product_does_not_belong_to_the_tests(directory: str) -> None:
    assert not is_test_related(f"{directory}/models.py")
