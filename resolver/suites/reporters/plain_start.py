"""Starts pytest so that the code under test cannot easily tell that it is being tested.

The name of the program is neutral, the usual variables of the environment are not set, and code of the repository
does not find pytest among the loaded modules. A test still sees pytest. The module runs in the sandbox with the
repository's Python (3.8 or later). Its arguments are pytest's.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

TELLTALE_VARIABLES = re.compile(
    r"CI|CONTINUOUS_INTEGRATION|(?:PYTEST|PATCHWRIGHT|TOX|NOX|GITHUB|COVERAGE)_?\w*"
)
TELLTALE_MODULES = re.compile(r"pytest|^(?:pluggy|iniconfig|xdist)\b")
TEST_PATHS = re.compile(r"(?:^|[/\\])(?:tests?|conftest\.py|test_[^/\\]*|[^/\\]*_tests?\.py)(?:[/\\]|$)")
ROOT = os.getcwd() + os.sep


class PlainModules(MutableMapping):  # type: ignore[type-arg]
    """The loaded modules. Code of the product sees only those that it would see without a test runner."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> Any:
        if self._is_hidden(name):
            raise KeyError(name)
        return self._modules[name]

    def __setitem__(self, name: str, module: Any) -> None:
        self._modules[name] = module

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in list(self._modules) if not self._is_hidden(name)])

    def __len__(self) -> int:
        return len(self._modules)

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def _is_hidden(self, name: object) -> bool:
        if not isinstance(name, str) or not TELLTALE_MODULES.search(name):
            return False
        frame = sys._getframe(2)
        while frame.f_back and frame.f_code.co_filename in (__file__, MAPPING_FILE):
            frame = frame.f_back
        file = frame.f_code.co_filename
        return (
            file.startswith(ROOT) and "site-packages" not in file and not TEST_PATHS.search(file[len(ROOT) :])
        )


MAPPING_FILE = MutableMapping.get.__code__.co_filename


def main() -> int:
    arguments = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *sys.argv[1:]]
    import _pytest.runner
    import pytest

    def remove_variables(*_: Any) -> None:
        for name in [name for name in os.environ if TELLTALE_VARIABLES.fullmatch(name)]:
            del os.environ[name]

    class PlainEnvironment:
        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(self) -> None:
            remove_variables()

    sys.argv = [sys.argv[0]]
    _pytest.runner._update_current_test_var = remove_variables  # type: ignore[assignment]
    sys.modules = PlainModules(sys.modules)  # type: ignore[assignment]
    return int(pytest.main(arguments, plugins=[PlainEnvironment()]))


if __name__ == "__main__":
    sys.path[0:1] = [os.getcwd()]  # as with `python -m pytest`
    sys.exit(main())
