"""Changes to the test configuration, which verification replaces with the base commit's version."""

import pytest

from patchwright.resolver.proof.runner_config import find_reverted_test_config
from tests.resolver.patch_verifier import PYTEST, VerifierFactory

pytestmark = [pytest.mark.real_start, pytest.mark.slow]

PYPROJECT = '[project]\nname = "a"\n[tool.pytest.ini_options]\naddopts = ""\n'
SETUP_CFG = "[metadata]\nname = a\n[options.extras_require]\nb = c\n[tool:pytest]\naddopts =\n"
PACKAGE_JSON = '{"name": "a", "dependencies": {}, "scripts": {"test": "node --test"}}'


@pytest.mark.parametrize(
    ("path", "old", "new", "is_reverted"),
    [
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace('name = "a"', 'name = "b"'), False),
        ("pyproject.toml", PYPROJECT, PYPROJECT + "[build-system]\n[dependency-groups]\n", False),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace('addopts = ""', 'addopts = "-x"'), True),
        ("pyproject.toml", PYPROJECT, "[", True),
        ("pyproject.toml", "[", "[[", True),
        ("pyproject.toml", PYPROJECT, None, True),
        ("pyproject.toml", None, '[project]\nname = "b"\n', True),
        ("setup.cfg", SETUP_CFG, SETUP_CFG.replace("name = a", "name = b").replace("b = c", "b = d"), False),
        ("setup.cfg", SETUP_CFG, SETUP_CFG.replace("addopts =", "addopts = -x"), True),
        ("setup.cfg", "x", "y", True),
        ("package.json", PACKAGE_JSON, PACKAGE_JSON.replace("{}", '{"b": "1"}'), False),
        ("package.json", PACKAGE_JSON, PACKAGE_JSON.replace("node --test", "true"), True),
        ("package.json", "", "x", True),
        ("a/tox.ini", "[tox]\n", "[tox]\nx = 1\n", True),
        ("calc.py", "a = 1\n", "a = 2\n", False),
        ("pytest.py", None, "a = 2\n", True),
        ("pytest.py", "a = 1\n", None, True),
        ("json.py", None, "a = 2\n", True),  # pytest would import it instead of its own module
        ("json.py", "a = 1\n", "a = 2\n", False),
    ],
)
async def test_changes_to_the_test_configuration_are_reverted(
    open_verifier: VerifierFactory, path: str, old: str | None, new: str | None, is_reverted: bool
) -> None:
    async with open_verifier({"README.md": "", **({path: old} if old is not None else {})}) as verifier:
        patch = await verifier.patch({path: new, "other.txt": "x"})
        changes = await verifier.workspace.list_changes(patch)
        found = await find_reverted_test_config(verifier.workspace, patch, changes, (PYTEST,))
    assert found == (frozenset({path}) if is_reverted else frozenset())
