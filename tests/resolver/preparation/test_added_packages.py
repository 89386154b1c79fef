"""The packages that a patch adds are installed for the runs with the patch, and are a condition of the verdict."""

import json
import shutil
from pathlib import Path

import pytest

from patchwright.resolver.domain import Patch, TestRun
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.preparation.added_packages import find_added_packages, install_added_packages
from patchwright.resolver.proof.evidence import Evidence, TestEdits
from patchwright.resolver.proof.verdict import decide_verdict
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.sandbox import LayerNote, LayerSetup
from tests.resolver.git_repository import HOST_ENVIRONMENT, Repository, make_patch
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, PatchVerifier

NPM = "npm install --no-save --no-package-lock --no-audit --no-fund --ignore-scripts"
PIP = "python3 -m pip install --quiet --only-binary :all:"


def package(**tables: object) -> str:
    return json.dumps({"name": "x", **tables})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "old", "new", "command"),
    [
        (
            "package.json",
            package(dependencies={"a": "1"}, devDependencies={"t": "1"}),
            package(dependencies={"a": "2", "b": "^2.0.0 || 3"}, devDependencies={"@c/d": "~1"}),
            f"{NPM} 'b@^2.0.0 || 3' '@c/d@~1'",
        ),
        ("web/package.json", package(), package(dependencies={"a": "*"}), f"cd web && {NPM} 'a@*'"),
        ("package.json", package(), package(dependencies={"a": "git+ssh://e/a", "b": "npm:c@1"}), ""),
        ("package.json", package(), package(dependencies={"a": "1; reboot", "-g": "1"}), ""),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["a>=1"]\n',
            '[project]\ndependencies = ["A>=2", "b[x]>=1; python_version>\'3\'"]\n'
            '[project.optional-dependencies]\nextra = ["d"]\n[dependency-groups]\ntest = ["c"]\n',
            f"{PIP} 'b[x]>=1; python_version>'\"'\"'3'\"'\"'' d c",
        ),
        (
            "requirements-dev.txt",
            "a\nx-y\n",
            "-e .\nX_y==2\nb==1  # why\nc @ https://e/c\n./d\n",
            f"{PIP} b==1",
        ),
        ("notes.txt", "a\n", "b\n", ""),
        ("tests/test_a.py", "", "import mock_server\nfrom hypothesis import given\n", f"{PIP} hypothesis"),
        ("tests/test_a.py", "", "import unknown\nimport yaml\n", ""),
        ("tests/test_a.py", "x = 'hypothesis'\n", "import hypothesis\n", ""),
        ("code.py", "", "import hypothesis\n", ""),
        ("tests/notes.md", "", "import hypothesis\n", ""),
    ],
)
async def test_only_new_packages_of_the_index_are_installed(
    path: str,
    old: str,
    new: str,
    command: str,
    repository: Repository,
    workspaces: WorkspaceFactory,
    tmp_path: Path,
) -> None:
    sandboxes = LocalSandboxes(tmp_path / "sandboxes", HOST_ENVIRONMENT)
    repository.commit({path: old})
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, {path: new})
        changes = await workspace.list_changes(patch)
        steps, _ = await find_added_packages(workspace, patch, changes)
        unchanged = await install_added_packages(workspace, patch, changes, sandboxes, "run")
    program = "npm" if path.endswith("package.json") else "python3"
    assert [(step.command, step.program) for step in steps] == ([(command, program)] if command else [])
    assert unchanged == (sandboxes, ())  # local sandboxes store no layers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lock_file", "command"),
    [
        ("pnpm-lock.yaml", "pnpm add --ignore-scripts a@1"),
        ("yarn.lock", "yarn add --ignore-scripts a@1"),
        ("bun.lock", "bun add --ignore-scripts a@1"),
        ("web/yarn.lock", f"{NPM} a@1"),
    ],
)
async def test_the_repositorys_package_manager_installs_without_scripts(
    lock_file: str, command: str, repository: Repository, workspaces: WorkspaceFactory, tmp_path: Path
) -> None:
    sandboxes = LocalSandboxes(tmp_path / "sandboxes", HOST_ENVIRONMENT)
    repository.commit({"package.json": package(), lock_file: ""})
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, {"package.json": package(dependencies={"a": "1"})})
        steps, _ = await find_added_packages(workspace, patch, await workspace.list_changes(patch))
    assert [(step.command, step.program) for step in steps] == [(command, "npm")]


def test_added_packages_are_a_condition() -> None:
    before, after = (
        TestRun(command="c", results={"a": result}, exit_code=0, seconds=1, output="")
        for result in ("failed", "passed")
    )
    patch = Patch(base_sha="0" * 40, diff=b"diff --git a/a b/a\n")
    verdict = decide_verdict(patch, Evidence(before, after), TestEdits(added_packages=("a", "b")))
    assert verdict.kind == "conditional"
    assert (
        verdict.conditions[0].sentence
        == "The tests with the change ran with packages that it adds: `a` and `b`."
    )


# A package with a plugin of pytest that makes every test pass.
FORGING_PLUGIN = """\
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    report = (yield).get_result()
    report.outcome, report.longrepr = "passed", None
"""


class PackageSandboxes(LocalSandboxes):
    """Local sandboxes in which an added package brings a plugin of pytest."""

    plugin = ""

    async def with_layer(
        self, name: str, repository: str, key: str, setup: LayerSetup
    ) -> tuple[LocalSandboxes, LayerNote]:
        programs = self._parent.parent / "programs"
        programs.mkdir()
        (programs / "brought.py").write_text(self.plugin)
        python = programs / "python3"
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH="{programs}:$PYTHONPATH" PYTEST_PLUGINS=brought\n'
            f'exec {shutil.which("python3", path=HOST_ENVIRONMENT["PATH"])} "$@"\n'
        )
        python.chmod(0o755)
        path = f"{programs}:{HOST_ENVIRONMENT['PATH']}"
        return LocalSandboxes(self._parent, {**HOST_ENVIRONMENT, "PATH": path}), LayerNote(text="{}")


@pytest.mark.parametrize(("count", "installed"), [(20, 20), (21, 0)])
async def test_a_patch_may_add_twenty_packages(
    count: int, installed: int, repository: Repository, workspaces: WorkspaceFactory, tmp_path: Path
) -> None:
    (tmp_path / "sandboxes").mkdir()
    sandboxes = PackageSandboxes(tmp_path / "sandboxes", HOST_ENVIRONMENT)
    repository.commit({"requirements.txt": ""})
    async with workspaces.local(repository.path) as workspace:
        lines = "".join(f"p{number}\n" for number in range(count))
        patch = await make_patch(workspace, sandboxes, {"requirements.txt": lines})
        changes = await workspace.list_changes(patch)
        patched = await install_added_packages(workspace, patch, changes, sandboxes, "run")
    assert len(patched.added_packages) == installed
    assert (patched.sandboxes is sandboxes) == (not installed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "code", "kind"),
    [("", FIXED, "conditional"), (FORGING_PLUGIN, BUG.replace("1", "1 + 0"), "unproven")],
    ids=["honest", "forging"],
)
async def test_an_added_package_cannot_make_tests_pass(
    plugin: str, code: str, kind: str, repository: Repository, workspaces: WorkspaceFactory, tmp_path: Path
) -> None:
    (tmp_path / "sandboxes").mkdir()
    sandboxes = PackageSandboxes(tmp_path / "sandboxes", HOST_ENVIRONMENT)
    sandboxes.plugin = plugin
    repository.commit({"calc.py": BUG, "test_calc.py": FAILING, "requirements.txt": "a\n"})
    async with workspaces.local(repository.path) as workspace:
        verifier = PatchVerifier(workspace, sandboxes)
        verdict = await verifier.verdict({"calc.py": code, "requirements.txt": "a\nb\n"})
    assert (verdict.kind, verdict.added_packages) == (kind, ("b",)), verdict.reason
