"""What a project of poetry names for its developers: without a lock, pip is told of it."""

import pytest

from resolver.preparing.poetry import for_developers
from resolver.preparing.setup import find_setup
from resolver.settings.repository import RepoConfig
from resolver.workspace import Workspaces
from tests.resolver.repositories import Repository

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
        (">=1.2, <3", ["'x>=1.2, <3'"]),
        ("1.*", ["x"]),
        ("^1 || ^2", ["x"]),
        ("*", ["x"]),
        ([{"version": "^1"}], ["x"]),
        ({"version": "^1", "extras": ["a", "b"]}, ["'x[a,b]>=1,<2'"]),
        ({"version": "^1", "extras": 7}, ["'x>=1,<2'"]),
        ({"git": "https://example.org/x"}, []),
    ],
    ids=str,
)
def test_a_constraint_is_told_in_the_words_of_pip(wanted: object, asked: list[str]) -> None:
    project = {"tool": {"poetry": {"dev-dependencies": {"python": "^3.8", "--pre": "*", "x": wanted}}}}
    assert for_developers(project) == asked


async def test_what_developers_use_is_tried_before_the_project_is_installed(
    repository: Repository, workspaces: Workspaces
) -> None:
    repository.commit({"pyproject.toml": PYPROJECT})
    async with workspaces.local(repository.path) as workspace:
        setup = await find_setup(workspace, RepoConfig())
    assert setup is not None
    assert [step.command for step in setup.steps] == [
        f"{PIP} 'PyYAML>=6.0,<7'; {PIP} -e '.[test,tests,testing]'"
    ]
