"""What a project of poetry names for its developers: without a lock, pip is told of it."""

import os
from pathlib import Path

import pytest

from resolver import prose
from resolver.circumstances import Prepared
from resolver.domain import Verdict
from resolver.preparing.poetry import for_developers
from resolver.preparing.setup import find_setup, with_dependencies
from resolver.secrets import Secrets
from resolver.settings.repository import RepoConfig
from resolver.summary import summarize
from resolver.viewer.viewer import view
from resolver.workspace import Workspaces
from tests.resolver.preparing.deriving import Deriving
from tests.resolver.repositories import Repository
from tests.resolver.seen_runs import RUN, run_of, started

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
    ("wanted", "asked"),
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
def test_a_constraint_is_told_in_the_words_of_pip(wanted: object, asked: list[str]) -> None:
    project = {"tool": {"poetry": {"dev-dependencies": {"python": "^3.8", "--pre": "*", "x": wanted}}}}
    assert for_developers(project) == asked


# Has what is asked of it unless that is called `gone`, and writes down what it has.
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
async def test_what_cannot_be_had_for_developers_is_told_and_keeps_nothing_else_out(
    repository: Repository,
    workspaces: Workspaces,
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
    sandboxes = Deriving(tmp_path / "boxes", {"PATH": f"{index.parent}:{os.environ['PATH']}"})
    async with workspaces.local(repository.path) as workspace:
        _, prepared, _ = await with_dependencies(
            workspace, RepoConfig(), sandboxes, name="x", source="x", seconds=60
        )
    assert Path(f"{index}.had").read_text().splitlines() == [*had, "-e", ".[test,tests,testing]"]
    assert prepared is not None and prepared.problem is None
    assert [problem.rpartition("Not to be had: ")[2] for problem in prepared.missed] == missed


async def test_what_developers_use_is_tried_before_the_project_is_installed(
    repository: Repository, workspaces: Workspaces
) -> None:
    repository.commit({"pyproject.toml": PYPROJECT})
    async with workspaces.local(repository.path) as workspace:
        setup = await find_setup(workspace, RepoConfig())
    assert setup is not None
    [extra, project] = setup.steps
    assert (extra.needed, extra.command.partition(" || ")[0]) == (False, f"{PIP} 'PyYAML>=6.0,<7'")
    assert (project.needed, project.command) == (True, f"{PIP} -e '.[test,tests,testing]'")


def test_what_the_set_up_went_on_without_is_told_in_the_pull_request_and_in_the_viewer() -> None:
    why = "`pip` ended with exit code 1 (Not to be had: gone)."
    run = run_of(started(), Prepared(commands=("pip",), warm=False, seconds=1, missed=(f"@all: {why}",)))
    assert run.started is not None
    untested = Verdict(kind="untested", reason="There are no tests.")
    body = prose.pull_body(run.started.thread, untested, summarize(run), (), ())
    assert "set-up went on without something" in body and why in body and "@all" not in body
    assert "Not to be had: gone" in view(RUN, run, lambda delegate: None, Secrets([]))
