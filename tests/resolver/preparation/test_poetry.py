"""Development dependencies of Poetry projects without a lock file, translated for pip."""

import os
from pathlib import Path

import pytest

from patchwright.resolver import reply_texts
from patchwright.resolver.domain import Verdict
from patchwright.resolver.preparation.poetry import developer_requirements
from patchwright.resolver.preparation.repo_setup import find_setup, install_dependencies
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.repo_config import RepoConfig
from patchwright.resolver.summary import summarize_run
from patchwright.resolver.viewer.run_html import render_run_html
from patchwright.resolver.workspaces import WorkspaceFactory
from tests.resolver.git_repository import Repository
from tests.resolver.preparation.local_setup import SetupSandboxes
from tests.resolver.sample_runs import RUN, run_of, started

PYPROJECT = """
[tool.poetry]
name = "calc"
[tool.poetry.group.dev.dependencies]
PyYAML = "^6.0"
[tool.poetry.group.docs]
optional = true
[tool.poetry.group.docs.dependencies]
Sphinx = "^4.3"
"""
MARKED = ["""'x; os_name == '"'"'a'"'"' or extra == '"'"'b'"'"''"""]
PIP = "python3 -m pip install --quiet"


@pytest.mark.parametrize(
    ("wanted", "requirements"),
    [
        ("^7.2.0", ["'x>=7.2.0,<8'"]),
        ("^0.990", ["'x>=0.990,<0.991'"]),
        ("^0.0.3", ["'x>=0.0.3,<0.0.4'"]),
        ("^0", ["'x>=0,<1'"]),
        ("~1.2.3", ["'x>=1.2.3,<1.3'"]),
        ("~1", ["'x>=1,<2'"]),
        ("1.2", ["x==1.2"]),
        (">=1.2, <3", ["'x>=1.2,<3'"]),
        ("1.*", ["x"]),
        ("^1 || ^2", ["x"]),
        ("*", ["x"]),
        ([{"version": "^1"}, "2"], ["'x>=1,<2'", "x==2"]),
        ({"version": "^1", "extras": ["a", "b"]}, ["'x[a,b]>=1,<2'"]),
        ({"version": "^1", "extras": 7}, ["'x>=1,<2'"]),
        ({"version": "*", "extras": ["a] @ https://example.org/x", "b"]}, ["'x[b]'"]),
        ({"git": "https://example.org/x"}, []),
        ({"version": "*", "python": "<3.7"}, ["""'x; python_version < "3.7"'"""]),
        ({"version": "*", "python": "*"}, ["x"]),
        ({"version": "*", "python": "^3.8"}, ["""'x; python_version >= "3.8" and python_version < "4"'"""]),
        ({"version": "1", "python": ">=3.8.1"}, ["""'x==1; python_full_version >= "3.8.1"'"""]),
        ({"version": "*", "python": "~2.7 || ^3.8"}, []),
        ({"version": "*", "platform": "win32"}, ["""'x; sys_platform == "win32"'"""]),
        ({"version": "*", "platform": "!=win32"}, ["""'x; sys_platform != "win32"'"""]),
        ({"version": "*", "platform": "linux || darwin"}, []),
        ({"version": "*", "platform": 'x" or "1" == "1'}, []),
        ({"version": "*", "markers": "os_name == 'a' or extra == 'b'"}, MARKED),
        (
            {"version": "*", "platform": "linux", "markers": "a or b"},
            ["""'x; sys_platform == "linux" and (a or b)'"""],
        ),
        ({"version": "*", "markers": "a\n--index-url=https://example.org"}, []),
        ({"version": "*", "markers": "a' --pre y; b"}, ["""'x; a'"'"' --pre y; b'"""]),
    ],
    ids=str,
)
def test_a_poetry_constraint_is_translated_for_pip(wanted: object, requirements: list[str]) -> None:
    project = {"tool": {"poetry": {"dev-dependencies": {"python": "^3.8", "--pre": "*", "x": wanted}}}}
    assert developer_requirements(project) == requirements


# A fake pip: installs everything except `gone`, and records what it installs.
INDEX = """#!/bin/sh
for each; do case $each in gone*) echo "ERROR: No matching distribution found for $each"; exit 1;; esac; done
shift 4
for each; do echo "$each" >>"$0.had"; done
"""


@pytest.mark.parametrize(
    ("named", "had", "missed"),
    [
        ('pytest = "*"\nPyYAML = "^6.0"', ["pytest", "PyYAML>=6.0,<7"], []),
        (
            'gone = "^1"\npytest = "*"\ngone2 = {version = "*", python = "<4"}',
            ["pytest"],
            ['gone>=1,<2, gone2; python_version < "4").'],
        ),
    ],
    ids=["all", "some"],
)
async def test_an_unavailable_development_dependency_is_reported_and_blocks_no_other(
    repository: Repository,
    workspaces: WorkspaceFactory,
    tmp_path: Path,
    named: str,
    had: list[str],
    missed: list[str],
) -> None:
    repository.commit({"pyproject.toml": f"[tool.poetry.group.dev.dependencies]\n{named}\n"})
    index = tmp_path / "bin" / "python3"
    index.parent.mkdir()
    index.write_text(INDEX)
    index.chmod(0o755)
    sandboxes = SetupSandboxes(tmp_path / "boxes", {"PATH": f"{index.parent}:{os.environ['PATH']}"})
    async with workspaces.local(repository.path) as workspace:
        _, prepared, _ = await install_dependencies(
            workspace, RepoConfig(), sandboxes, name="x", source="x", timeout=60
        )
    assert Path(f"{index}.had").read_text().splitlines() == [*had, "-e", ".[test,tests,testing]"]
    assert prepared is not None and prepared.problem is None
    assert [problem.rpartition("Not available: ")[2] for problem in prepared.warnings] == missed


async def test_development_dependencies_are_installed_before_the_project(
    repository: Repository, workspaces: WorkspaceFactory
) -> None:
    repository.commit({"pyproject.toml": PYPROJECT})
    async with workspaces.local(repository.path) as workspace:
        setup = await find_setup(workspace, RepoConfig())
    assert setup is not None
    [extra, project] = setup.steps
    assert (extra.required, extra.command.partition(" || ")[0]) == (False, f"{PIP} 'PyYAML>=6.0,<7'")
    assert (project.required, project.command) == (True, f"{PIP} -e '.[test,tests,testing]'")


def test_setup_warnings_are_shown_in_the_pull_request_and_the_viewer() -> None:
    why = "`pip` failed with exit code 1 (Not available: gone)."
    run = run_of(
        started(),
        EnvironmentPrepared(commands=("pip",), was_cached=False, seconds=1, warnings=(f"@all: {why}",)),
    )
    assert run.run_started is not None
    untested = Verdict(kind="untested", reason="There are no tests.")
    body = reply_texts.render_pull_request_body(run.run_started.thread, untested, summarize_run(run), (), ())
    assert "setup continued without a development dependency" in body and why in body and "@all" not in body
    assert "Not available: gone" in render_run_html(RUN, run, lambda delegate: None, Secrets([]))
