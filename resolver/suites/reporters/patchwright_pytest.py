"""A pytest plugin that lets all tests run, once and in their own order, whatever options the repository sets.

It turns off options that stop a run early, choose tests by earlier results, shuffle or distribute tests, or
measure coverage. It removes options of plugins that are not installed, and writes one line about each of them
to the file `ignored_options` next to this one. It marks tests in the JUnit report that passed although a
failure was expected, and tests that ran more than once.

The module runs in the sandbox with the repository's Python (3.8 or later) and pytest (5 or later). A pytest that
a test starts does not load it.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
from _pytest.monkeypatch import MonkeyPatch

OPTIONS = {
    "maxfail": 0,  # -x, --exitfirst
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "numprocesses": 0,  # pytest-xdist
    "dist": "no",
    "distload": False,
    "tx": [],
    "randomly_reorganize": False,  # pytest-randomly
    "random_order_enabled": False,  # pytest-random-order
    "random_order_bucket": "none",
}
"""Options that other plugins may define, and the values that make them do nothing."""
ALWAYS_WITH_VALUE = ("--cov", "--cov-config")  # The next word is their value, even if it is an existing path.


def write_ignored(lines: list[str]) -> None:
    if lines:
        with open(os.path.join(os.path.dirname(__file__), "ignored_options"), "a", encoding="utf-8") as file:
            file.writelines(" ".join(line.split()) + "\n" for line in lines)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: Any, parser: Any, args: list[str]) -> Any:
    if hasattr(early_config.known_args_namespace, "cov_source"):
        early_config.known_args_namespace.cov_source = []  # pytest-cov then does not start
    yield  # conftest.py files may define options
    write_ignored(remove_unknown_options(early_config, parser, args))


def remove_unknown_options(config: Any, parser: Any, args: list[str]) -> list[str]:
    """Removes the options that no plugin defines from `args`, together with their values. Returns them."""
    try:
        _, unknown = parser.parse_known_and_unknown_args(args, namespace=copy.copy(config.option))
    except pytest.UsageError:  # pytest itself reports invalid values
        return []
    removed = []
    for option in unknown:
        if not option.startswith("-") or option not in args:
            continue
        index = args.index(option)
        words = [args.pop(index)]
        value = args[index] if index < len(args) else "-"
        is_path = os.path.exists(value.split("::")[0])
        if "=" not in option and not value.startswith("-") and (option in ALWAYS_WITH_VALUE or not is_path):
            words.append(args.pop(index))
        removed.append(" ".join(words))
    return removed


def get_unknown_settings(config: Any) -> list[str]:
    """Returns the settings of pytest's configuration file that no plugin defines. Returns an empty list unless
    `--strict-config` can be turned off here, which is possible in pytest 6 to 8.
    """
    is_strict = getattr(config.known_args_namespace, "strict_config", False)
    if not is_strict or not 6 <= int(pytest.__version__.split(".")[0]) <= 8:
        return []
    return sorted(config._get_unknown_ini_keys())


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Any:
    for name, value in OPTIONS.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    if getattr(config.option, "randomly_seed", 1) in ("default", "last"):
        config.option.randomly_seed = 1
    if settings := get_unknown_settings(config):
        config.known_args_namespace.strict_config = False
        write_ignored([f"--strict-config ({', '.join(settings)})"])
    MonkeyPatch().delenv(
        "PYTEST_ADDOPTS", raising=False
    )  # A pytest that a test starts must not write this report, too.
    yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    if call.when == "teardown" and getattr(item, "execution_count", 1) > 1:
        item.user_properties.append(("patchwright_retries", item.execution_count - 1))
    outcome = yield
    report = outcome.get_result()
    if call.when == "call" and report.passed and hasattr(report, "wasxfail"):
        item.user_properties.append(("patchwright_outcome", "xpassed"))
