"""Which commands the repository's setup has, and which of them run."""

import os
from pathlib import Path

import pytest

from patchwright.resolver.git.workspaces import Workspace, WorkspaceFactory
from patchwright.resolver.preparation.repo_setup import (
    SETUP_SCRIPT,
    RepoSetup,
    find_setup,
    install_dependencies,
)
from patchwright.resolver.run.repo_config import parse_repo_config
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.resolver.git_repository import Repository
from tests.resolver.preparation.local_setup import INSTALL, SetupSandboxes

pytestmark = pytest.mark.slow


async def find_setup_for(
    repository: Repository, workspaces: WorkspaceFactory, config: RepoConfig | None = None
) -> RepoSetup | None:
    async with workspaces.local(repository.path) as workspace:
        return await find_setup(workspace, config or RepoConfig())


def commands_of(setup: RepoSetup | None) -> list[str]:
    return [step.command for step in setup.steps] if setup else []


# --- finding the setup
# ------------------------------------------------------------------------------------------


async def test_a_configured_setup_comes_first_and_can_be_empty(
    repository: Repository, workspaces: WorkspaceFactory
) -> None:
    repository.commit({"requirements.txt": "", ".github/patchwright/setup.sh": ""})
    for text, commands in (
        ('setup = "make"', ["make"]),
        ('setup = ["a", "b"]', ["a", "b"]),
        ('setup = ""', []),
    ):
        setup = await find_setup_for(repository, workspaces, parse_repo_config(text).config)
        assert commands_of(setup) == commands


async def test_the_setup_key_depends_only_on_commands_and_manifests(
    repository: Repository, workspaces: WorkspaceFactory
) -> None:
    def key(setup: RepoSetup | None) -> str:
        assert setup is not None
        return setup.key

    repository.commit({"requirements.txt": "a", "calc.py": "1"})
    first = key(await find_setup_for(repository, workspaces))
    repository.commit({"calc.py": "2", "README.md": "x"})
    assert key(await find_setup_for(repository, workspaces)) == first
    assert key(await find_setup_for(repository, workspaces, RepoConfig(setup="true"))) != first
    repository.commit({"requirements.txt": "b"})
    assert key(await find_setup_for(repository, workspaces)) != first


# --- running the setup
# ------------------------------------------------------------------------------------------


async def test_a_proposed_change_can_change_manifests_but_not_the_setup(
    workspaces: WorkspaceFactory, repository: Repository, tmp_path: Path
) -> None:
    """The script comes from the base branch, whatever the reviewed head contains."""
    path = tmp_path / "said"
    start = repository.commit({"calc.py": ""})
    base = repository.commit({SETUP_SCRIPT: f"echo base >>{path}\n"})
    head = repository.commit({SETUP_SCRIPT: f"echo head >>{path}\n", "requirements.txt": "wcwidth\n"})
    other = repository.commit({SETUP_SCRIPT: f"echo head again >>{path}\n"})

    async with workspaces.local(repository.path) as workspace:
        rules = workspace.with_base(base)
        proposed = Workspace(workspace.git_dir, head, None, config_source=rules)
        again = Workspace(workspace.git_dir, other, None, config_source=rules)
        one, two = await find_setup(proposed, RepoConfig()), await find_setup(again, RepoConfig())
        assert commands_of(one) == [f"bash {SETUP_SCRIPT}"]
        assert one == two
        none = Workspace(workspace.git_dir, head, None, config_source=workspace.with_base(start))
        assert commands_of(await find_setup(none, RepoConfig())) == [f"{INSTALL} -r requirements.txt"]
        sandboxes = SetupSandboxes(tmp_path / "boxes", dict(os.environ))
        made = await install_dependencies(
            proposed, RepoConfig(), sandboxes, name="setup", source="here", timeout=60
        )
    assert made[1] is not None and made[1].problem is None
    assert path.read_text() == "base\n"


async def test_the_local_sandbox_cannot_run_a_setup(
    repository: Repository, workspaces: WorkspaceFactory, sandboxes: LocalSandboxes
) -> None:
    repository.commit({"requirements.txt": ""})
    async with workspaces.local(repository.path) as workspace:
        same, prepared, _ = await install_dependencies(
            workspace, RepoConfig(), sandboxes, name="s", source="s", timeout=60
        )
    assert same is sandboxes
    assert prepared and prepared.problem and "the local sandbox has no setup" in prepared.problem


async def set_up_with(
    programs: Path, repository: Repository, workspaces: WorkspaceFactory, **contents: str
) -> EnvironmentPrepared:
    """Sets up the repository with these programs, and with no other Python."""
    programs.mkdir()
    for name, content in contents.items():
        (programs / name).write_text(content)
        (programs / name).chmod(0o755)
    sandboxes = SetupSandboxes(programs.parent / "boxes", {"PATH": f"{programs}:/usr/bin:/bin"})
    async with workspaces.local(repository.path) as workspace:
        _, prepared, _ = await install_dependencies(
            workspace, RepoConfig(), sandboxes, name="x", source="x", timeout=60
        )
    assert prepared is not None
    return prepared


# A fake interpreter whose pip cannot install requirements-test.txt or, if there is a file `broken`, the project. It
# records what it installs, and the arguments of the program that installs requirements singly.
PYTHON = """#!/bin/sh
case $1 in */requirements_installer.py) shift; echo "singly: $@" >>"$0.had"; exit 0;; esac
for each; do case $each in *-test.txt) echo "ERROR: No matching distribution found for x"; exit 1;; esac; done
case $*/$(ls broken 2>/dev/null) in *-e*/broken) echo cannot build; exit 1;; esac
[ "$2" = pip ] || exit 0
shift 4
echo "$@" >>"$0.had"
"""
ALL_EXTRAS = "-e .[test,tests,testing,dev]"


@pytest.mark.parametrize(
    ("files", "had", "warnings"),
    [
        (["requirements.txt"], [f"-r requirements.txt {ALL_EXTRAS}"], []),
        (
            ["requirements.txt", "requirements-test.txt"],
            ["singly: -r requirements-test.txt -r requirements.txt", "-e ."],
            ["failed with exit code 1 (ERROR: No matching distribution found for x)."],
        ),
        (
            ["requirements.txt", "broken"],
            ["singly: -r requirements.txt"],
            ["failed with exit code 1 (cannot build)."],
        ),
        (["tox.toml"], [ALL_EXTRAS], ["failed with exit code 3 (no tox)."]),
    ],
    ids=["all", "requirements", "project", "tool"],
)
async def test_a_step_that_fails_is_reported_and_the_others_run(
    files: list[str],
    had: list[str],
    warnings: list[str],
    repository: Repository,
    workspaces: WorkspaceFactory,
    tmp_path: Path,
) -> None:
    repository.commit({"setup.py": "", **dict.fromkeys(files, "")})
    uv = "#!/bin/sh\necho no tox\nexit 3\n"
    prepared = await set_up_with(tmp_path / "bin", repository, workspaces, python3=PYTHON, uv=uv)
    assert (tmp_path / "bin/python3.had").read_text().splitlines() == had
    assert prepared.problem is None
    assert [warning.partition("` ")[2] for warning in prepared.warnings] == warnings


async def test_a_missing_package_that_does_not_exist_stops_no_other_one(
    repository: Repository, workspaces: WorkspaceFactory, tmp_path: Path
) -> None:
    repository.commit({"setup.py": "", "test_a.py": "", "tox.ini": "[x]\ndeps = internal\n"})
    missing = "echo No module named internal; echo No module named yaml"
    python = PYTHON.replace("*-test.txt", "internal").replace("|| exit 0", f"|| {{ {missing}; exit 1; }}")
    prepared = await set_up_with(tmp_path / "bin", repository, workspaces, python3=python)
    assert (tmp_path / "bin/python3.had").read_text().splitlines() == [ALL_EXTRAS, "PyYAML"]
    assert len(prepared.warnings) == 1
