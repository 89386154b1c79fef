"""The plugins of pytest that a repository's own options ask for: without them pytest ends before any test."""

import re

CONFIGURATIONS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")

# `addopts`, on one line, on indented ones, or as a list of TOML.
OPTIONS = re.compile(r"^[ \t]*addopts[ \t]*=[ \t]*(\[[^\]]*\]|.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
PLUGINS = {
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
SETTINGS = {
    r"^[ \t]*asyncio_mode[ \t]*=": "pytest-asyncio",
    r"^[ \t]*DJANGO_SETTINGS_MODULE[ \t]*=": "pytest-django",
    r"^[ \t]*timeout[ \t]*=": "pytest-timeout",
}
SECTION = re.compile(
    r"^\[(?:pytest|tool:pytest|tool\.pytest(?:\.ini_options)?)\][ \t]*\n(.*?)(?=^\[[A-Za-z]|\Z)",
    re.MULTILINE | re.DOTALL,
)


def plugins_wanted(configuration: str) -> set[str]:
    """Names on the package index, for the text of one file that may hold options of pytest."""
    said = "\n".join(SECTION.findall(configuration))
    options = " ".join(OPTIONS.findall(said))
    by_option = {name for pattern, name in PLUGINS.items() if re.search(rf"(?<![\w-])(?:{pattern})", options)}
    return by_option | {name for pattern, name in SETTINGS.items() if re.search(pattern, said, re.MULTILINE)}
