"""Which files could replace a module of the test runner."""

import re
from importlib.metadata import requires

import pytest

from patchwright.resolver.suites.file_classifier import is_shadowing_runner


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
