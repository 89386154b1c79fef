"""The pytest plugins that a repository's pytest options require."""

import time

import pytest

from patchwright.resolver.preparation.pytest_plugins import find_required_plugins


@pytest.mark.parametrize(
    ("section", "lines", "plugins"),
    [
        ("pytest", "testpaths = tests\naddopts = --cov=pkg --cov-report=html", {"pytest-cov"}),
        (
            "pytest",
            "addopts =\n    --strict-markers\n    -n auto\n  --timeout=5",
            {"pytest-xdist", "pytest-timeout"},
        ),
        ("tool:pytest", "addopts = -n4 --no-cov\n[flake8]\nx = --mpl", {"pytest-xdist", "pytest-cov"}),
        ("tool.pytest.ini_options", 'addopts = [\n  "-ra",\n  "--cov",\n]', {"pytest-cov"}),
        ("tool.pytest.ini_options", 'asyncio_mode = "auto"', {"pytest-asyncio"}),
        ("tool.pytest", 'addopts = ["--reruns=2"]', {"pytest-rerunfailures"}),
        ("pytest", "DJANGO_SETTINGS_MODULE = a.b", {"pytest-django"}),
        ("pytest", "addopts = -ra --strict-config --doctest-modules --cover", set()),
        ("testenv", "commands = pytest --cov\naddopts = --cov", set()),
    ],
)
def test_pytest_options_require_their_plugins(section: str, lines: str, plugins: set[str]) -> None:
    assert find_required_plugins(f"[other]\ntimeout = 3\n[{section}]\n{lines}\n") == plugins


def test_a_long_configuration_is_parsed_fast() -> None:
    start = time.process_time()
    find_required_plugins("[pytest]\n" * 20_000 + "addopts = " + "-n " * 100_000 + "\n  [" * 50_000)
    assert time.process_time() - start < 5
