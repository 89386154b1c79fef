"""Finds packages that the tests need and that the setup has not installed, from pytest's own output.

Import names and package names differ, and a package with a misspelled or internal name may be malicious. So a package
is only installed if a file of the repository that describes dependencies names it, or if it is in a list of this
module.
"""

import re
from collections.abc import Iterator

from patchwright.resolver.suites.suite import Suite, Suites, command_from_root
from patchwright.runtime.frozen_model import FrozenModel

# Collects all tests and looks up their fixtures, but runs neither. Later options override the repository's `-x`.
CHECK_OPTIONS = "--setup-plan --continue-on-collection-errors --maxfail=0 -p no:cacheprovider -q --color=no"
MAX_CHECKED_SUITES = 3
MAX_OUTPUT = 500_000  # characters of pytest's output; the errors are at the end
MAX_PACKAGES = 20  # packages that are installed at once

PACKAGE_BY_MODULE = {
    "OpenSSL": "pyOpenSSL",
    "PIL": "Pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "freezegun": "freezegun",
    "git": "GitPython",  # files that describe dependencies often contain the word `git`
    "hypothesis": "hypothesis",
    "jwt": "PyJWT",
    "mock": "mock",
    "parameterized": "parameterized",
    "pkg_resources": "setuptools<81",  # later versions do not contain the module
    "pretend": "pretend",
    "requests_mock": "requests-mock",
    "responses": "responses",
    "roman": "roman",
    "setuptools": "setuptools",
    "six": "six",
    "sybil": "sybil",
    "testfixtures": "testfixtures",
    "yaml": "PyYAML",
}
PACKAGE_BY_OPTION = {
    r"--(no-)?cov\b": "pytest-cov",
    r"-n\b|--(dist|numprocesses|maxprocesses)\b": "pytest-xdist",
    r"--timeout\b": "pytest-timeout",
    r"--reruns\b": "pytest-rerunfailures",
    r"--benchmark-": "pytest-benchmark",
    r"--asyncio-mode\b": "pytest-asyncio",
    r"--random-order\b": "pytest-random-order",
    r"--randomly-": "pytest-randomly",
    r"--doctest-(plus|rst)\b": "pytest-doctestplus",
    r"--mpl\b": "pytest-mpl",
    r"--ds\b|--(reuse|create|no-migrations)-?db\b": "pytest-django",
    r"--html\b": "pytest-html",
    r"--instafail\b": "pytest-instafail",
    r"--forked\b": "pytest-forked",
    r"--(disable|allow)-(socket|hosts)\b": "pytest-socket",
    r"--snapshot-": "syrupy",
    r"--mypy-": "pytest-mypy-plugins",
    r"--flake8\b": "pytest-flake8",
    r"--testmon\b": "pytest-testmon",
}
PACKAGE_BY_SETTING = {
    "asyncio_mode": "pytest-asyncio",
    "asyncio_default_fixture_loop_scope": "pytest-asyncio",
    "DJANGO_SETTINGS_MODULE": "pytest-django",
    "timeout": "pytest-timeout",
    "timeout_method": "pytest-timeout",
    "env": "pytest-env",
    "mock_use_standalone_module": "pytest-mock",
}
PACKAGE_BY_MARK = {
    "anyio": "anyio",
    "asyncio": "pytest-asyncio",
    "benchmark": "pytest-benchmark",
    "django_db": "pytest-django",
    "flaky": "pytest-rerunfailures",
    "freeze_time": "pytest-freezer",
    "timeout": "pytest-timeout",
    "trio": "pytest-trio",
    "xdist_group": "pytest-xdist",
}
PACKAGE_BY_FIXTURE = {
    "aiohttp_client": "pytest-aiohttp",
    "benchmark": "pytest-benchmark",
    "data_regression": "pytest-regressions",
    "datadir": "pytest-datadir",
    "db": "pytest-django",
    "event_loop": "pytest-asyncio",
    "faker": "Faker",
    "file_regression": "pytest-regressions",
    "freezer": "pytest-freezer",
    "fs": "pyfakefs",
    "httpbin": "pytest-httpbin",
    "httpserver": "pytest-httpserver",
    "httpx_mock": "pytest-httpx",
    "mocker": "pytest-mock",
    "nursery": "pytest-trio",
    "qtbot": "pytest-qt",
    "requests_mock": "requests-mock",
    "respx_mock": "respx",
    "script_runner": "pytest-console-scripts",
    "shared_datadir": "pytest-datadir",
    "snapshot": "syrupy",
    "time_machine": "time-machine",
}

# Errors in old projects that do not limit the version of a package, and the releases before the one that broke them.
OLDER_PACKAGE_BY_ERROR = {
    r"cannot import name '((eval)?context\w+|environment\w+|Markup|escape)' from 'jinja2'": "jinja2<3.1",
    r"cannot import name 'soft_unicode' from 'markupsafe'": "markupsafe<2.1",
    r"cannot import name 'url_(quote|unquote|encode|decode|parse)' from 'werkzeug.urls'": "werkzeug<3",
    r"cannot import name 'json' from 'itsdangerous'": "itsdangerous<2.1",
    r"module 'numpy' has no attribute '(bool|int|float|object|complex|str)'": "numpy<1.24",
    r"`np\.\w+` was removed in the NumPy 2\.0 release": "numpy<2",
}

_MODULE = re.compile(r"No module named '?(\w+)")
_OPTIONS = re.compile(r"error: unrecognized arguments: (.*)")
_SETTING = re.compile(r"Unknown config option: (\w+)")
_MARK = re.compile(r"Unknown pytest\.mark\.(\w+)|'(\w+)' not found in `markers`")
_FIXTURE = re.compile(r"fixture '(\w+)' not found")
_PLUGINS = re.compile(r"Missing required plugins: (.*)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


class TestCheck(FrozenModel):
    """A check for missing packages, which the setup makes after its commands."""

    __test__ = False  # pytest must not collect this class

    commands: tuple[str, ...] = ()
    """Shell commands that start pytest on the repository's tests, with CHECK_OPTIONS in PYTEST_ADDOPTS."""
    declared: frozenset[str] = frozenset()
    """Normalized names of all packages that the repository's files may name."""
    own_modules: frozenset[str] = frozenset()
    """Names of the repository's own directories and modules. They are never packages to install."""


def find_check(suites: Suites, files: tuple[str, ...], dependency_texts: tuple[str, ...]) -> TestCheck:
    """Returns the check for a repository with these files. `dependency_texts` are the contents of the files that
    describe dependencies.
    """
    words = (word for text in dependency_texts for word in _NAME.findall(text))
    parts = (part.removesuffix(".py") for path in files if path.endswith(".py") for part in path.split("/"))
    return TestCheck(
        commands=tuple(
            command_from_root(suite.directory, _pytest_command(suite))
            for suite in suites.all
            if suite.runner in ("pytest", "unittest")
        )[:MAX_CHECKED_SUITES],
        declared=frozenset(map(_normalize, words)),
        own_modules=frozenset(parts),
    )


def find_missing_packages(output: str, check: TestCheck) -> tuple[str, ...]:
    """Returns the packages that pytest's output misses and that may be installed, as pip's requirements."""
    found = dict.fromkeys(_missing_packages(output[-MAX_OUTPUT:], check))
    return tuple(found)[:MAX_PACKAGES]


def _missing_packages(output: str, check: TestCheck) -> Iterator[str]:
    for module in _MODULE.findall(output):
        if module in PACKAGE_BY_MODULE:
            yield PACKAGE_BY_MODULE[module]
        elif module not in check.own_modules and _normalize(module) in check.declared:
            yield module
    for error, package in OLDER_PACKAGE_BY_ERROR.items():
        if re.search(error, output):
            yield package
    for options in _OPTIONS.findall(output):
        for option, package in PACKAGE_BY_OPTION.items():
            if re.search(rf"(?<![\w-])(?:{option})", options):
                yield package
    for pattern, packages in (
        (_SETTING, PACKAGE_BY_SETTING),
        (_MARK, PACKAGE_BY_MARK),
        (_FIXTURE, PACKAGE_BY_FIXTURE),
    ):
        for match in pattern.finditer(output):
            if package_name := packages.get(match[match.lastindex or 0]):
                yield package_name
    for plugins in _PLUGINS.findall(output):
        yield from (name for name in map(_normalize, _NAME.findall(plugins)) if name in check.declared)


def _pytest_command(suite: Suite) -> str:
    """Returns a command that starts pytest. pytest also collects the tests of unittest."""
    if suite.runner == "pytest":
        return suite.command
    import_path = re.match(r"(?:PYTHONPATH=\S+ )?", suite.command)
    return f"{import_path[0] if import_path else ''}python3 -m pytest"


def _normalize(name: str) -> str:
    """Returns the name of a package in the form in which equal names are equal.

    Source: packaging.python.org/specifications/name-normalization
    """
    return re.sub(r"[-_.]+", "-", name).lower().rstrip("-")
