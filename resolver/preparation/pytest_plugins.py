"""Finds the pytest plugins that a repository's own pytest options require. Without these plugins, pytest
stops before the first test.
"""

import re

CONFIG_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")

# Matches `addopts` on one line, on indented lines, or as a TOML list.
ADDOPTS = re.compile(r"^[ \t]*addopts[ \t]*=[ \t]*(\[[^\]]*\]|.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
PLUGIN_BY_OPTION = {
    r"--(no-)?cov\b": "pytest-cov",
    r"-n[ =\d]*(\d|auto|logical)\b|--(dist|numprocesses|maxprocesses)\b": "pytest-xdist",
    r"--timeout\b": "pytest-timeout",
    r"--reruns\b": "pytest-rerunfailures",
    r"--benchmark-": "pytest-benchmark",
    r"--asyncio-mode\b": "pytest-asyncio",
    r"--random-order\b": "pytest-random-order",
    r"--doctest-(plus|rst)\b": "pytest-doctestplus",
    r"--mpl\b": "pytest-mpl",
    r"--ds\b|--(reuse|create|no-migrations)-?db\b": "pytest-django",
    r"--html\b": "pytest-html",
    r"--instafail\b": "pytest-instafail",
    r"--forked\b": "pytest-forked",
}
PLUGIN_BY_SETTING = {
    r"^[ \t]*asyncio_mode[ \t]*=": "pytest-asyncio",
    r"^[ \t]*DJANGO_SETTINGS_MODULE[ \t]*=": "pytest-django",
    r"^[ \t]*timeout[ \t]*=": "pytest-timeout",
}
PYTEST_SECTION = re.compile(
    r"^\[(?:pytest|tool:pytest|tool\.pytest(?:\.ini_options)?)\][ \t]*\n(.*?)(?=^\[[A-Za-z]|\Z)",
    re.MULTILINE | re.DOTALL,
)


def find_required_plugins(configuration: str) -> set[str]:
    """Returns the package names of the plugins. `configuration` is the text of a file that may contain pytest
    options.
    """
    addopts = "\n".join(PYTEST_SECTION.findall(configuration))
    options = " ".join(ADDOPTS.findall(addopts))
    by_option = {
        name for pattern, name in PLUGIN_BY_OPTION.items() if re.search(rf"(?<![\w-])(?:{pattern})", options)
    }
    return by_option | {
        name for pattern, name in PLUGIN_BY_SETTING.items() if re.search(pattern, addopts, re.MULTILINE)
    }
