"""Packages that the tests need and no setup command has installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.resolver.preparation.missing_packages import (
    CHECK_OPTIONS,
    find_check,
    find_missing_packages,
)
from patchwright.resolver.suites.suite import Suite, Suites

PYTEST = Suite(
    command="PYTHONPATH=src python3 -m pytest tests", runner="pytest", command_reason="It is configured."
)
UNITTEST = Suite(command="python3 -m unittest", runner="unittest", command_reason="Found.", directory="lib")


def check_tree(tree: Path, files: dict[str, str]) -> str:
    """Runs pytest as the setup does, without any plugin, and returns its output."""
    for path, content in files.items():
        (tree / path).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "pytest"],
        cwd=tree,
        env={**os.environ, "PYTEST_ADDOPTS": CHECK_OPTIONS, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "packages"),
    [
        (
            {"test_a.py": "import named_in_tox, no_package\n", "test_b.py": "import parameterized.x\n"},
            {"named_in_tox", "parameterized"},
        ),
        ({"conftest.py": "import named_in_tox\n", "test_a.py": ""}, {"named_in_tox"}),
        (
            {"test_a.py": "def test_a(unheard_of): pass\ndef test_b(mocker): pass\ndef test_c(fs): pass\n"},
            {"pytest-mock", "pyfakefs"},
        ),
        (
            {"test_a.py": "import pytest\n@pytest.mark.asyncio\nasync def test_a(): pass\n"},
            {"pytest-asyncio"},
        ),
        (
            {
                "pytest.ini": "[pytest]\naddopts = --strict-markers -x\n",
                "test_a.py": "import named_in_tox",
                "test_b.py": "import pytest\n@pytest.mark.timeout(1)\ndef test_a(): pass\n",
            },
            {"named_in_tox", "pytest-timeout"},
        ),
        (
            {"pytest.ini": "[pytest]\naddopts = --cov=x -n 2 --mpl-x\n", "test_a.py": ""},
            {"pytest-cov", "pytest-xdist", "pytest-mpl"},
        ),
        (
            {"pytest.ini": "[pytest]\nasyncio_mode = auto\n", "test_a.py": "def test_a(): pass\n"},
            {"pytest-asyncio"},
        ),
        (
            {"pytest.ini": "[pytest]\nrequired_plugins = named-in-tox unnamed\n", "test_a.py": ""},
            {"named-in-tox"},
        ),
        ({"pytest.ini": "[pytest]\naddopts = -p named_in_tox\n", "test_a.py": ""}, {"named_in_tox"}),
        ({"test_a.py": "def test_a(tmp_path): raise SystemExit('a test runs')\n"}, set()),
    ],
)
def test_what_pytest_itself_misses_is_installed(
    files: dict[str, str], packages: set[str], tmp_path: Path
) -> None:
    check = find_check(Suites(all=(PYTEST,)), tuple(files), ("deps =\n  Named.In_Tox>=1\n",))
    assert set(find_missing_packages(check_tree(tmp_path, files), check)) == packages


def test_only_declared_and_known_packages_are_installed() -> None:
    """A module of the repository itself is never taken for a package of the same name."""
    output = "E   ModuleNotFoundError: No module named '{}'"
    check = find_check(
        Suites(), ("src/helpers/a.py", "tools.py"), ("requests git helpers tools Some-Package",)
    )
    names = ("requests", "helpers", "tools", "some_package", "reqeusts", "os", "yaml", "git")
    found = {name: find_missing_packages(output.format(name), check) for name in names}
    assert found == {
        "requests": ("requests",),
        "helpers": (),
        "tools": (),
        "some_package": ("some_package",),
        "reqeusts": (),
        "os": (),
        "yaml": ("PyYAML",),
        "git": ("GitPython",),
    }


def test_an_older_release_is_installed_if_a_newer_one_broke_the_project() -> None:
    output = """ImportError: Error importing plugin "a": cannot import name 'contextfunction' from 'jinja2' (/b.py)
E   AttributeError: module 'numpy' has no attribute 'float'.
E   ImportError: cannot import name 'missing' from 'jinja2' (/b.py)
"""
    assert find_missing_packages(output, find_check(Suites(), (), ())) == ("jinja2<3.1", "numpy<1.24")


def test_pytest_checks_the_suites_of_pytest_and_unittest() -> None:
    go = PYTEST.model_copy(update={"runner": "go"})
    assert find_check(Suites(all=(PYTEST, UNITTEST, go)), (), ()).commands == (
        "PYTHONPATH=src python3 -m pytest tests",
        "cd lib && python3 -m pytest",
    )
