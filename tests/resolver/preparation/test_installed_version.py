"""A new version of the project gets into the installed metadata, for the runs with the patch."""

import sys
from pathlib import Path

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.preparation.installed_version import find_version_change
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.sandbox import LayerNote, LayerSetup
from tests.resolver.git_repository import HOST_ENVIRONMENT, Repository, make_patch
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, PatchVerifier

PYPROJECT = '[project]\nname = "calc"\nversion = "{}"\n'
VERSION_TEST = (
    "import importlib.metadata\n\nimport calc\n\n\n"
    "def test_version():\n    assert importlib.metadata.version('calc-metadata') == calc.__version__\n"
)


def versioned(code: str, version: str) -> str:
    return f"{code}\n\n__version__ = '{version}'\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"pyproject.toml": PYPROJECT.format("1.0")}, {"pyproject.toml": PYPROJECT.format("1.1rc1")}, "1.1rc1"),
        ({"setup.py": "setup(\n    version='1.0',\n)\n"}, {"setup.py": "setup(\n    version='2.0',\n)\n"}, "2.0"),
        ({"setup.cfg": "[metadata]\nversion = 1.0\n"}, {"setup.cfg": "[metadata]\nversion = 1.0.post1\n"}, "1.0.post1"),
        ({"src/calc/_version.py": "version = '1.0'\n"}, {"src/calc/_version.py": "version = '1.1'\n"}, "1.1"),
        ({"VERSION": "1.0\n"}, {"VERSION": "1.1\n"}, "1.1"),
        ({"a/__init__.py": "__version__ = '1.0'\n"}, {"a/__init__.py": "__version__ = input()\n"}, None),
        ({"a/__init__.py": "__version__ = '1.0'\n"}, {"a/__init__.py": "__version__ = '1.1\\nX: y'\n"}, None),
        ({"setup.py": "version='1.0'", "VERSION": "1.0"}, {"setup.py": "version='1.1'", "VERSION": "1.2"}, None),
        ({"requirements.txt": "1.0\n"}, {"requirements.txt": "1.1\n"}, None),
        ({}, {"VERSION": "1.1\n"}, None),
    ],
)  # fmt: skip
async def test_a_new_version_is_read_as_text(
    old: dict[str, str],
    new: dict[str, str | None],
    expected: str | None,
    repository: Repository,
    workspaces: WorkspaceFactory,
    sandboxes: LocalSandboxes,
) -> None:
    repository.commit({"calc.py": BUG, **old})
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, new)
        found = await find_version_change(workspace, patch, await workspace.list_changes(patch))
    assert found == (expected and ("1.0", expected))


class InstalledSandboxes(LocalSandboxes):
    """Local sandboxes with an environment in which version 1.0 of the project is installed from its source."""

    def __init__(self, parent: Path, environment: Path) -> None:
        self.environment = environment
        program = environment / "bin" / "python3"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{environment}:$PYTHONPATH" exec {sys.executable} "$@"\n')
        program.chmod(0o755)
        super().__init__(parent, {**HOST_ENVIRONMENT, "PATH": f"{program.parent}:{HOST_ENVIRONMENT['PATH']}"})
        metadata = environment / "calc_metadata-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: calc-metadata\nVersion: 1.0\n")
        names = ("METADATA", "direct_url.json", "RECORD")
        (metadata / "RECORD").write_text("".join(f"{metadata.name}/{name},,\n" for name in names))
        self.url = metadata / "direct_url.json"

    async def with_layer(
        self, name: str, repository: str, key: str, setup: LayerSetup
    ) -> tuple[LocalSandboxes, LayerNote]:
        """Runs the setup with an environment of its own."""
        layer = InstalledSandboxes(self._parent, self.environment.with_name("layer"))
        async with layer.open(name) as sandbox:
            layer.url.write_text(f'{{"url": "file://{sandbox.root}", "dir_info": {{"editable": true}}}}')
            return layer, await setup(sandbox)


@pytest.fixture
def installed(tmp_path: Path) -> InstalledSandboxes:
    (tmp_path / "sandboxes").mkdir()
    return InstalledSandboxes(tmp_path / "sandboxes", tmp_path / "environment")


BASE = {
    "calc.py": versioned(BUG, "1.0"),
    "pyproject.toml": PYPROJECT.format("1.0"),
    "tests/test_calc.py": FAILING,
    "tests/test_version.py": VERSION_TEST,
}
NEW = {"calc.py": versioned(FIXED, "1.1"), "pyproject.toml": PYPROJECT.format("1.1")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patch", "base", "kind", "conditions"),
    [
        (NEW, {}, "conditional", 1),
        ({"calc.py": FIXED + "\n\n__version__ = '1.0'\n"}, {}, "fixed", 0),
        # The code has another version than the manifest.
        (NEW | {"calc.py": versioned(FIXED, "1.2")}, {}, "regressed", 0),
        # The test that seems to show the fix passes only because of the new version.
        (
            NEW | {"calc.py": versioned(BUG, "1.1")},
            {
                "tests/test_calc.py": FAILING.replace(
                    "assert add", "assert version('calc-metadata') > '1' and add"
                )
                .replace("from calc", "from importlib.metadata import version\n\nfrom calc")
                .replace("add(1, 2) == 3", "version('calc-metadata') == '1.1'")
            },
            "unproven",
            1,
        ),
        # The metadata of other packages stays as it is.
        (NEW, {"tests/test_other.py": VERSION_TEST.replace("calc-metadata", "pytest")}, "conditional", 1),
    ],
    ids=["honest", "same version", "another version", "only the version", "another package"],
)
async def test_a_test_of_the_installed_version_is_no_regression(
    patch: dict[str, str | None],
    base: dict[str, str],
    kind: str,
    conditions: int,
    repository: Repository,
    workspaces: WorkspaceFactory,
    installed: InstalledSandboxes,
) -> None:
    repository.commit({**BASE, **base})
    async with workspaces.local(repository.path) as workspace:
        verdict = await PatchVerifier(workspace, installed).verdict(patch)
    assert (verdict.kind, len(verdict.conditions)) == (kind, conditions), verdict
    if kind == "conditional":
        assert verdict.conditions[0].sentence == (
            "`test_version` passes with `1.1` as the installed version; with `1.0`, it fails."
        )
