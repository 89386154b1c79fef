"""Modules that pytest loads before the tests, and modules that replace installed ones."""

import pytest

from patchwright.resolver.git.workspaces import ABSENT, FileChange
from patchwright.resolver.proof.python_modules import find_plugin_modules, find_shadowing_modules
from tests.resolver.patch_verifier import PYTEST

pytestmark = pytest.mark.real_start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "changed", "expected"),
    [
        ({"pytest.ini": "[pytest]\naddopts = -q -p tools.hooks\n"}, "tools/hooks.py", True),
        ({"pytest.ini": "[pytest]\naddopts = -ptools.hooks\n"}, "tools/hooks/__init__.py", True),
        ({"pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-p", "hooks"]\n'}, "src/hooks.py", True),
        ({"conftest.py": "pytest_plugins = ('tools.a', \"tools.hooks\",)\n"}, "tools/hooks.py", True),
        ({"tests/test_a.py": "pytest_plugins: str = 'hooks'\n"}, "hooks.py", True),
        ({"pytest.ini": "[pytest]\naddopts = -p no:tools.hooks\n"}, "tools/hooks.py", False),
        ({"conftest.py": "pytest_plugins = ['tools.hooks']\n"}, "tools/other.py", False),
    ],
)
async def test_plugins_of_the_configuration_are_found(
    open_verifier, base, changed: str, expected: bool
) -> None:
    async with open_verifier(base) as verifier:
        found = await find_plugin_modules(verifier.workspace, frozenset({changed}), PYTEST)
    assert found == (frozenset({changed}) if expected else frozenset())


async def test_a_new_module_that_is_installed_replaces_it(open_verifier) -> None:
    paths = (
        "pydantic/__init__.py",
        "src/iniconfig.py",
        "lib/pluggy.py",
        "quite_new.py",
        "calc/json.py",
        "other.txt",
    )
    changes = tuple(
        FileChange(path=path, mode="100644", old_mode=ABSENT, size=1, old_size=0) for path in paths
    )
    base = {"calc/__init__.py": "", "pytest.ini": "[pytest]\npythonpath = lib\n", "lib/a.txt": ""}
    async with open_verifier(base) as verifier:
        found = await find_shadowing_modules(
            verifier.workspace, changes, (PYTEST,), verifier.sandboxes, "run"
        )
    assert found == frozenset(paths[:3])
