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
